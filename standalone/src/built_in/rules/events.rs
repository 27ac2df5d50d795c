//! Events and Leases.

use aggregated_apiserver::{FieldError, Rules, names};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events::v1::Event as NewEvent;

use serde::Serialize;

use super::{Faults, check_kept, check_with, quote};

/// Lengths that kube-apiserver allows where an event has its own time.
const TEXT_LIMIT: usize = 128;
const NOTE_LIMIT: usize = 1_024;

pub(in super::super) fn events() -> Rules<Event> {
    Rules::none().validate(|event: &Event, old, _| {
        let mut faults = Vec::new();
        if old.is_none() {
            check_new(&Told::of(event), &mut faults);
        }
        faults
    })
}

/// What is looked at, whichever form an event is in.
struct Told {
    own_namespace: String,
    about_namespace: String,
    has_time: bool,
    /// Names and values of texts, and whether they must be there.
    texts: [(&'static str, String); 4],
    note: (&'static str, String),
}

impl Told {
    fn of(event: &Event) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            own_namespace: text(&event.metadata.namespace),
            about_namespace: text(&event.involved_object.namespace),
            has_time: event.event_time.is_some(),
            texts: [
                ("reportingComponent", text(&event.reporting_component)),
                ("reportingInstance", text(&event.reporting_instance)),
                ("action", text(&event.action)),
                ("reason", text(&event.reason)),
            ],
            note: ("message", text(&event.message)),
        }
    }

    fn of_new(event: &NewEvent) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let about = event.regarding.as_ref();
        Self {
            own_namespace: text(&event.metadata.namespace),
            about_namespace: about.map(|about| text(&about.namespace)).unwrap_or_default(),
            has_time: event.event_time.is_some(),
            texts: [
                ("reportingController", text(&event.reporting_controller)),
                ("reportingInstance", text(&event.reporting_instance)),
                ("action", text(&event.action)),
                ("reason", text(&event.reason)),
            ],
            note: ("message", text(&event.note)),
        }
    }
}

/// What is demanded of every new event: much, if it says when it was.
fn check_new(told: &Told, faults: &mut Faults) {
    let (about, own) = (told.about_namespace.as_str(), told.own_namespace.as_str());
    // What is of the cluster is told in the namespace `default`.
    let is_right = match (about, told.has_time) {
        ("", true) => ["default", "kube-system"].contains(&own),
        ("", false) => own == "default",
        (_, true) => true,
        (about, false) => about == own,
    };
    if !is_right {
        let why = "does not match event.namespace";
        faults.push(FieldError::invalid("involvedObject.namespace", quote(about), why));
    }
    if !told.has_time {
        return;
    }
    let mut check_length = |field: &str, text: &str, limit: usize| {
        if text.len() > limit {
            let why = format!("can have at most {limit} characters");
            faults.push(FieldError::invalid(field, "\"\"", &why));
        }
    };
    for (field, text) in told.texts.iter().skip(1) {
        check_length(field, text, TEXT_LIMIT);
    }
    check_length(told.note.0, &told.note.1, NOTE_LIMIT);
    for (field, text) in &told.texts {
        if text.is_empty() {
            faults.push(FieldError::required(*field, ""));
        }
    }
    let (field, controller) = &told.texts[0];
    check_with(field, controller, names::check_label_key, faults);
}

pub(in super::super) fn new_events() -> Rules<NewEvent> {
    Rules::none().validate(|event: &NewEvent, old, _| {
        let mut faults = Vec::new();
        let is_same = old.is_some_and(|old| old.series == event.series);
        if !is_same && event.series.as_ref().is_some_and(|series| series.count < 2) {
            let why = "should be at least 2";
            faults.push(FieldError::invalid("series.count", quote(""), why));
        }
        let Some(old) = old else {
            check_new(&Told::of_new(event), &mut faults);
            if event.event_time.is_none() {
                faults.push(FieldError::required("eventTime", ""));
            }
            let sort = event.type_.clone().unwrap_or_default();
            if !["Normal", "Warning"].contains(&sort.as_str()) {
                let why = format!("has invalid value: {sort}");
                faults.push(FieldError::invalid("type", quote(""), &why));
            }
            for (field, is_set) in [
                ("firstTimestamp", event.deprecated_first_timestamp.is_some()),
                ("lastTimestamp", event.deprecated_last_timestamp.is_some()),
                ("count", event.deprecated_count.unwrap_or_default() != 0),
                (
                    "source",
                    event
                        .deprecated_source
                        .as_ref()
                        .is_some_and(|source| *source != Default::default()),
                ),
            ] {
                if is_set {
                    faults.push(FieldError::invalid(field, quote(""), "needs to be unset"));
                }
            }
            return faults;
        };
        check_change(event, old, &mut faults);
        faults
    })
}

/// An event may be told again, and else stays as it is.
fn check_change(event: &NewEvent, old: &NewEvent, faults: &mut Faults) {
    /// kube-apiserver finds it twice.
    fn check<T: PartialEq + Serialize>(field: &str, new: &T, old: &T, faults: &mut Faults) {
        check_kept(field, new, old, faults);
        check_kept(field, new, old, faults);
    }
    check("involvedObject", &event.regarding, &old.regarding, faults);
    check("reason", &event.reason, &old.reason, faults);
    check("message", &event.note, &old.note, faults);
    check("action", &event.action, &old.action, faults);
    check("related", &event.related, &old.related, faults);
    let (controller, instance) = (&event.reporting_controller, &event.reporting_instance);
    check("reportingController", controller, &old.reporting_controller, faults);
    check("reportingInstance", instance, &old.reporting_instance, faults);
    check("type", &event.type_, &old.type_, faults);
    check("eventTime", &event.event_time, &old.event_time, faults);
    check("source", &event.deprecated_source, &old.deprecated_source, faults);
    let (first, last) = (&event.deprecated_first_timestamp, &event.deprecated_last_timestamp);
    check("firstTimestamp", first, &old.deprecated_first_timestamp, faults);
    check("lastTimestamp", last, &old.deprecated_last_timestamp, faults);
    check("count", &event.deprecated_count, &old.deprecated_count, faults);
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
