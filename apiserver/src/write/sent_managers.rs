//! What a client says of the managers of an object.

use serde::Serialize;
use serde_json::Value;

use crate::apply::Managers;
use crate::object::Tree;

const FIELDS: &str = "fieldsV1";

/// What a client says of the managers of an object: `metadata.managedFields`, each entry as JSON. It
/// is not read before there is room for what becomes of it.
#[derive(Clone, Debug, Default)]
pub struct SentManagers {
    entries: Vec<String>,
    is_reset: bool,
}

impl SentManagers {
    /// Takes it out of an object.
    pub(super) fn of(tree: Tree) -> (Tree, Self) {
        let (tree, entries) = without_managed_fields(tree);
        let is_reset = is_reset(&entries);
        (tree, Self { entries: entries.iter().map(Value::to_string).collect(), is_reset })
    }

    /// The same where what each of them owns is JSON in a text.
    pub(super) fn with_text(tree: Tree) -> (Tree, Self) {
        let (tree, entries) = without_managed_fields(tree);
        let is_reset = is_reset(&entries);
        (tree, Self { entries: entries.iter().map(to_json).collect(), is_reset })
    }

    /// The wish that nobody owns anything.
    pub(super) fn reset() -> Self {
        Self { entries: Vec::new(), is_reset: true }
    }

    /// Whether anybody is said to own something.
    pub(super) fn is_said(&self) -> bool {
        !self.entries.is_empty() && !self.is_reset
    }

    /// Whether a client wishes that nobody owns anything.
    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        self.entries.iter().map(String::len).sum()
    }

    /// Reads it, where these are kept; `None` if nothing is said.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&self, kept: &Managers) -> Result<Option<Managers>, String> {
        match self.entries.is_empty() {
            true => Ok(None),
            false => Managers::sent(&self.entries, kept).map(Some),
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

/// An entry as JSON, with the JSON of what its manager owns.
fn to_json(entry: &Value) -> String {
    let Value::Object(members) = entry else { return entry.to_string() };
    let mut json = Vec::with_capacity(256 + members.get(FIELDS).map_or(0, text_length));
    json.push(b'{');
    for (name, value) in members {
        if json.len() > 1 {
            json.push(b',');
        }
        write(&mut json, name);
        json.push(b':');
        match value {
            Value::String(fields) if name == FIELDS && !fields.is_empty() => {
                json.extend_from_slice(fields.as_bytes());
            }
            value => write(&mut json, value),
        }
    }
    json.push(b'}');
    String::from_utf8(json).unwrap_or_default()
}

fn text_length(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

fn write(json: &mut Vec<u8>, value: &impl Serialize) {
    // Trees and texts always encode.
    let _ = serde_json::to_writer(json, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::quota::Account;

    fn sent(managed_fields: &str) -> (SentManagers, SentManagers) {
        let object = format!(r#"{{"metadata":{{"managedFields":{managed_fields}}}}}"#);
        let account = Account::own();
        let parse = [codec::from_json, codec::object_from_json];
        let [tree, text] = parse.map(|parse| {
            let parsed = parse(object.as_bytes(), &account).unwrap();
            let Value::Object(tree) = parsed.value else { panic!("no object") };
            match parsed.sets_are_text {
                true => SentManagers::with_text(tree).1,
                false => SentManagers::of(tree).1,
            }
        });
        (tree, text)
    }

    #[test]
    fn it_is_the_same_whether_sets_are_text_or_trees() {
        let entry = |fields: &str| {
            format!(
                r#"[{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields},"manager":"a\"b","operation":"Update"}}]"#
            )
        };
        for (managed_fields, is_reset) in [
            (entry(r#"{"f:a":{".":{},"k:{\"x\":1}":{}}}"#), false),
            (entry("{}"), false),
            (entry("null"), false),
            (entry(r#""""#), false),
            (entry(r#""{}""#), false),
            (entry("[1,[2]]"), false),
            (entry("1"), false),
            ("[{}]".to_owned(), true),
            (r#"[{"fieldsV1":null}]"#.to_owned(), true),
            (r#"[{"fieldsV1":"","manager":""}]"#.to_owned(), true),
            (r#"[{"fieldsV1":{}}]"#.to_owned(), false),
            (r#"[{"fieldsV1":"{}"}]"#.to_owned(), false),
            (r#"[1,"x",null]"#.to_owned(), false),
            ("[]".to_owned(), false),
            ("null".to_owned(), false),
            (r#"{"fieldsV1":{"a":1}}"#.to_owned(), false),
        ] {
            let (tree, text) = sent(&managed_fields);
            assert_eq!(text.entries, tree.entries, "{managed_fields}");
            assert_eq!((tree.is_reset, text.is_reset), (is_reset, is_reset), "{managed_fields}");
        }
        // What is written otherwise means the same.
        let (tree, text) = sent(&entry(r#"{ "f:b" : {}, "f:a":{} }"#));
        let nobody = Managers::default();
        let read = |sent: &SentManagers| sent.read(&nobody).unwrap().unwrap();
        assert_eq!(read(&text), read(&tree));
        // A text is no set.
        let (tree, text) = sent(&entry(r#""{\"f:a\":{}}""#));
        assert!(tree.read(&nobody).is_err() && text.read(&nobody).is_err());
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
