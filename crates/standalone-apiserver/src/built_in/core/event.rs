//! Events of the core group.

pub(crate) mod cells;
pub(crate) mod validation;

use aggregated_apiserver::strategy::{NameRule, QuotaUsage};
use aggregated_apiserver::{SelectableFields, Strategy, Validation};
use k8s_openapi::api::core::v1::Event;

use crate::built_in::checks::FieldErrors;
use crate::built_in::row::Row;
use crate::built_in::strategy::common;
use validation::NewEvent;

pub(crate) fn row() -> Row<Event> {
    Row {
        short_names: &["ev"],
        columns: cells::columns(cells::cell),
        rules: Validation::new().validate(|event, old, _| validate(event, old)),
        ..Row::new(strategy("involvedObject"))
    }
}

/// The strategy of events. `about` is the field with the object of an event.
pub(crate) fn strategy(about: &str) -> Strategy {
    let mut selectable = SelectableFields::default();
    for field in ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"]
    {
        selectable = selectable.with_field(&format!("{about}.{field}"), "");
    }
    selectable = selectable.with_field("reason", "").with_field("type", "");
    selectable = match about {
        "involvedObject" => selectable.with_field("reportingComponent", "").with_field_at(
            "source",
            &["source.component", "reportingComponent"],
            "",
        ),
        _ => selectable.with_field("reportingController", ""),
    };
    Strategy {
        names: NameRule::PathSegment,
        is_garbage_collected: false,
        has_generation: false,
        selectable,
        has_name_column: true,
        allows_create_on_update: true,
        quota_usage: QuotaUsage::Exempt,
        ..common()
    }
}

fn validate(event: &Event, old: Option<&Event>) -> FieldErrors {
    let mut faults = Vec::new();
    if old.is_none() {
        validation::check(&new_event(event), &mut faults);
    }
    faults
}

fn new_event(event: &Event) -> NewEvent {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NewEvent {
        namespace: text(&event.metadata.namespace),
        namespace_of_object: text(&event.involved_object.namespace),
        has_event_time: event.event_time.is_some(),
        controller: ("reportingComponent", text(&event.reporting_component)),
        texts: [
            ("reportingInstance", text(&event.reporting_instance)),
            ("action", text(&event.action)),
            ("reason", text(&event.reason)),
        ],
        message: ("message", text(&event.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    #[test]
    fn event_namespace_must_match_the_involved_object() {
        let fault = |about: &str| {
            let why = "does not match event.namespace";
            vec![format!("involvedObject.namespace: Invalid value: {about:?}: {why}")]
        };
        for (own, about, expected) in [
            ("a", "a", vec![]),
            ("a", "b", fault("b")),
            ("default", "", vec![]),
            ("a", "", fault("")),
        ] {
            let event = json!({
                "metadata": {"namespace": own}, "involvedObject": {"namespace": about},
            });
            assert_eq!(faults_of_new(validate, event), expected, "{own} {about}");
        }
    }

    #[test]
    fn an_event_with_an_event_time_is_validated_strictly_on_create() {
        let event = |more: Value| {
            let mut event = json!({
                "metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"},
                "eventTime": "2024-05-01T12:00:00.000000Z", "reportingComponent": "c",
                "reportingInstance": "i", "action": "a", "reason": "r",
            });
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event
        };
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"reason": null, "action": ""}),
                vec!["action: Required value", "reason: Required value"],
            ),
            (
                json!({"message": "m".repeat(1_025), "reason": "r".repeat(129)}),
                vec![
                    "reason: Invalid value: \"\": can have at most 128 characters",
                    "message: Invalid value: \"\": can have at most 1024 characters",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, event(more)), expected);
        }
        let old = event(json!({}));
        let new = event(json!({"reason": null}));
        assert_eq!(faults_of_update(validate, old, new), [] as [&str; 0]);
    }

    #[test]
    fn event_printer_columns_are_filled() {
        let event = json!({
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
            "source": {"component": "kubelet", "host": "h"}, "message": " m\n", "count": 3,
            "firstTimestamp": "2024-05-01T11:00:00Z", "lastTimestamp": "2024-05-01T11:59:00Z",
        });
        let columns = || cells::columns(cells::cell);
        assert_eq!(
            cells(columns(), event),
            json!({
                "Last Seen": "60s", "Object": "pod/p", "Subobject": "spec",
                "Source": "kubelet, h", "Message": "m", "First Seen": "60m", "Count": 3,
            })
        );
        let series = json!({
            "involvedObject": {"kind": "Node"}, "eventTime": "2024-05-01T11:58:00.000000Z",
            "reportingComponent": "c",
            "series": {"count": 7, "lastObservedTime": "2024-05-01T11:59:30.000000Z"},
        });
        assert_eq!(
            cells(columns(), series),
            json!({
                "Last Seen": "30s", "Object": "node", "Subobject": "", "Source": "c",
                "Message": "", "First Seen": "2m", "Count": 7,
            })
        );
        let nothing = cells(columns(), json!({}));
        assert_eq!((&nothing["Last Seen"], &nothing["Count"]), (&json!("<unknown>"), &json!(1)));
    }
}
