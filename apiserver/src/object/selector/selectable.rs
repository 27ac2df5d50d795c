//! Which fields objects of a version can be selected by, and their values.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::object::{Object, Tree};

/// Values that are longer are told apart by hash: what readers ask for must
/// not add much to what is kept.
const VALUE_LIMIT: usize = 64;

/// Fields by their paths, as `spec.node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields {
    fields: Vec<Field>,
    /// Whether who asks for another one is told which there are.
    tells: bool,
}

/// What objects are selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    /// Where it is; the first that is something counts.
    paths: Vec<String>,
    /// What it is where there is nothing.
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
            let name: String = path.into();
            Field { paths: vec![name.clone()], name, absent: "" }
        });
        Self { fields: fields.collect(), tells: false }
    }

    /// None but name and namespace; who asks for another one is told so.
    pub fn none() -> Self {
        Self { fields: Vec::new(), tells: true }
    }

    /// One more, that is `absent` where there is nothing.
    #[must_use]
    pub fn or(mut self, path: &str, absent: &'static str) -> Self {
        let name = path.to_owned();
        self.fields.push(Field { paths: vec![name.clone()], name, absent });
        self
    }

    /// One more, by its name, that is found at the first of these paths where
    /// something is, and is `absent` where nothing is.
    #[must_use]
    pub fn found_at(mut self, name: &str, paths: &[&str], absent: &'static str) -> Self {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        self.fields.push(Field { name: name.to_owned(), paths, absent });
        self
    }

    /// Whether who asks for another one is told which there are.
    pub(super) fn tells(&self) -> bool {
        self.tells
    }

    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// Which of them this is.
    pub(super) fn position(&self, path: &str) -> Option<usize> {
        self.fields.iter().position(|one| one.name == path)
    }

    /// Whether a field of an object of the version has this value. All values
    /// of an object are read when the first one is asked for.
    pub(super) fn is(&self, object: &Object, path: &str, value: &Selected) -> bool {
        let values = object.selected.get_or_init(|| {
            let tree = object.to_tree();
            self.fields.iter().map(|field| Selected::of(&field.value(&tree))).collect()
        });
        self.position(path).and_then(|index| values.get(index)) == Some(value)
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
