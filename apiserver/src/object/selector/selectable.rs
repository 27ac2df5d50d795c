//! Which fields objects of a version can be selected by, and their values.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::object::{Object, Tree};

/// Values that are longer are told apart by hash: what readers ask for must
/// not add much to what is kept.
const VALUE_LIMIT: usize = 64;

/// Fields by their paths, as `spec.node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields(Vec<String>);

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
        Self(paths.into_iter().map(Into::into).collect())
    }

    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Which of them this is.
    pub(super) fn position(&self, path: &str) -> Option<usize> {
        self.0.iter().position(|one| one == path)
    }

    /// Whether a field of an object of the version has this value. All values
    /// of an object are read when the first one is asked for.
    pub(super) fn is(&self, object: &Object, path: &str, value: &Selected) -> bool {
        let values = object.selected.get_or_init(|| {
            let tree = object.to_tree();
            self.0.iter().map(|path| Selected::of(&text(&tree, path))).collect()
        });
        self.position(path).and_then(|index| values.get(index)) == Some(value)
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
