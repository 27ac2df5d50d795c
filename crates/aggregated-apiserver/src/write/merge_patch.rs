//! JSON merge patch (RFC 7386), with the behaviour of kube-apiserver.

use serde_json::Value;

use crate::object::Tree;

/// Applies a patch to an object. A patch that is not an object replaces it.
pub(super) fn apply(object: Tree, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut object = object;
    merge(&mut object, patch);
    Value::Object(object)
}

/// Merges a patch into an object: fields that are null in the patch are removed, objects are merged, and all other
/// values are replaced.
fn merge(object: &mut Tree, patch: &Tree) {
    for (key, value) in patch {
        match (object.get_mut(key), value) {
            (_, Value::Null) => {
                object.remove(key);
            }
            (Some(Value::Object(member)), Value::Object(patch)) => merge(member, patch),
            // A list that replaces an object is copied unchanged.
            (Some(member @ Value::Object(_)), other) => *member = other.clone(),
            (_, other) => {
                object.insert(key.clone(), without_nulls(other));
            }
        }
    }
}

/// Returns a value without null fields, which new values do not contain, not even within lists. Here the library of
/// kube-apiserver goes beyond the RFC.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let given = members.iter().filter(|(_, value)| !value.is_null());
            given.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The examples of RFC 7386, appendix A, that start with an object, and others.
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
            (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
            (json!({"a": [1]}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
            (json!({}), json!({"a": [null, {"b": null}]}), json!({"a": [null, {}]})),
        ];
        for (object, patch, expected) in rows {
            let merged = apply(object.as_object().unwrap().clone(), &patch);
            assert_eq!(merged, expected, "{object} {patch}");
        }
    }
}
