//! Objects as readers were shown them a moment ago: in another version, or without fields. Each server has its own.

use std::sync::Arc;

use super::Kind;
use super::converted::ConvertedObjects;
use super::redaction::RedactedObjects;

/// The caches of shown objects that all kinds of a server share.
#[derive(Clone, Debug, Default)]
pub struct ShownObjects {
    /// Objects in other versions.
    pub(super) converted: Arc<ConvertedObjects>,
    /// Objects of which fields were left out.
    pub(super) redacted: Arc<RedactedObjects>,
}

impl ShownObjects {
    /// Caches of a server whose objects in other versions may take so many bytes.
    pub fn new(converted: usize) -> Self {
        Self { converted: Arc::new(ConvertedObjects::of(converted)), redacted: Arc::default() }
    }

    /// The bytes that objects in other versions may take.
    #[cfg(test)]
    pub(crate) fn converted_limit(&self) -> usize {
        self.converted.limit()
    }
}

impl Kind {
    /// The same kind, whose shown objects are cached with those of other kinds of a server.
    #[must_use]
    pub fn with_shown(self, shown: &ShownObjects) -> Self {
        Self { shown: shown.clone(), ..self }
    }

    /// The caches of its shown objects.
    pub fn shown(&self) -> &ShownObjects {
        &self.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use serde_json::json;

    #[test]
    fn servers_share_neither_caches_nor_limits() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [version("v1", true), version("v1beta1", false)],
            },
        });
        let kind = Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap();
        let [large, small] =
            [1 << 20, 0].map(|bytes| kind.clone().with_shown(&ShownObjects::new(bytes)));
        let tree = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a", "uid": "u"}});
        let object = Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap());
        let is_cached = |kind: &Kind| {
            let shown =
                || kind.in_version_shared(&object, kind.version("v1beta1").unwrap()).unwrap();
            Arc::ptr_eq(&shown(), &shown())
        };
        assert!(is_cached(&large) && !is_cached(&small) && is_cached(&large));
        let other = large.clone();
        assert!(Arc::ptr_eq(&other.shown.converted, &large.shown.converted));
    }
}
