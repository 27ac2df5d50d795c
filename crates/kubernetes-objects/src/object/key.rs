//! [`Key`]: the key of an object in its collection.

use std::fmt;

use arcstr::ArcStr;

/// The key of an object in its collection: `namespace/name`, or `name` for a cluster-scoped kind. The byte order of
/// keys is the order of lists. A copy is one pointer, because indexes and caches hold many copies of the key of an
/// object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(ArcStr);

impl Key {
    /// The key of an object; `namespace` is `None` for cluster-scoped kinds.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// The key with this string form.
    pub fn of_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The string form of the key.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// A key that sorts before every key of the namespace.
    pub fn first_of_namespace(namespace: &str) -> Self {
        Self(format!("{namespace}/").into())
    }

    /// The first key that sorts after this one.
    pub fn following(&self) -> Self {
        Self(format!("{self}\0").into())
    }

    /// The namespace, if the kind is namespaced.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_keys_sort_like_their_string_form() {
        let mut keys = [Key::new(Some("m"), "x"), Key::new(Some("m-1"), "x"), Key::new(None, "m")];
        keys.sort();
        assert_eq!(keys.map(|key| key.to_string()), ["m", "m-1/x", "m/x"]);
        assert_eq!(Key::new(Some("m"), "x").namespace(), Some("m"));
        assert_eq!(Key::new(None, "m").name(), "m");
    }
}
