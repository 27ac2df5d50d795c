//! The depth and the size of an object.

use serde_json::Value;

use super::Tree;

/// The largest depth of an object. Parsers of JSON reject deeper values.
pub const DEPTH_LIMIT: usize = 127;

/// The extent of a value. Values beyond the depth limit are not visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The depth: the number of nested objects and lists.
    pub depth: usize,
    /// The number of fields and items, at all depths.
    pub values: usize,
    /// The size of all strings in JSON, without the names of fields, in bytes.
    pub texts: usize,
}

impl Extent {
    /// The extent of an object.
    pub fn of(tree: &Tree) -> Self {
        let mut extent = Self { depth: 1, ..Self::default() };
        tree.values().for_each(|value| extent.add(value, 2));
        extent
    }

    /// Adds the managed fields of the object: JSON, or no bytes.
    pub fn with_managed_fields(self, json: &[u8]) -> Self {
        let of_managers = Self::of_json(json);
        // Managed fields are part of the metadata of the object.
        let depth = self.depth.max(2 + of_managers.depth);
        Self { depth, values: self.values + of_managers.values, ..self }
    }

    /// The depth of JSON, and the number of its objects and lists.
    fn of_json(json: &[u8]) -> Self {
        let mut extent = Self::default();
        let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
        for byte in json {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => is_text = !is_text,
                b'{' | b'[' if !is_text => {
                    depth += 1;
                    extent.depth = extent.depth.max(depth);
                    extent.values += 1;
                }
                b'}' | b']' if !is_text => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        extent
    }

    /// Whether an object is deeper than the limit. This check is cheaper than the whole extent.
    pub fn is_too_deep(tree: &Tree) -> bool {
        fn is_deeper(value: &Value, left: usize) -> bool {
            match value {
                Value::Object(_) | Value::Array(_) if left == 0 => true,
                Value::Object(members) => members.values().any(|value| is_deeper(value, left - 1)),
                Value::Array(items) => items.iter().any(|value| is_deeper(value, left - 1)),
                _ => false,
            }
        }
        tree.values().any(|value| is_deeper(value, DEPTH_LIMIT - 1))
    }

    /// The extent of a value.
    pub fn of_value(value: &Value) -> Self {
        let mut extent = Self::default();
        extent.add(value, 1);
        extent
    }

    fn add(&mut self, value: &Value, depth: usize) {
        self.values += 1;
        if let Value::String(text) = value {
            self.texts += text.bytes().map(size_in_json).sum::<usize>();
        }
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

/// The size of a byte of a string in JSON, in bytes.
fn size_in_json(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..=31 => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_at_the_depth_limit_can_be_parsed_again() {
        let deep = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!({"a": inner}));
        for depth in [1, 2, DEPTH_LIMIT, DEPTH_LIMIT + 1] {
            let value = deep(depth);
            assert_eq!(Extent::of_value(&value).depth, depth);
            assert_eq!(Extent::of(value.as_object().unwrap()).depth, depth);
            assert_eq!(Extent::is_too_deep(value.as_object().unwrap()), depth > DEPTH_LIMIT);
            let read = serde_json::from_str::<Value>(&value.to_string());
            assert_eq!(read.is_ok(), depth <= DEPTH_LIMIT, "{depth}");
        }
        assert_eq!(Extent::of_value(&json!({"a": [1, {"b": 2}]})).values, 5);
        let text = json!("a\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}é");
        assert_eq!(Extent::of_value(&text).texts + 2, text.to_string().len());
    }

    #[test]
    fn managed_fields_count_towards_object_depth_and_values() {
        let tree = json!({"metadata": {"name": "a"}});
        let managers = json!([{"fieldsV1": {"f:spec": {"f:l": {"k:{\"a\":\"}[\"}": {}}}}}]);
        let extent = Extent::of(tree.as_object().unwrap());
        let together = extent.with_managed_fields(managers.to_string().as_bytes());
        let mut whole = tree.clone();
        whole["metadata"]["managedFields"] = managers;
        assert_eq!(together.depth, Extent::of(whole.as_object().unwrap()).depth);
        assert_eq!(together.values, extent.values + 6);
        assert_eq!(extent.with_managed_fields(b""), Extent { depth: 2, ..extent });
    }
}
