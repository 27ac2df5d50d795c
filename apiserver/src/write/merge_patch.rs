//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

use crate::object::Tree;

/// What a patch makes of an object. One that is no object takes its place.
pub(super) fn apply(object: Tree, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut object = object;
    merge(&mut object, patch);
    Value::Object(object)
}

/// Merges a patch into an object: what is null goes, objects are merged,
/// everything else is replaced.
fn merge(object: &mut Tree, patch: &Tree) {
    for (key, value) in patch {
        match value {
            Value::Null => {
                object.remove(key);
            }
            Value::Object(patch) => {
                let member = object.entry(key.as_str()).or_insert_with(|| Map::new().into());
                if !member.is_object() {
                    *member = Map::new().into();
                }
                if let Value::Object(member) = member {
                    merge(member, patch);
                }
            }
            other => {
                object.insert(key.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Rows of RFC 7386, appendix A, that begin with an object, and others.
    #[test]
    fn rows() {
        let rows = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": 1}), json!({"a": {"b": null}}), json!({"a": {}})),
            (json!({"a": 1}), json!(["c"]), json!(["c"])),
            (json!({}), json!({"a": [null, {"b": null}]}), json!({"a": [null, {"b": null}]})),
        ];
        for (object, patch, expected) in rows {
            let merged = apply(object.as_object().unwrap().clone(), &patch);
            assert_eq!(merged, expected, "{object} {patch}");
        }
    }
}
