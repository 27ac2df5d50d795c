//! Events of `events.k8s.io`: another representation of the events of the core group, which are stored.

use aggregated_apiserver::strategy::View;
use aggregated_apiserver::{FieldError, Validation};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use serde::Serialize;
use serde_json::Value;

use super::conversion::{from_core, to_core};
use crate::built_in::checks::{FieldErrors, check_immutable, quote};
use crate::built_in::conditions::ZERO_TIME;
use crate::built_in::core::event::validation::{self, NewEvent};
use crate::built_in::core::event::{cells, strategy};
use crate::built_in::row::Row;

pub(crate) fn row() -> Row<Event> {
    Row {
        short_names: &["ev"],
        columns: cells::columns(cell),
        rules: Validation::new().validate(|event, old, _| validate(event, old)),
        ..Row::new(strategy("regarding"))
    }
}

/// The view that stores events of this group as events of the core group.
pub(crate) fn view() -> View {
    View { group: "", version: "v1", plural: "events", to_stored: to_core, from_stored: from_core }
}

fn cell(heading: &str, event: &Event, now: Timestamp) -> Value {
    let tree = serde_json::to_value(event).unwrap_or_default();
    let mut core = tree.as_object().cloned().map(to_core).unwrap_or_default();
    core.insert("apiVersion".to_owned(), "v1".into());
    let core = serde_json::from_value(Value::Object(core));
    core.map_or(Value::Null, |core: CoreEvent| cells::cell(heading, &core, now))
}

fn validate(event: &Event, old: Option<&Event>) -> FieldErrors {
    let mut faults = Vec::new();
    let is_same = old.is_some_and(|old| old.series == event.series);
    if let Some(series) = event.series.as_ref().filter(|_| !is_same) {
        if series.count < 2 {
            let why = "should be at least 2";
            faults.push(FieldError::invalid("series.count", quote(""), why));
        }
        if series.last_observed_time.0 == ZERO_TIME {
            faults.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    let Some(old) = old else {
        validation::check(&new_event(event), &mut faults);
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
}

fn new_event(event: &Event) -> NewEvent {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let about = event.regarding.as_ref();
    NewEvent {
        namespace: text(&event.metadata.namespace),
        namespace_of_object: about.map(|about| text(&about.namespace)).unwrap_or_default(),
        has_event_time: event.event_time.is_some(),
        controller: ("reportingController", text(&event.reporting_controller)),
        texts: [
            ("reportingInstance", text(&event.reporting_instance)),
            ("action", text(&event.action)),
            ("reason", text(&event.reason)),
        ],
        message: ("message", text(&event.note)),
    }
}

/// Checks that an update changes only the series of an event.
fn check_change(event: &Event, old: &Event, faults: &mut FieldErrors) {
    /// Checks a field. kube-apiserver reports each error twice.
    fn check<T: PartialEq + Serialize>(field: &str, new: &T, old: &T, faults: &mut FieldErrors) {
        check_immutable(field, new, old, faults);
        check_immutable(field, new, old, faults);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::json;

    fn event(more: Value) -> Value {
        let mut event = json!({
            "metadata": {"namespace": "default"}, "regarding": {"namespace": "default"},
            "eventTime": "2024-05-01T12:00:00.000000Z", "reportingController": "c",
            "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal",
        });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    }

    #[test]
    fn invalid_events_of_the_events_group_are_rejected() {
        for (more, expected) in [
            (json!({}), vec![]),
            (json!({"eventTime": null}), vec!["eventTime: Required value"]),
            (json!({"type": "Odd"}), vec!["type: Invalid value: \"\": has invalid value: Odd"]),
            (
                json!({"series": {"count": 1, "lastObservedTime": "2024-05-01T12:00:00.000000Z"}}),
                vec!["series.count: Invalid value: \"\": should be at least 2"],
            ),
            (
                json!({"deprecatedCount": 2, "deprecatedSource": {"component": "c"}}),
                vec![
                    "count: Invalid value: \"\": needs to be unset",
                    "source: Invalid value: \"\": needs to be unset",
                ],
            ),
            (json!({"deprecatedCount": 0, "deprecatedSource": {}}), vec![]),
            (
                json!({"regarding": {"namespace": ""}, "metadata": {"namespace": "a"}}),
                vec![
                    "involvedObject.namespace: Invalid value: \"\": does not match event.namespace",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, event(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn only_the_series_of_an_event_can_be_updated() {
        let series =
            json!({"series": {"count": 2, "lastObservedTime": "2024-05-01T12:00:01.000000Z"}});
        let old = event(json!({}));
        assert_eq!(faults_of_update(validate, old.clone(), event(series)), [] as [&str; 0]);
        // kube-apiserver reports each error twice.
        let fault = "reason: Invalid value: \"s\": field is immutable";
        let new = event(json!({"reason": "s"}));
        assert_eq!(faults_of_update(validate, old, new), [fault, fault]);
    }

    #[test]
    fn events_of_the_events_group_are_printed_like_core_events() {
        let event = event(json!({
            "regarding": {"kind": "Pod", "name": "p"}, "note": "n",
            "series": {"count": 7, "lastObservedTime": "2024-05-01T11:59:30.000000Z"},
        }));
        assert_eq!(
            cells(row().columns, event),
            json!({
                "Last Seen": "30s", "Object": "pod/p", "Subobject": "", "Source": "c, i",
                "Message": "n", "First Seen": "0s", "Count": 7,
            })
        );
    }
}
