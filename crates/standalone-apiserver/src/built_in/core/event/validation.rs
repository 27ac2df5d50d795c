//! The validation of new events, which is the same for both groups.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;

use crate::built_in::checks::{FieldErrors, check_with, quote};

/// The largest sizes of the strings of an event with an `eventTime`, in bytes.
const TEXT_LIMIT: usize = 128;
const MESSAGE_LIMIT: usize = 1_024;

/// The validated fields of an event. The first element of a pair is the name of a field.
pub(crate) struct NewEvent {
    pub(crate) namespace: String,
    pub(crate) namespace_of_object: String,
    pub(crate) has_event_time: bool,
    pub(crate) controller: (&'static str, String),
    /// The reporting instance, the action and the reason.
    pub(crate) texts: [(&'static str, String); 3],
    pub(crate) message: (&'static str, String),
}

/// Validates a new event. With an `eventTime`, it must state the reporting controller and the reason.
pub(crate) fn check(event: &NewEvent, faults: &mut FieldErrors) {
    let (about, own) = (event.namespace_of_object.as_str(), event.namespace.as_str());
    // Events about cluster-scoped objects are in the namespace `default`.
    let is_right = match (about, event.has_event_time) {
        ("", true) => ["default", "kube-system"].contains(&own),
        ("", false) => own == "default",
        (_, true) => true,
        (about, false) => about == own,
    };
    if !is_right {
        let why = "does not match event.namespace";
        faults.push(FieldError::invalid("involvedObject.namespace", quote(about), why));
    }
    if !event.has_event_time {
        return;
    }
    let mut check_length = |field: &str, text: &str, limit: usize| {
        if text.len() > limit {
            let why = format!("can have at most {limit} characters");
            faults.push(FieldError::invalid(field, "\"\"", &why));
        }
    };
    for (field, text) in &event.texts {
        check_length(field, text, TEXT_LIMIT);
    }
    check_length(event.message.0, &event.message.1, MESSAGE_LIMIT);
    for (field, text) in std::iter::once(&event.controller).chain(&event.texts) {
        if text.is_empty() {
            faults.push(FieldError::required(*field, ""));
        }
    }
    let (field, controller) = &event.controller;
    check_with(field, controller, names::check_label_key, faults);
}
