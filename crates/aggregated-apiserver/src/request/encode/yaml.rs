//! YAML with sorted keys, same as from kube-apiserver.

use serde_json::Value;

/// Returns a document in YAML.
pub(super) fn document(json: &[u8]) -> Vec<u8> {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    text(&value).into_bytes()
}

/// The text around the items of a list.
pub(super) struct Frame {
    pub head: String,
    pub tail: String,
}

impl Frame {
    /// Returns the frame of a list. `empty` is the JSON of the list without items.
    pub(super) fn of(empty: &[u8]) -> Self {
        let text = String::from_utf8(document(empty)).unwrap_or_default();
        let split = ["items", "rows"].iter().find_map(|key| {
            let start = text.find(&format!("\n{key}: []")).map(|at| at + 1)?;
            let (head, rest) = text.split_at(start + key.len() + 1);
            Some((head.to_owned(), rest.strip_prefix(" []")?.to_owned()))
        });
        let (head, tail) = split.unwrap_or((text, String::new()));
        Self { head, tail }
    }
}

/// Returns an item of a list, on lines of its own.
pub(super) fn item(json: &[u8]) -> Vec<u8> {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    format!("\n{}", text(&Value::Array(vec![value])).trim_end()).into_bytes()
}

/// The text of an empty list of items.
pub(super) const NO_ITEMS: &[u8] = b" []";

fn text(value: &Value) -> String {
    // The keys are strings, so encoding does not fail.
    serde_saphyr::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_yaml_list_is_assembled_from_a_frame_and_its_items() {
        let item_of = |name: &str| json!({"kind": "Foo", "metadata": {"name": name, "list": [1, {"a": []}]}, "text": "yes: no\n- x"});
        for items in [vec![], vec![item_of("a")], vec![item_of("a"), item_of("b")]] {
            for key in ["items", "rows"] {
                let list = |items: Vec<Value>| json!({"apiVersion": "v1", key: items, "kind": "FooList", "metadata": {"items": "rows: []"}});
                let frame = Frame::of(list(Vec::new()).to_string().as_bytes());
                let mut out = frame.head.into_bytes();
                for one in &items {
                    out.extend(item(one.to_string().as_bytes()));
                }
                if items.is_empty() {
                    out.extend_from_slice(NO_ITEMS);
                }
                out.extend_from_slice(frame.tail.as_bytes());
                let text = String::from_utf8(out).unwrap();
                let read: Value = serde_saphyr::from_str(&text).unwrap();
                assert_eq!(read, list(items.clone()), "{text}");
            }
        }
    }
}
