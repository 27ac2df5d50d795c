//! The fields of a version that field selectors can use, and their values in an object.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use crate::object::{Object, Tree};

/// The longest value that is stored as a string, in bytes. Longer values are stored as hashes, so that the requests of
/// readers add little memory to stored objects.
const VALUE_LIMIT: usize = 15;

/// Selectable fields, by their paths, such as `spec.node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields {
    fields: Arc<[Field]>,
    /// Whether the error for an unsupported field lists the supported fields.
    tells: bool,
}

/// One selectable field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: Arc<str>,
    /// The paths of the value. The first path with a value is used.
    paths: Vec<String>,
    /// The value for objects without a value at any of the paths.
    absent: &'static str,
}

/// The value of a field: a short value is stored with its length, a longer one as its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selected(u128);

impl Selected {
    pub(super) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut value = [0; 16];
        if let (true, Ok(length)) = (bytes.len() <= VALUE_LIMIT, u8::try_from(bytes.len())) {
            value[..bytes.len()].copy_from_slice(bytes);
            value[VALUE_LIMIT] = length;
        } else {
            let hash = |salt: u8| {
                let mut hasher = DefaultHasher::new();
                (salt, text).hash(&mut hasher);
                hasher.finish().to_le_bytes()
            };
            value[..8].copy_from_slice(&hash(0));
            value[8..].copy_from_slice(&hash(1));
            value[VALUE_LIMIT] = u8::MAX;
        }
        Self(u128::from_le_bytes(value))
    }
}

/// The values of the selectable fields of an object, in the order of the fields.
#[derive(Clone, Debug)]
pub(in crate::object) struct Selection {
    fields: Arc<[Field]>,
    values: Box<[Selected]>,
}

impl SelectableFields {
    /// Selectable fields at these paths.
    pub fn new<S: Into<String>>(paths: impl IntoIterator<Item = S>) -> Self {
        let fields = paths.into_iter().map(|path| {
            let path: String = path.into();
            Field { name: path.as_str().into(), paths: vec![path], absent: "" }
        });
        Self { fields: fields.collect(), tells: false }
    }

    /// Supports only name and namespace. The error for another field lists these two.
    pub fn name_and_namespace_only() -> Self {
        Self { fields: Arc::default(), tells: true }
    }

    /// Adds a field, with the value `absent` for objects without a value at the path.
    #[must_use]
    pub fn with_field(self, path: &str, absent: &'static str) -> Self {
        self.with_field_at(path, &[path], absent)
    }

    /// Adds a field with this name. Its value is at the first of the paths that has a value, or `absent` if no path has
    /// one.
    #[must_use]
    pub fn with_field_at(self, name: &str, paths: &[&str], absent: &'static str) -> Self {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let field = Field { name: name.into(), paths, absent };
        Self { fields: self.fields.iter().cloned().chain([field]).collect(), ..self }
    }

    /// Whether the error for an unsupported field lists the supported fields.
    pub(super) fn tells(&self) -> bool {
        self.tells
    }

    /// The names of the fields.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| &*field.name)
    }

    /// Whether field selectors can use this field.
    pub(super) fn has(&self, path: &str) -> bool {
        position(&self.fields, path).is_some()
    }

    /// Whether a field of an object of the version has this value. The first call reads and stores the values of all
    /// selectable fields of the object.
    pub(super) fn is(&self, object: &Object, path: &str, value: &Selected) -> bool {
        let Some((position_here, field)) = position(&self.fields, path) else { return false };
        let Selection { fields, values } = &**object.selected.get_or_init(|| {
            let tree = object.to_tree();
            let values = self.fields.iter().map(|field| Selected::of(&field.value(&tree)));
            Box::new(Selection { fields: Arc::clone(&self.fields), values: values.collect() })
        });
        let position = match Arc::ptr_eq(fields, &self.fields) {
            true => Some(position_here),
            // The stored values belong to an earlier set of selectable fields.
            false => position(fields, path).filter(|(_, one)| *one == field).map(|(at, _)| at),
        };
        match position.and_then(|position| values.get(position)) {
            Some(found) => found == value,
            None => Selected::of(&field.value(&object.to_tree())) == *value,
        }
    }
}

fn position<'a>(fields: &'a [Field], path: &str) -> Option<(usize, &'a Field)> {
    fields.iter().enumerate().find(|(_, one)| &*one.name == path)
}

impl Field {
    fn value(&self, tree: &Tree) -> String {
        let mut found = self.paths.iter().map(|path| text(tree, path));
        found.find(|text| !text.is_empty()).unwrap_or_else(|| self.absent.to_owned())
    }
}

fn text(tree: &Tree, path: &str) -> String {
    let mut steps = path.split('.');
    let first = steps.next().and_then(|step| tree.get(step));
    let found = steps.fold(first, |value, step| value?.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectable_values_of_any_length_compare_exactly() {
        let texts = [
            "",
            "\0",
            "\0\0",
            "a",
            "a\0",
            "ab",
            "123456789012345",
            "123456789012346",
            "1234567890123456",
            "1234567890123457",
            "12345678901234567",
        ];
        for (at, one) in texts.iter().enumerate() {
            for (other_at, other) in texts.iter().enumerate() {
                assert_eq!(
                    Selected::of(one) == Selected::of(other),
                    at == other_at,
                    "{one} {other}"
                );
            }
        }
    }
}
