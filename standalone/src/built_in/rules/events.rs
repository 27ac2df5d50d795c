//! Events and Leases.

use aggregated_apiserver::{FieldError, Rules};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events::v1::Event as NewEvent;

use super::{Faults, IMMUTABLE, quote, shown};

/// Lengths that kube-apiserver allows in the newer form.
const LIMITS: [(&str, usize); 4] =
    [("reportingController", 128), ("action", 128), ("reason", 128), ("note", 1_024)];

pub(in super::super) fn events() -> Rules<Event> {
    Rules::none().validate(|event: &Event, old, _| {
        let mut faults = Vec::new();
        let about = event.involved_object.namespace.as_deref().unwrap_or_default();
        let own = event.metadata.namespace.as_deref().unwrap_or_default();
        if old.is_none() {
            check_place("involvedObject.namespace", about, own, &mut faults);
        }
        faults
    })
}

/// What is of the cluster is told in the namespace `default`.
fn check_place(at: &str, about: &str, own: &str, faults: &mut Faults) {
    let is_right = match about {
        "" => own == "default" || own == "kube-system",
        about => about == own,
    };
    if !is_right {
        faults.push(FieldError::invalid(at, quote(about), "does not match event.namespace"));
    }
}

pub(in super::super) fn new_events() -> Rules<NewEvent> {
    Rules::none().validate(|event: &NewEvent, old, _| {
        let mut faults = Vec::new();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let Some(old) = old else {
            let own = event.metadata.namespace.as_deref().unwrap_or_default();
            let about = event.regarding.as_ref().and_then(|about| about.namespace.as_deref());
            check_place("involvedObject.namespace", about.unwrap_or_default(), own, &mut faults);
            let sort = text(&event.type_);
            if !["Normal", "Warning"].contains(&sort.as_str()) {
                let why = format!("has invalid value: {sort}");
                faults.push(FieldError::invalid("type", quote(""), &why));
            }
            if event.event_time.is_none() {
                faults.push(FieldError::required("eventTime", ""));
                return faults;
            }
            for (field, value) in [
                ("reportingController", text(&event.reporting_controller)),
                ("reportingInstance", text(&event.reporting_instance)),
                ("action", text(&event.action)),
                ("reason", text(&event.reason)),
            ] {
                if value.is_empty() {
                    faults.push(FieldError::required(field, ""));
                }
                let limit = LIMITS.iter().find(|(name, _)| *name == field);
                if let Some((_, limit)) = limit.filter(|(_, limit)| value.len() > *limit) {
                    let why = format!("can have at most {limit} characters");
                    faults.push(FieldError::invalid(field, quote(""), &why));
                }
            }
            return faults;
        };
        for (field, is_kept, value) in [
            ("involvedObject", event.regarding == old.regarding, shown(&event.regarding)),
            ("reason", event.reason == old.reason, shown(&event.reason)),
            ("message", event.note == old.note, shown(&event.note)),
            ("action", event.action == old.action, shown(&event.action)),
            ("related", event.related == old.related, shown(&event.related)),
            (
                "reportingController",
                event.reporting_controller == old.reporting_controller,
                shown(&event.reporting_controller),
            ),
            (
                "reportingInstance",
                event.reporting_instance == old.reporting_instance,
                shown(&event.reporting_instance),
            ),
            ("type", event.type_ == old.type_, shown(&event.type_)),
            ("eventTime", event.event_time == old.event_time, shown(&event.event_time)),
        ] {
            if !is_kept {
                // kube-apiserver finds it twice.
                let fault = FieldError::invalid(field, value, IMMUTABLE);
                faults.extend([fault.clone(), fault]);
            }
        }
        faults
    })
}

pub(in super::super) fn leases() -> Rules<Lease> {
    Rules::none().validate(|lease: &Lease, _, _| {
        let mut faults = Vec::new();
        let Some(spec) = &lease.spec else { return faults };
        if let Some(seconds) = spec.lease_duration_seconds.filter(|seconds| *seconds <= 0) {
            let why = "must be greater than 0";
            faults.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, why));
        }
        super::check_not_negative("spec.leaseTransitions", spec.lease_transitions, &mut faults);
        faults
    })
}
