//! Which fields objects of a version can be selected by, and their values.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use crate::object::{Object, Tree};

/// Values that are longer are told apart by hash: what readers ask for must
/// not add much to what is kept.
const VALUE_LIMIT: usize = 64;

/// Fields by their paths, as `spec.node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields {
    fields: Vec<Field>,
    /// Whether the error for another field lists the supported ones.
    tells: bool,
}

/// What objects are selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: Arc<str>,
    /// Where its value may be; the first that has one counts.
    paths: Vec<String>,
    /// Its value where an object has none.
    absent: &'static str,
}

/// The value of a field, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::object) enum Selected {
    /// What is not there is empty.
    Text(Box<str>),
    /// Of a text that is long: how long, and two hashes.
    Hash(usize, u64, u64),
}

impl Selected {
    pub(super) fn of(text: &str) -> Self {
        if text.len() <= VALUE_LIMIT {
            return Self::Text(text.into());
        }
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, text).hash(&mut hasher);
            hasher.finish()
        };
        Self::Hash(text.len(), hash(0), hash(1))
    }
}

impl SelectableFields {
    /// These fields.
    pub fn new<S: Into<String>>(paths: impl IntoIterator<Item = S>) -> Self {
        let fields = paths.into_iter().map(|path| {
            let path: String = path.into();
            Field { name: path.as_str().into(), paths: vec![path], absent: "" }
        });
        Self { fields: fields.collect(), tells: false }
    }

    /// Only name and namespace; the error for another field says so.
    pub fn name_and_namespace_only() -> Self {
        Self { fields: Vec::new(), tells: true }
    }

    /// Adds a field, which is `absent` where an object has no value.
    #[must_use]
    pub fn with_field(mut self, path: &str, absent: &'static str) -> Self {
        self.fields.push(Field { name: path.into(), paths: vec![path.to_owned()], absent });
        self
    }

    /// Adds a field of this name, whose value is at the first of these paths that has one, and
    /// `absent` if none has.
    #[must_use]
    pub fn with_field_at(mut self, name: &str, paths: &[&str], absent: &'static str) -> Self {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self.fields.push(Field { name: name.into(), paths, absent });
        self
    }

    /// Whether the error for another field lists the supported ones.
    pub(super) fn tells(&self) -> bool {
        self.tells
    }

    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| &*field.name)
    }

    /// The field of this path.
    fn field(&self, path: &str) -> Option<&Field> {
        self.fields.iter().find(|one| &*one.name == path)
    }

    /// Whether objects are selected by this field.
    pub(super) fn has(&self, path: &str) -> bool {
        self.field(path).is_some()
    }

    /// Whether a field of an object of the version has this value. All values
    /// of an object are read when the first one is asked for.
    pub(super) fn is(&self, object: &Object, path: &str, value: &Selected) -> bool {
        let Some(field) = self.field(path) else { return false };
        let values = object.selected.get_or_init(|| {
            let tree = object.to_tree();
            let fields = self.fields.iter();
            fields.map(|one| (Arc::clone(&one.name), Selected::of(&one.value(&tree)))).collect()
        });
        match values.iter().find(|(name, _)| **name == *field.name) {
            Some((_, found)) => found == value,
            // They were read when objects were selected by other fields.
            None => Selected::of(&field.value(&object.to_tree())) == *value,
        }
    }
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
