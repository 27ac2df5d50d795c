//! Managers: the owners of the fields of an object, as recorded in `metadata.managedFields`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::field_set::FieldSet;
use super::fields::Fields;
use super::fields_v1::{self, write_json_text};
use crate::error::quote;

/// How a manager became the owner of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// A field manager. The identity of a manager with the operation `Apply` does not include the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// The name of the manager.
    pub name: String,
    /// How the manager became the owner of its fields.
    pub operation: Operation,
    /// The version that the manager wrote, such as `example.com/v1`.
    pub api_version: String,
    /// The subresource that the manager wrote; empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// Returns the identity of the manager as JSON. Messages list managers in the order of their identifiers.
    fn identifier(&self) -> String {
        let mut identifier = String::from("{");
        if !self.name.is_empty() {
            write_member(&mut identifier, "\"manager\":", &self.name);
            identifier.push(',');
        }
        identifier.extend(["\"operation\":\"", self.operation.name(), "\""]);
        if self.operation == Operation::Update {
            identifier += ",\"apiVersion\":";
            write_json_text(&mut identifier, &self.api_version);
        }
        if !self.subresource.is_empty() {
            identifier += ",\"subresource\":";
            write_json_text(&mut identifier, &self.subresource);
        }
        identifier + "}"
    }
}

/// Formats the manager as in conflict messages: `"kubectl" with subresource "status" using example.com/v1`.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.name))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", quote(&self.subresource))?;
        }
        match self.operation {
            Operation::Update => write!(f, " using {}", self.api_version),
            Operation::Apply => Ok(()),
        }
    }
}

/// A manager, the fields that it owns, and the time of its last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// The owner of the fields.
    pub manager: Manager,
    /// The owned fields.
    pub fields: Fields,
    /// The time of the last write, in the format of `managedFields`; `None` if the entry has no time.
    pub time: Option<String>,
}

/// All managers of an object, by identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers(BTreeMap<String, Managed>);

/// The largest number of managers of an object with the operation `Update`. If there are more, the entries with the
/// oldest times are merged.
const UPDATERS_LIMIT: usize = 10;
/// The name of a manager that replaces merged entries.
const ANCIENT: &str = "ancient-changes";

impl Managers {
    /// Parses stored `metadata.managedFields`: JSON, or no bytes if there are no managers. The `fieldsV1` of each entry
    /// stays unparsed text.
    ///
    /// # Errors
    /// A message, if the JSON or an entry is invalid.
    pub fn read(kept: &Bytes) -> Result<Self, String> {
        let mut managers = Self::default();
        if kept.is_empty() {
            return Ok(managers);
        }
        let entries: Vec<Entry<'_>> =
            serde_json::from_slice(kept).map_err(|error| error.to_string())?;
        for (index, entry) in entries.into_iter().enumerate() {
            let fields = entry.fields.map(|raw| kept.slice_ref(raw.get().as_bytes()));
            managers.insert(entry.read(index, fields.map(Fields::of_text).unwrap_or_default())?);
        }
        Ok(managers)
    }

    /// Collects managers. If two of them have the same identifier, the last one replaces the other.
    pub fn of(all: impl Iterator<Item = Managed>) -> Self {
        let mut managers = Self::default();
        all.for_each(|managed| managers.insert(managed));
        managers
    }

