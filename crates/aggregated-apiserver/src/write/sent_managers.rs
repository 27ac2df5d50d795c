//! What a client says of the managers of an object.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::live::Live;
use crate::apply::{Fields, Managed, Manager, Managers, Operation};
use crate::codec::ManagedFieldsText;
use crate::object::Tree;

/// What a client says of the managers of an object: `metadata.managedFields`. It is not read before there
/// is room for what becomes of it, and nearly never, because it is what the client was shown.
#[derive(Clone, Debug, Default)]
pub struct SentManagers {
    said: Said,
    is_reset: bool,
}

/// What was set apart when an object was parsed: all of it, as JSON, and read.
#[derive(Clone, Debug)]
pub struct SentText {
    /// `metadata.managedFields`.
    pub text: Bytes,
    /// What it says; each manager's fields are as they stand in the text.
    pub managers: Managers,
}

#[derive(Clone, Debug)]
enum Said {
    Text(Arc<SentText>),
    /// Each entry, as JSON.
    Entries(Vec<String>),
}

impl Default for Said {
    fn default() -> Self {
        Self::Entries(Vec::new())
    }
}

impl SentText {
    /// What was set apart, with managers made of it.
    pub fn of(said: ManagedFieldsText) -> Self {
        let ManagedFieldsText { text, entries } = said;
        let managers = entries.into_iter().map(|entry| Managed {
            manager: Manager {
                name: entry.manager,
                operation: if entry.is_applied { Operation::Apply } else { Operation::Update },
                api_version: entry.api_version,
                subresource: entry.subresource,
            },
            fields: Fields::of_text(text.slice(entry.fields)),
            time: Some(entry.time),
        });
        let managers = Managers::of(managers);
        Self { managers, text }
    }
}

impl SentManagers {
    /// Takes it out of an object.
    pub(super) fn of(tree: Tree) -> (Tree, Self) {
        let (tree, entries) = without_managed_fields(tree);
        let is_reset = is_reset(&entries);
        let said = Said::Entries(entries.iter().map(Value::to_string).collect());
        (tree, Self { said, is_reset })
    }

    /// What was set apart when the object was parsed: entries that say something.
    pub(super) fn of_text(text: SentText) -> Self {
        Self { said: Said::Text(Arc::new(text)), is_reset: false }
    }

    /// The wish that nobody owns anything.
    pub(super) fn reset() -> Self {
        Self { is_reset: true, ..Self::default() }
    }

    /// Whether anybody is said to own something.
    pub(super) fn is_said(&self) -> bool {
        !self.is_reset && self.size() > 0
    }

    /// Whether a client wishes that nobody owns anything.
    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        match &self.said {
            Said::Text(said) => said.text.len(),
            Said::Entries(entries) => entries.iter().map(String::len).sum(),
        }
    }

    /// The managers of an object, if it is what that says to the letter: nothing has to be read then.
    pub(super) fn if_of(&self, live: &Live) -> Option<&Managers> {
        match &self.said {
            Said::Text(said) if live.says_of_managers(&said.text) => Some(&said.managers),
            _ => None,
        }
    }

    /// Reads it, where these are kept; `None` if nothing is said.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&self, kept: &Managers) -> Result<Option<Managers>, String> {
        match &self.said {
            Said::Entries(entries) if entries.is_empty() => Ok(None),
            Said::Entries(entries) => {
                Managers::sent(entries.iter().map(String::as_str), kept).map(Some)
            }
            Said::Text(said) => {
                let entries: Vec<&RawValue> =
                    serde_json::from_slice(&said.text).map_err(|error| error.to_string())?;
                Managers::sent(entries.into_iter().map(RawValue::get), kept).map(Some)
            }
        }
    }
}

/// Whether an object says that it has no managers: Go tells an empty list from none, and JSON
/// after it does not.
pub(super) fn is_emptied(tree: &Tree) -> bool {
    let said = tree.get("metadata").and_then(|metadata| metadata["managedFields"].as_array());
    said.is_some_and(Vec::is_empty)
}

/// An object without what it says of its managers, and that.
pub(super) fn without_managed_fields(mut tree: Tree) -> (Tree, Vec<Value>) {
    let Some(Value::Object(metadata)) = tree.get_mut("metadata") else { return (tree, Vec::new()) };
    let said = match metadata.remove("managedFields") {
        Some(Value::Array(said)) => said,
        _ => Vec::new(),
    };
    (tree, said)
}

