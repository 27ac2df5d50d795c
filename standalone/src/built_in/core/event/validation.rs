//! What both groups of events demand of a new one.

use aggregated_apiserver::{FieldError, names};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events::v1::Event as NewEvent;

use crate::built_in::checks::{Faults, check_with, quote};

/// Lengths that kube-apiserver allows where an event has its own time.
const TEXT_LIMIT: usize = 128;

const NOTE_LIMIT: usize = 1_024;

/// What is looked at, whichever form an event is in.
pub(crate) struct Told {
    own_namespace: String,
    about_namespace: String,
    has_time: bool,
    /// Names and values of texts, and whether they must be there.
    texts: [(&'static str, String); 4],
    note: (&'static str, String),
}

impl Told {
    pub(crate) fn of(event: &Event) -> Self {
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

    pub(crate) fn of_new(event: &NewEvent) -> Self {
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
pub(crate) fn check_new(told: &Told, faults: &mut Faults) {
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