    /// Parses `metadata.managedFields` of a request, each entry as JSON. `kept` are the stored managers of the object:
    /// a `fieldsV1` that equals the stored text is not parsed again.
    ///
    /// # Errors
    /// A message, if an entry or its `fieldsV1` is invalid.
    pub fn sent<'a>(entries: impl Iterator<Item = &'a str>, kept: &Self) -> Result<Self, String> {
        let mut managers = Self::default();
        for (index, entry) in entries.enumerate() {
            let entry: Entry<'_> =
                serde_json::from_str(entry).map_err(|error| error.to_string())?;
            let text = entry.fields.map_or("{}", RawValue::get);
            let managed = entry.read(index, Fields::default())?;
            // In most requests the text equals the stored text that the client has read.
            let fields =
                match kept.find(&managed.manager).filter(|known| known.fields.is_text(text)) {
                    Some(known) => known.fields.clone(),
                    None => fields_v1::read(text)?.into(),
                };
            managers.insert(Managed { fields, ..managed });
        }
        Ok(managers)
    }

    /// Encodes the managers as JSON, in the order of [`in_order`](Self::in_order). Returns no bytes if there are no
    /// managers.
    pub fn write(&self) -> Bytes {
        if self.is_empty() {
            return Bytes::new();
        }
        let mut out = String::from("[");
        for (index, managed) in self.in_order().into_iter().enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            write_entry(managed, &mut out);
        }
        out.push(']');
        out.into()
    }

    /// Returns all managers in the order of `metadata.managedFields`: by operation, time, name, version and
    /// subresource.
    pub fn in_order(&self) -> Vec<&Managed> {
        let mut all: Vec<&Managed> = self.0.values().collect();
        all.sort_by_key(|managed| {
            let Manager { name, operation, api_version, subresource } = &managed.manager;
            let time = managed.time.as_deref().unwrap_or_default();
            (operation.name(), time, name, api_version, subresource)
        });
        all
    }

    /// Whether these managers equal the others in everything except times, and at least one time differs. Fields are
    /// compared as text, because a write does not change the text of fields that it does not touch.
    pub fn differ_in_time_only(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&&Managed, &&Managed)| {
            one.manager == other.manager && one.fields.is_same_text(&other.fields)
        };
        let (one, other) = (self.in_order(), other.in_order());
        one.len() == other.len()
            && one.iter().zip(&other).all(is_same)
            && one.iter().zip(&other).any(|(one, other)| one.time != other.time)
    }

    /// Whether `others` contain each of these managers, with the same text of its fields.
    pub fn are_of(&self, others: &Self) -> bool {
        self.iter().all(|managed| {
            let other = others.find(&managed.manager);
            other.is_some_and(|other| other.fields.is_same_text(&managed.fields))
        })
    }

    /// Returns an empty collection.
    pub const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// The total size of the fields of all managers, in bytes of `fieldsV1`.
    pub fn size(&self) -> usize {
        self.0.values().map(|managed| managed.fields.size()).sum()
    }

    /// Whether there are no managers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all managers in the order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = &Managed> {
        self.0.values()
    }

    /// Returns the entry with the identifier of this manager.
    pub fn get(&self, manager: &Manager) -> Option<&Managed> {
        self.0.get(&manager.identifier())
    }

    /// Returns the entry with the identifier of this manager, if the entry has the same version too.
    fn find(&self, manager: &Manager) -> Option<&Managed> {
        self.get(manager).filter(|managed| managed.manager == *manager)
    }

    /// Removes the entry with the identifier of this manager and returns it.
    pub fn take(&mut self, manager: &Manager) -> Option<Managed> {
        self.0.remove(&manager.identifier())
    }

    /// Inserts an entry, or replaces the entry with the same identifier. An entry without fields is not stored, and
    /// removes the existing one.
    pub fn insert(&mut self, managed: Managed) {
        let identifier = managed.manager.identifier();
        if managed.fields.is_empty() {
            self.0.remove(&identifier);
        } else {
            self.0.insert(identifier, managed);
        }
    }

    /// Inserts an entry under the identifier of another manager, `place`. An entry without fields is ignored.
    pub fn insert_as(&mut self, place: &Manager, managed: Managed) {
        if !managed.fields.is_empty() {
            self.0.insert(place.identifier(), managed);
        }
    }

    /// Replaces the fields of each manager by the result of `change`. Managers for which the result is empty or `None`
    /// are removed.
    pub fn retain(&mut self, mut change: impl FnMut(&Manager, Fields) -> Option<Fields>) {
        self.0.retain(|_, managed| {
            let fields = change(&managed.manager, std::mem::take(&mut managed.fields));
            managed.fields = fields.unwrap_or_default();
            !managed.fields.is_empty()
        });
    }

    /// Merges the entries with the oldest times if more than `UPDATERS_LIMIT` managers have the operation `Update`.
    pub fn cap(&mut self) {
        let is_updater = |managed: &Managed| managed.manager.operation == Operation::Update;
        let mut updaters: Vec<(String, String)> = self
            .0
            .iter()
            .filter(|(_, managed)| is_updater(managed))
            .map(|(id, managed)| (managed.time.clone().unwrap_or_default(), id.clone()))
            .collect();
        let mut count = updaters.len();
        if count <= UPDATERS_LIMIT {
            return;
        }
        updaters.sort();
        let mut first_of: BTreeMap<String, String> = BTreeMap::new();
        let mut merged: BTreeMap<String, Vec<FieldSet>> = BTreeMap::new();
        for (_, identifier) in updaters {
            if count <= UPDATERS_LIMIT {
                break;
            }
            let Some(managed) = self.0.get(&identifier) else { continue };
            let version = managed.manager.api_version.clone();
            let Some(first) = first_of.get(&version).cloned() else {
                first_of.insert(version, identifier);
                continue;
            };
            let bucket = Manager {
                name: ANCIENT.to_owned(),
                operation: Operation::Update,
                api_version: version,
                subresource: String::new(),
            };
            let id = bucket.identifier();
            if id == identifier {
                // kube-apiserver merges this entry with itself and then removes it. The result here is the same.
                self.0.remove(&id);
                count -= 1;
                continue;
            }
            if !self.0.contains_key(&id)
                && let Some(first) = self.0.remove(&first)
            {
                self.0.insert(id.clone(), Managed { manager: bucket, ..first });
            }
            if let Some(gone) = self.0.remove(&identifier)
                && let Some(ancient) = self.0.get_mut(&id)
            {
                ancient.time = gone.time;
                merged.entry(id).or_default().push(gone.fields.set());
                count -= 1;
            }
        }
        for (id, sets) in merged {
            if let Some(ancient) = self.0.get_mut(&id) {
                let before = std::iter::once(ancient.fields.set());
                ancient.fields = FieldSet::union_of(before.chain(sets)).into();
            }
        }
    }
}

