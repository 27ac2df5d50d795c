//! Managers: who owns which fields of an object, as `metadata.managedFields` says it.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::field_set::FieldSet;
use super::fields_v1;
use crate::error::quote;

/// How a manager came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It has applied them.
    Apply,
    /// It has changed them in another way.
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

/// Who owns fields. Somebody who applies is the same in all versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// What it is called.
    pub name: String,
    /// How it came to own them.
    pub operation: Operation,
    /// The version in which it did, as `example.com/v1`.
    pub api_version: String,
    /// The subresource by which it did; empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// What tells managers apart, and orders them in messages.
    fn identifier(&self) -> String {
        let mut identifier = format!(
            "{{\"manager\":{},\"operation\":\"{}\"",
            Value::from(self.name.as_str()),
            self.operation.name()
        );
        if self.operation == Operation::Update {
            identifier += &format!(",\"apiVersion\":{}", Value::from(self.api_version.as_str()));
        }
        if !self.subresource.is_empty() {
            identifier += &format!(",\"subresource\":{}", Value::from(self.subresource.as_str()));
        }
        identifier + "}"
    }
}

/// As conflicts name it: `"kubectl" with subresource "status" using example.com/v1`.
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

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Who owns it.
    pub manager: Manager,
    /// The fields.
    pub set: FieldSet,
    /// When it wrote last, as it is written down; nothing if nobody has said so.
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers(BTreeMap<String, Managed>);

/// At most this many managers have updated an object; those that have not for longest become
/// one.
const UPDATERS_LIMIT: usize = 10;
/// What they are called then.
const ANCIENT: &str = "ancient-changes";

impl Managers {
    /// Reads `metadata.managedFields`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(written: &[Value]) -> Result<Self, String> {
        let mut managers = Self::default();
        for (index, entry) in written.iter().enumerate() {
            let entry = entry.as_object().ok_or("an entry is no object")?;
            managers.insert(read_entry(index, entry)?);
        }
        Ok(managers)
    }

    /// Writes them down, in their order.
    pub fn write(&self) -> Vec<Value> {
        let mut all: Vec<&Managed> = self.0.values().collect();
        all.sort_by_key(|managed| {
            let Manager { name, operation, api_version, subresource } = &managed.manager;
            let time = managed.time.as_deref().unwrap_or_default();
            (operation.name(), time, name, api_version, subresource)
        });
        all.into_iter().map(write_entry).collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = &Managed> {
        self.0.values()
    }

    /// What this manager owns.
    pub fn get(&self, manager: &Manager) -> Option<&Managed> {
        self.0.get(&manager.identifier())
    }

    /// Takes this manager out.
    pub fn take(&mut self, manager: &Manager) -> Option<Managed> {
        self.0.remove(&manager.identifier())
    }

    /// Puts a manager in the place of the one of the same identifier; one that owns nothing is
    /// left out.
    pub fn insert(&mut self, managed: Managed) {
        let identifier = managed.manager.identifier();
        if managed.set.is_empty() {
            self.0.remove(&identifier);
        } else {
            self.0.insert(identifier, managed);
        }
    }

    /// Puts what somebody owns in the place of another manager.
    pub fn insert_as(&mut self, place: &Manager, managed: Managed) {
        if !managed.set.is_empty() {
            self.0.insert(place.identifier(), managed);
        }
    }

    /// Changes what each owns; who owns nothing then is left out, and so is one of whom there is
    /// `None`.
    pub fn retain(&mut self, mut change: impl FnMut(&Manager, FieldSet) -> Option<FieldSet>) {
        self.0.retain(|_, managed| {
            let set = change(&managed.manager, std::mem::take(&mut managed.set));
            managed.set = set.unwrap_or_default();
            !managed.set.is_empty()
        });
    }

    /// Makes one of those that have not updated the object for longest, if there are too many.
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
                continue;
            }
            if !self.0.contains_key(&id)
                && let Some(first) = self.0.remove(&first)
            {
                self.0.insert(id.clone(), Managed { manager: bucket, ..first });
            }
            if let Some(merged) = self.0.remove(&identifier)
                && let Some(ancient) = self.0.get_mut(&id)
            {
                ancient.set = std::mem::take(&mut ancient.set).union(merged.set);
                ancient.time = merged.time;
                count -= 1;
            }
        }
    }
}

