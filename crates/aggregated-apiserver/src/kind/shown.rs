//! Caches of objects that were recently converted to another version or redacted. Each server has its own.

use std::sync::Arc;

use super::Kind;
use super::converted::ConvertedObjects;
use super::redaction::RedactedObjects;

/// The caches of converted and redacted objects, shared by all kinds of a server.
#[derive(Clone, Debug, Default)]
pub struct ShownObjects {
    /// Objects in other versions.
    pub(super) converted: Arc<ConvertedObjects>,
    /// Objects without some of their fields.
    pub(super) redacted: Arc<RedactedObjects>,
}

impl ShownObjects {
    /// Creates the caches of a server. `converted` is the memory limit for objects in other versions, in bytes.
    pub fn new(converted: usize) -> Self {
        Self { converted: Arc::new(ConvertedObjects::of(converted)), redacted: Arc::default() }
    }

    /// The memory limit for objects in other versions, in bytes.
    #[cfg(test)]
    pub(crate) fn converted_limit(&self) -> usize {
        self.converted.limit()
    }
}

impl Kind {
    /// Sets the caches, which the kind shares with other kinds of a server.
    #[must_use]
    pub fn with_shown(self, shown: &ShownObjects) -> Self {
        Self { shown: shown.clone(), ..self }
    }

    /// The caches of converted and redacted objects.
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
    fn servers_have_separate_converted_caches_and_limits() {
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