/// An entry of `metadata.managedFields` in JSON, with fields in the order of their names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow, default)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    fields_type: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
    #[serde(borrow, default)]
    manager: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    subresource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
}

impl Entry<'_> {
    fn read(self, index: usize, fields: Fields) -> Result<Managed, String> {
        let text = |given: Option<Cow<'_, str>>| given.unwrap_or_default().into_owned();
        let operation = match text(self.operation).as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            other => return Err(format!("operation must be `Apply` or `Update`, not {other}")),
        };
        let api_version = text(self.api_version);
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text(self.fields_type).as_str() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => {
                let other = quote(other);
                return Err(format!("invalid fieldsType {other} in managed fields entry {index}"));
            }
        }
        let (name, subresource) = (text(self.manager), text(self.subresource));
        let manager = Manager { name, operation, api_version, subresource };
        Ok(Managed { manager, fields, time: self.time.map(Cow::into_owned) })
    }
}

fn write_entry(managed: &Managed, out: &mut String) {
    let Managed { manager: Manager { name, operation, api_version, subresource }, fields, time } =
        managed;
    write_member(out, "{\"apiVersion\":", api_version);
    write_member(out, ",\"fieldsType\":", "FieldsV1");
    out.push_str(",\"fieldsV1\":");
    fields.write(out);
    if !name.is_empty() {
        write_member(out, ",\"manager\":", name);
    }
    write_member(out, ",\"operation\":", operation.name());
    if !subresource.is_empty() {
        write_member(out, ",\"subresource\":", subresource);
    }
    if let Some(time) = time {
        write_member(out, ",\"time\":", time);
    }
    out.push('}');
}

