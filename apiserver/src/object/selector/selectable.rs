//! Which fields objects of a version can be selected by, and their values.

use serde_json::Value;

use crate::object::{Object, Tree};

/// Fields by their paths, as `spec.node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields(Vec<String>);

impl SelectableFields {
    /// These fields.
    pub fn new<S: Into<String>>(paths: impl IntoIterator<Item = S>) -> Self {
        Self(paths.into_iter().map(Into::into).collect())
    }

    /// Which of them this is.
    pub(super) fn position(&self, path: &str) -> Option<usize> {
        self.0.iter().position(|one| one == path)
    }

    /// The value of a field of an object of the version, as text; what is not
    /// there is empty. All values of an object are read when the first one is
    /// asked for.
    pub(super) fn value<'a>(&self, object: &'a Object, path: &str) -> &'a str {
        let values = object.selected.get_or_init(|| {
            let tree = object.to_tree();
            self.0.iter().map(|path| text(&tree, path)).collect()
        });
        self.position(path).and_then(|index| values.get(index)).map_or("", String::as_str)
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
