//! Runs what a kind's file says on JSON, for the unit tests of that file.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::checks::FieldErrors;
use super::row::Column;

/// The time at which objects are prepared, and tables shown.
pub(crate) fn now() -> Timestamp {
    "2024-05-01T12:00:00Z".parse().unwrap()
}

/// An object of a type.
pub(crate) fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// What defaulting makes of an object.
pub(crate) fn prepared<K>(prepare: impl FnOnce(&mut K), before: Value) -> Value
where
    K: Serialize + DeserializeOwned,
{
    let mut object = object(before);
    prepare(&mut object);
    serde_json::to_value(object).unwrap()
}

/// The faults of an object that is created.
pub(crate) fn faults_of_new<K: DeserializeOwned>(
    validate: impl FnOnce(&K, Option<&K>) -> FieldErrors,
    new: Value,
) -> Vec<String> {
    texts(&validate(&object(new), None))
}

/// The faults of an object that takes the place of an old one.
pub(crate) fn faults_of_update<K: DeserializeOwned>(
    validate: impl FnOnce(&K, Option<&K>) -> FieldErrors,
    old: Value,
    new: Value,
) -> Vec<String> {
    texts(&validate(&object(new), Some(&object(old))))
}

/// The texts of faults.
pub(crate) fn texts(faults: &FieldErrors) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// The cells of an object that code computes, by their headings.
pub(crate) fn cells<K: DeserializeOwned + 'static>(columns: Vec<Column<K>>, shown: Value) -> Value {
    let shown = object(shown);
    let cells = columns.iter().filter_map(|column| column.compute(&shown, now()));
    let cells = cells.map(|(heading, cell)| (heading.to_owned(), cell));
    Value::Object(cells.collect::<Map<String, Value>>())
}
