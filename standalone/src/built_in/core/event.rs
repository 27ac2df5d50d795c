//! Events of the core group.

pub(crate) mod cells;
pub(crate) mod validation;

use aggregated_apiserver::{NameRule, Rules, SelectableFields, Strategy};
use k8s_openapi::api::core::v1::Event;

use crate::built_in::checks::Faults;
use crate::built_in::row::Row;
use crate::built_in::strategy::base;
use validation::{Told, check_new};

pub(crate) fn row() -> Row<Event> {
    Row {
        short_names: &["ev"],
        columns: cells::columns(cells::cell),
        rules: Rules::none().validate(|event, old, _| validate(event, old)),
        ..Row::new(strategy("involvedObject"))
    }
}

/// Events, by what they are called about.
pub(crate) fn strategy(about: &str) -> Strategy {
    let mut selectable = SelectableFields::default();
    for field in ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"]
    {
        selectable = selectable.or(&format!("{about}.{field}"), "");
    }
    selectable = selectable.or("reason", "").or("type", "");
    selectable = match about {
        "involvedObject" => selectable.or("reportingComponent", "").found_at(
            "source",
            &["source.component", "reportingComponent"],
            "",
        ),
        _ => selectable.or("reportingController", ""),
    };
    Strategy {
        names: NameRule::PathSegment,
        is_garbage_collected: false,
        has_generation: false,
        selectable,
        has_name_column: true,
        allows_create_on_update: true,
        ..base()
    }
}

fn validate(event: &Event, old: Option<&Event>) -> Faults {
    let mut faults = Vec::new();
    if old.is_none() {
        check_new(&Told::of(event), &mut faults);
    }
    faults
}
