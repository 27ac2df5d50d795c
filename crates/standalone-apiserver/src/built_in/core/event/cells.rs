//! The columns of events, which are the same for both groups.

use aggregated_apiserver::strategy::age;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use serde_json::Value;

use crate::built_in::cell_texts::UNKNOWN;
use crate::built_in::row::Column;

/// The columns; `cell` computes a cell by the heading of its column.
pub(crate) fn columns<K: 'static>(cell: fn(&str, &K, Timestamp) -> Value) -> Vec<Column<K>> {
    let computed =
        |heading| Column::computed(heading, move |event: &K, now| cell(heading, event, now));
    vec![
        computed("Last Seen"),
        Column::path("Type", ".type"),
        Column::path("Reason", ".reason"),
        computed("Object"),
        computed("Subobject").wide(),
        computed("Source").wide(),
        computed("Message"),
        computed("First Seen").wide(),
        computed("Count").wide(),
        Column::path("Name", ".metadata.name").wide(),
    ]
}

/// The cell of an event of the core group, by the heading of its column.
pub(crate) fn cell(column: &str, event: &Event, now: Timestamp) -> Value {
    let since = |time: Option<Timestamp>| match time {
        Some(time) => Value::String(age(time, now)),
        None => UNKNOWN.into(),
    };
    let Shown { first, last, about, source, message, count } = shown(event);
    match column {
        "Last Seen" => since(last),
        "First Seen" => since(first),
        "Subobject" => about.field_path.unwrap_or_default().into(),
        "Source" => source.into(),
        "Message" => message.into(),
        "Count" => count.into(),
        _ => {
            let kind = about.kind.unwrap_or_default().to_lowercase();
            match about.name.filter(|name| !name.is_empty()) {
                Some(name) => format!("{kind}/{name}").into(),
                None => kind.into(),
            }
        }
    }
}

/// The values in the cells of an event.
struct Shown {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    about: ObjectReference,
    source: String,
    message: String,
    count: i32,
}

fn shown(event: &Event) -> Shown {
    let event_time = event.event_time.as_ref().map(|time| time.0);
    let first = event.first_timestamp.as_ref().map(|time| time.0).or(event_time);
    let last = event.last_timestamp.as_ref().map(|time| time.0).or(first);
    let series = event.series.as_ref();
    let component = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    let (source, host) = match &event.source {
        Some(source) => (component(source.component.as_ref()), component(source.host.as_ref())),
        None => (None, None),
    };
    let source = source.or_else(|| component(event.reporting_component.as_ref()));
    let host = host.or_else(|| component(event.reporting_instance.as_ref()));
    let both = [source, host].into_iter().flatten();
    Shown {
        first,
        last: match series {
            Some(series) => series.last_observed_time.as_ref().map(|time| time.0),
            None => last,
        },
        about: event.involved_object.clone(),
        source: both.collect::<Vec<_>>().join(", "),
        message: event.message.as_deref().unwrap_or_default().trim().to_owned(),
        count: match series {
            Some(series) => series.count.unwrap_or_default(),
            None => event.count.filter(|count| *count != 0).unwrap_or(1),
        },
    }
}
