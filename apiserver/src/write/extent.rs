//! How deep an object is, and how much it holds.

use serde_json::Value;

use crate::object::Tree;

/// How deep an object may be; what is deeper no parser of JSON reads.
pub(super) const DEPTH_LIMIT: usize = 127;

/// The extent of a value. Whoever walks stops beyond the depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Objects and lists that stand in each other.
    pub depth: usize,
    /// Members and items, at all depths.
    pub values: usize,
}

impl Extent {
    /// The extent of an object.
    pub(super) fn of(tree: &Tree) -> Self {
        let mut extent = Self { depth: 1, values: 0 };
        tree.values().for_each(|value| extent.add(value, 2));
        extent
    }

    /// The extent of a value.
    pub(super) fn of_value(value: &Value) -> Self {
        let mut extent = Self::default();
        extent.add(value, 1);
        extent
    }

    fn add(&mut self, value: &Value, depth: usize) {
        self.values += 1;
        if depth > DEPTH_LIMIT + 1 || !(value.is_object() || value.is_array()) {
            return;
        }
        self.depth = self.depth.max(depth);
        match value {
            Value::Object(members) => {
                members.values().for_each(|value| self.add(value, depth + 1));
            }
            Value::Array(items) => items.iter().for_each(|value| self.add(value, depth + 1)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_as_deep_as_it_may_be_is_read_again() {
        let deep = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!({"a": inner}));
        for depth in [1, 2, DEPTH_LIMIT, DEPTH_LIMIT + 1] {
            let value = deep(depth);
            assert_eq!(Extent::of_value(&value).depth, depth);
            assert_eq!(Extent::of(value.as_object().unwrap()).depth, depth);
            let read = serde_json::from_str::<Value>(&value.to_string());
            assert_eq!(read.is_ok(), depth <= DEPTH_LIMIT, "{depth}");
        }
        assert_eq!(Extent::of_value(&json!({"a": [1, {"b": 2}]})).values, 5);
    }
}