fn read_entry(index: usize, entry: &Map<String, Value>) -> Result<Managed, String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        other => return Err(format!("operation must be `Apply` or `Update`, not {other}")),
    };
    let api_version = text("apiVersion").to_owned();
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
        other => {
            let other = quote(other);
            return Err(format!("invalid fieldsType {other} in managed fields entry {index}"));
        }
    }
    let set = match entry.get("fieldsV1") {
        Some(written) if !written.is_null() => fields_v1::read(written)?,
        _ => FieldSet::default(),
    };
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    let name = text("manager").to_owned();
    let manager =
        Manager { name, operation, api_version, subresource: text("subresource").to_owned() };
    Ok(Managed { manager, set, time })
}

fn write_entry(managed: &Managed) -> Value {
    let Managed { manager, set, time } = managed;
    let mut entry = json!({
        "manager": manager.name,
        "operation": manager.operation.name(),
        "apiVersion": manager.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields_v1::write(set),
    });
    if let Some(time) = time {
        entry["time"] = time.as_str().into();
    }
    if !manager.subresource.is_empty() {
        entry["subresource"] = manager.subresource.as_str().into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::super::field_set::tests::set;
    use super::*;

    fn updater(name: &str, time: &str) -> Managed {
        let manager = Manager {
            name: name.to_owned(),
            operation: Operation::Update,
            api_version: "example.com/v1".to_owned(),
            subresource: String::new(),
        };
        Managed { manager, set: set(&[name]), time: Some(time.to_owned()) }
    }

    #[test]
    fn the_oldest_updaters_become_one() {
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
        assert_eq!(ancient.set, set(&["m00", "m01", "m02"]));
        assert_eq!(ancient.time.as_deref(), Some("2026-01-01T00:00:02Z"));
        // Ten are not too many.
        let before = managers.clone();
        managers.cap();
        assert_eq!(managers, before);
    }

    #[test]
    fn entries_are_read_as_they_are_written() {
        let mut managers = Managers::default();
        let applier = |subresource: &str| Manager {
            name: "a".to_owned(),
            operation: Operation::Apply,
            api_version: "example.com/v1".to_owned(),
            subresource: subresource.to_owned(),
        };
        managers.insert(updater("u", "2026-01-01T00:00:00Z"));
        managers.insert(Managed { manager: applier(""), set: set(&["x"]), time: None });
        managers.insert(Managed { manager: applier("status"), set: set(&["y"]), time: None });
        managers.insert(Managed {
            manager: applier("scale"),
            set: FieldSet::default(),
            time: None,
        });
        let written = managers.write();
        assert_eq!(written.len(), 3);
        assert_eq!(written[2]["manager"], "u");
        assert_eq!(Managers::read(&written).unwrap(), managers);
        let again = Managed { manager: applier(""), set: set(&["z"]), time: None };
        let again = Manager { api_version: "example.com/v2".to_owned(), ..again.manager };
        assert!(managers.get(&again).is_some(), "an applier is the same in all versions");
        assert_eq!(again.to_string(), "\"a\"");
        let status = applier("status").to_string();
        assert_eq!(status, "\"a\" with subresource \"status\"");
    }

    #[test]
    fn what_is_no_list_of_managers_is_refused() {
        let good = write_entry(&updater("u", "2026-01-01T00:00:00Z"));
        for (field, value) in [
            ("operation", json!("Foo")),
            ("operation", json!("")),
            ("apiVersion", json!("")),
            ("fieldsType", json!("")),
            ("fieldsType", json!("FieldsV2")),
            ("fieldsV1", json!({"x": {}})),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(Managers::read(&[good.clone(), bad]).is_err(), "{field}");
        }
        assert!(Managers::read(&[good]).is_ok());
    }
}