fn is_reset(entries: &[Value]) -> bool {
    matches!(entries, [Value::Object(one)] if one.values().all(is_nothing))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::quota::Account;

    fn parsed(managed_fields: &str) -> (Value, Option<SentText>) {
        let object = format!(r#"{{"metadata":{{"managedFields":{managed_fields}}}}}"#);
        let parsed = codec::object_from_json(object.as_bytes(), &Account::own()).unwrap();
        (parsed.value, parsed.managed_fields.map(SentText::of))
    }

    fn text(managed_fields: &str) -> Option<String> {
        let said = parsed(managed_fields).1;
        said.map(|said| String::from_utf8_lossy(&said.text).into_owned())
    }

    /// As a tree, and as text if it is set apart.
    fn sent(managed_fields: &str) -> (SentManagers, Option<SentManagers>) {
        let object = format!(r#"{{"metadata":{{"managedFields":{managed_fields}}}}}"#);
        let tree = codec::from_json(object.as_bytes(), &Account::own()).unwrap().value;
        let Value::Object(tree) = tree else { panic!("no object") };
        (SentManagers::of(tree).1, parsed(managed_fields).1.map(SentManagers::of_text))
    }

    fn entry(fields: &str, rest: &str) -> String {
        format!(
            r#"[{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields},"manager":"a b","operation":"Update","time":"2026-01-31T00:00:00Z"{rest}}}]"#
        )
    }

    #[test]
    fn it_is_the_same_whether_it_is_text_or_a_tree() {
        let nobody = Managers::default();
        for managed_fields in [
            entry(r#"{"f:a":{".":{},"k:{\"x\":1}":{}}}"#, ""),
            entry("{}", r#","subresource":"status""#),
            entry(r#"{ "f:b" : {}, "f:a":{} }"#, r#","subresource":"""#),
            entry("{}", "").replace(",\"", "\n, \"").replace("\":", "\" : "),
            format!("[ {0} , {0} ]", entry("{}", "").trim_matches(['[', ']'])),
            r#"[{"fieldsV1":{"f:[":{}},"apiVersion":"[v1]","fieldsType":"FieldsV1","manager":"]a[","operation":"Apply","subresource":"","time":"2026-01-31T00:00:00Z"}]"#.to_owned(),
            entry(r#"{"no":1}"#, ""),
        ] {
            let (tree, text) = sent(&managed_fields);
            let text = text.unwrap();
            assert_eq!(text.read(&nobody), tree.read(&nobody), "{managed_fields}");
            assert!(text.is_said() && !text.is_reset());
            let kept = Managers::read(&Bytes::from(managed_fields.clone())).unwrap();
            assert_eq!(parsed(&managed_fields).1.unwrap().managers, kept);
            assert_eq!(parsed(&managed_fields).0["metadata"]["managedFields"], Value::Null);
        }
    }

    #[test]
    fn what_needs_a_second_look_becomes_a_tree() {
        let plain = entry("{}", "");
        assert!(sent(&plain).1.is_some());
        for managed_fields in [
            entry("null", ""),
            entry(r#""{}""#, ""),
            entry("[1,[2]]", ""),
            entry("{}", r#","subresource":null"#),
            entry("{}", r#","subresource":1"#),
            entry("{}", r#","more":"x""#),
            entry("{}", r#","manager":"again""#),
            plain.replace("Update", ""),
            plain.replace("-31T", "-32T"),
            plain.replace("00:00:00Z", "23:59:60Z"),
            plain.replace("Update", &"x".repeat(600)),
            format!("[{}]", vec![plain.trim_matches(['[', ']']); 65].join(",")),
            // It is nowhere in the document as it is read.
            plain.replace("a b", r#"a\"b"#),
            plain.replace("00Z", "00+00:00"),
            plain.replace("00Z", "00.5Z"),
            plain.replace(r#","time":"2026-01-31T00:00:00Z""#, ""),
            "[{}]".to_owned(),
            r#"[1,"x",null]"#.to_owned(),
            "[]".to_owned(),
            "null".to_owned(),
            r#"{"fieldsV1":{"a":1}}"#.to_owned(),
        ] {
            assert!(managed_fields != plain);
            let value = parsed(&managed_fields).0;
            assert_eq!(text(&managed_fields), None, "{managed_fields}");
            let object = format!(r#"{{"metadata":{{"managedFields":{managed_fields}}}}}"#);
            let tree = codec::from_json(object.as_bytes(), &Account::own()).unwrap().value;
            assert_eq!(value, tree, "{managed_fields}");
        }
        for (managed_fields, is_reset) in [
            ("[{}]", true),
            (r#"[{"fieldsV1":null}]"#, true),
            (r#"[{"fieldsV1":"","manager":""}]"#, true),
            (r#"[{"fieldsV1":{}}]"#, false),
            (r#"[{"fieldsV1":"{}"}]"#, false),
            ("[]", false),
        ] {
            assert_eq!(sent(managed_fields).0.is_reset, is_reset, "{managed_fields}");
        }
        // The last one counts, as of all that is given twice.
        let twice = |one: &str, other: &str| format!("{one},\"managedFields\":{other}");
        let emptied = serde_json::json!({"metadata": {"managedFields": []}});
        assert_eq!(parsed(&twice(&plain, "[]")).0, emptied);
        assert_eq!(text(&twice(&plain, "[]")), None);
        assert_eq!(text(&twice("[]", &plain)), None);
        let tree = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(parsed(&twice("[]", &plain)).0["metadata"]["managedFields"], tree(&plain));
        let twice =
            format!(r#"{{"metadata":{{"managedFields":{plain}}},"metadata":{{"name":"a"}}}}"#);
        let parsed = codec::object_from_json(twice.as_bytes(), &Account::own()).unwrap();
        let duplicates = vec!["duplicate field \"metadata\"".to_owned()];
        assert_eq!((parsed.managed_fields, parsed.duplicates), (None, duplicates));
        // What a manager owns is read as it is.
        let fields = entry(r#"{"f:a":{},"f:a":{}}"#, r#","more":1"#);
        let object = format!(r#"{{"metadata":{{"managedFields":{fields}}}}}"#);
        let parsed = codec::object_from_json(object.as_bytes(), &Account::own()).unwrap();
        assert!(parsed.managed_fields.is_none() && parsed.duplicates.is_empty());
    }

    #[test]
    fn what_it_may_become_is_bounded() {
        let many = vec!["\"f:a\":{}"; 60_000].join(",");
        let object = format!(r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{{{many}}}}}]}}}}"#);
        for parse in [codec::from_json, codec::object_from_json] {
            let refused = parse(object.as_bytes(), &Account::own()).unwrap_err().to_string();
            assert!(refused.starts_with("more than 50000 values"), "{refused}");
        }
    }
}
