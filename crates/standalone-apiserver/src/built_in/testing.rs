//! Helpers for the unit tests of built-in kinds, which run the functions of a kind on JSON.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::checks::FieldErrors;
use super::row::Column;

/// The time at which objects are defaulted and tables are rendered.
pub(crate) fn now() -> Timestamp {
    "2024-05-01T12:00:00Z".parse().unwrap()
}

/// Parses an object of a type.
pub(crate) fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The result of defaulting an object.
pub(crate) fn prepared<K>(prepare: impl FnOnce(&mut K), before: Value) -> Value
where
    K: Serialize + DeserializeOwned,
{
    let mut object = object(before);
    prepare(&mut object);
    serde_json::to_value(object).unwrap()
}

/// The errors of a create.
pub(crate) fn faults_of_new<K: DeserializeOwned>(
    validate: impl FnOnce(&K, Option<&K>) -> FieldErrors,
    new: Value,
) -> Vec<String> {
    texts(&validate(&object(new), None))
}

/// The errors of an update of an old object.
pub(crate) fn faults_of_update<K: DeserializeOwned>(
    validate: impl FnOnce(&K, Option<&K>) -> FieldErrors,
    old: Value,
    new: Value,
) -> Vec<String> {
    texts(&validate(&object(new), Some(&object(old))))
}

/// The messages of errors.
pub(crate) fn texts(faults: &FieldErrors) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// The computed cells of an object, by heading.
pub(crate) fn cells<K: DeserializeOwned + 'static>(columns: Vec<Column<K>>, shown: Value) -> Value {
    let shown = object(shown);
    let cells = columns.iter().filter_map(|column| column.compute(&shown, now()));
    let cells = cells.map(|(heading, cell)| (heading.to_owned(), cell));
    Value::Object(cells.collect::<Map<String, Value>>())
}
