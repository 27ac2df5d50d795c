//! The `managedFields` that a client sends with an object.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::live::Live;
use crate::apply::{Fields, Managed, Manager, Managers, Operation};
use crate::codec::ManagedFieldsText;
use crate::object::Tree;

/// The `metadata.managedFields` that a client has sent. They are parsed only after memory was reserved for the result,
/// and rarely, because most clients send back the stored ones.
#[derive(Clone, Debug, Default)]
pub struct SentManagers {
    said: Said,
    is_reset: bool,
}

/// The `managedFields` that the parser of the object has set apart: the JSON, and the parsed managers.
#[derive(Clone, Debug)]
pub struct SentText {
    /// `metadata.managedFields`.
    pub text: Bytes,
    /// The managers in the JSON; the fields of each are an unparsed slice of it.
    pub managers: Managers,
}

#[derive(Clone, Debug)]
enum Said {
    Text(Arc<SentText>),
    /// The entries, each as JSON.
    Entries(Vec<String>),
}

impl Default for Said {
    fn default() -> Self {
        Self::Entries(Vec::new())
    }
}

impl SentText {
    /// Builds the managers from the `managedFields` that the parser has set apart.
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
    /// Removes the `managedFields` from an object, and returns both.
    pub(super) fn of(tree: Tree) -> (Tree, Self) {
        let (tree, entries) = without_managed_fields(tree);
        let is_reset = is_reset(&entries);
        let said = Said::Entries(entries.iter().map(Value::to_string).collect());
        (tree, Self { said, is_reset })
    }

    /// The `managedFields` that the parser has set apart; these have entries that are not empty.
    pub(super) fn of_text(text: SentText) -> Self {
        Self { said: Said::Text(Arc::new(text)), is_reset: false }
    }

    /// The request to remove all managers.
    pub(super) fn reset() -> Self {
        Self { is_reset: true, ..Self::default() }
    }

    /// Whether the client has sent managers.
    pub(super) fn is_said(&self) -> bool {
        !self.is_reset && self.size() > 0
    }

    /// Whether the client requests to remove all managers.
    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// The size of the JSON, in bytes.
    pub(super) fn size(&self) -> usize {
        match &self.said {
            Said::Text(said) => said.text.len(),
            Said::Entries(entries) => entries.iter().map(String::len).sum(),
        }
    }

    /// The managers, if their JSON is exactly that of the live object. Then nothing needs to be parsed.
    pub(super) fn if_of(&self, live: &Live) -> Option<&Managers> {
        match &self.said {
            Said::Text(said) if live.says_of_managers(&said.text) => Some(&said.managers),
            _ => None,
        }
    }

    /// Parses the managers, with the stored managers as `kept`. Returns `None` if the client has sent none.
    ///
    /// # Errors
    /// The parse error.
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

/// Whether the `managedFields` of an object are an empty list. Go distinguishes an empty list from a missing one; JSON
/// that Go has written does not.
pub(super) fn is_emptied(tree: &Tree) -> bool {
    let said = tree.get("metadata").and_then(|metadata| metadata["managedFields"].as_array());
    said.is_some_and(Vec::is_empty)
}

/// Removes the `managedFields` from an object, and returns both.
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

    /// The same `managedFields` from a tree, and from JSON if the parser sets them apart.
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
    fn managed_fields_are_read_equally_from_json_and_from_a_tree() {
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
    fn unusual_managed_fields_are_parsed_into_a_tree() {
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
            // The parser sets apart slices of the document, and this name is not one, because it is unescaped.
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
        // The last of several duplicate fields counts.
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
        // The fields of a manager are not parsed.
        let fields = entry(r#"{"f:a":{},"f:a":{}}"#, r#","more":1"#);
        let object = format!(r#"{{"metadata":{{"managedFields":{fields}}}}}"#);
        let parsed = codec::object_from_json(object.as_bytes(), &Account::own()).unwrap();
        assert!(parsed.managed_fields.is_none() && parsed.duplicates.is_empty());
    }

    #[test]
    fn managed_fields_with_too_many_values_are_rejected() {
        let many = vec!["\"f:a\":{}"; 60_000].join(",");
        let object = format!(r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{{{many}}}}}]}}}}"#);
        for parse in [codec::from_json, codec::object_from_json] {
            let refused = parse(object.as_bytes(), &Account::own()).unwrap_err().to_string();
            assert!(refused.starts_with("more than 50000 values"), "{refused}");
        }
    }
}