/// Appends a field of a JSON object. `name` includes the punctuation before and after the name; `text` is the value.
fn write_member(out: &mut String, name: &str, text: &str) {
    out.push_str(name);
    write_json_text(out, text);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::field_set::tests::set;
    use super::*;

    fn sent(entries: &[Value], kept: &Managers) -> Result<Managers, String> {
        let texts: Vec<String> = entries.iter().map(Value::to_string).collect();
        Managers::sent(texts.iter().map(String::as_str), kept)
    }

    fn updater(name: &str, time: &str) -> Managed {
        let manager = Manager {
            name: name.to_owned(),
            operation: Operation::Update,
            api_version: "example.com/v1".to_owned(),
            subresource: String::new(),
        };
        Managed { manager, fields: set(&[name]).into(), time: Some(time.to_owned()) }
    }

    #[test]
    fn more_than_ten_update_managers_merge_into_ancient_changes() {
        let mut managers = Managers::default();
        for number in 0..12 {
            managers.insert(updater(
                &format!("m{number:02}"),
                &format!("2026-01-01T00:00:{number:02}Z"),
            ));
        }
        managers.cap();
        let names: Vec<&str> = managers.iter().map(|one| one.manager.name.as_str()).collect();
        let expected =
            ["ancient-changes", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11"];
        assert_eq!(names, expected);
        let ancient = managers.iter().next().unwrap();
        assert_eq!(ancient.fields.set(), set(&["m00", "m01", "m02"]));
        assert_eq!(ancient.time.as_deref(), Some("2026-01-01T00:00:02Z"));
        // Ten entries do not exceed the limit.
        let before = managers.clone();
        managers.cap();
        assert_eq!(managers, before);
    }

    #[test]
    fn managed_fields_entries_survive_encoding_and_decoding() {
        let mut managers = Managers::default();
        let applier = |subresource: &str| Manager {
            name: "a".to_owned(),
            operation: Operation::Apply,
            api_version: "example.com/v1".to_owned(),
            subresource: subresource.to_owned(),
        };
        managers.insert(updater("u", "2026-01-01T00:00:00Z"));
        managers.insert(Managed { manager: applier(""), fields: set(&["x"]).into(), time: None });
        managers.insert(Managed {
            manager: applier("status"),
            fields: set(&["y"]).into(),
            time: None,
        });
        managers.insert(Managed {
            manager: applier("scale"),
            fields: Fields::default(),
            time: None,
        });
        let written = managers.write();
        let entries: Vec<Value> = serde_json::from_slice(&written).unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[2]["manager"], "u");
        // The fields of an entry are in the order of their names, as in every encoded object.
        assert_eq!(Value::from(entries.clone()).to_string(), String::from_utf8_lossy(&written));
        let kept = Managers::read(&written).unwrap();
        assert_eq!(kept, managers);
        // Entries of a request reuse the stored text if it is equal, and are parsed otherwise.
        assert_eq!(sent(&entries, &kept).unwrap(), managers);
        assert_eq!(sent(&entries, &Managers::default()).unwrap(), managers);
        let mut other = entries.clone();
        other.iter_mut().for_each(|entry| entry["apiVersion"] = json!("example.com/v2"));
        assert!(!sent(&other, &kept).unwrap().are_of(&kept), "of another version");
        assert!(sent(&entries, &kept).unwrap().are_of(&kept));
        assert!(Managers::read(&Bytes::new()).unwrap().is_empty());
        assert!(Managers::default().write().is_empty());
        let again = Managed { manager: applier(""), fields: set(&["z"]).into(), time: None };
        let again = Manager { api_version: "example.com/v2".to_owned(), ..again.manager };
        assert!(managers.get(&again).is_some(), "an applier is the same in all versions");
        assert_eq!(again.to_string(), "\"a\"");
        let status = applier("status").to_string();
        assert_eq!(status, "\"a\" with subresource \"status\"");
    }

    #[test]
    fn invalid_managed_fields_entries_are_rejected() {
        let mut managers = Managers::default();
        managers.insert(updater("u", "2026-01-01T00:00:00Z"));
        let good: Vec<Value> = serde_json::from_slice(&managers.write()).unwrap();
        for (field, value) in [
            ("operation", json!("Foo")),
            ("operation", json!("")),
            ("apiVersion", json!("")),
            ("fieldsType", json!("")),
            ("fieldsType", json!("FieldsV2")),
            ("fieldsV1", json!({"x": {}})),
        ] {
            let mut bad = good[0].clone();
            bad[field] = value;
            let entries = [good[0].clone(), bad];
            assert!(sent(&entries, &Managers::default()).is_err(), "{field}");
            // The `fieldsV1` of stored entries is not parsed until a write needs it.
            let kept = Managers::read(&Value::from(entries.to_vec()).to_string().into());
            assert_eq!(kept.is_err(), field != "fieldsV1", "{field}");
        }
        assert!(sent(&good, &Managers::default()).is_ok());
    }

    #[test]
    fn managers_may_differ_in_time_only() {
        let at = |name: &str, time: &str| {
            let mut managers = Managers::default();
            managers.insert(updater(name, time));
            managers
        };
        let one = at("a", "2026-01-01T00:00:00Z");
        assert!(one.differ_in_time_only(&at("a", "2026-01-01T00:00:01Z")));
        assert!(!one.differ_in_time_only(&one));
        assert!(!one.differ_in_time_only(&at("b", "2026-01-01T00:00:01Z")));
        assert!(!one.differ_in_time_only(&Managers::default()));
    }
}
