//! Between versions: only `apiVersion` changes, and what the other version
//! does not know is dropped; the strategy `None` of a definition.

use std::sync::Arc;

use super::{Kind, Version};
use crate::object::{Object, ObjectError, Tree};
use crate::schema::{Malformed, coerce, prune, take_in};

impl Kind {
    /// An object that is kept, in another version. It is made anew each time:
    /// what readers ask for must not add to what is kept.
    pub fn in_version(&self, object: &Arc<Object>, version: &Version) -> Arc<Object> {
        if self.keeps(version) {
            return Arc::clone(object);
        }
        if let Some(view) = &self.view {
            let seen = self.seen(object, view.from_kept, &self.group, &version.name);
            return seen.map_or_else(|_| Arc::clone(object), Arc::new);
        }
        // What made it an object, no version takes away. What the version has defaults
        // for is filled in when it is written, as in kube-apiserver.
        self.convert(object, version, |tree| {
            let of = version.schema.root();
            if of.go.is_some() {
                // It was of its types before.
                let _ = coerce(of, tree);
            } else {
                prune(of, tree);
            }
        })
        .map_or_else(|_| Arc::clone(object), Arc::new)
    }

    /// An object of any version as it is kept.
    ///
    /// # Errors
    /// None that could be met: it was an object before.
    pub fn to_storage(&self, object: Object, version: &Version) -> Result<Object, ObjectError> {
        if self.keeps(version) {
            return Ok(object);
        }
        if let Some(view) = &self.view {
            return self.seen(&object, view.to_kept, view.group, view.version);
        }
        // Nothing is refused: the other version did not ask for more.
        let schema = &self.storage.schema;
        self.convert(&object, &self.storage, |tree| {
            let _ = take_in(schema.root(), tree, Malformed::Dropped);
        })
    }

    /// An object in the form of another kind of the same name.
    fn seen(
        &self,
        object: &Object,
        form: fn(Tree) -> Tree,
        group: &str,
        version: &str,
    ) -> Result<Object, ObjectError> {
        let mut tree = form(object.to_tree());
        tree.insert("apiVersion".to_owned(), super::api_version(group, version).into());
        let types = self.storage.schema.types();
        if let Some(id) = types.kind(group, version, &self.names.kind) {
            // It was of its types before.
            let _ = coerce(types.get(id), &mut tree);
        }
        Object::from_tree(&tree)
    }

    fn convert(
        &self,
        object: &Object,
        version: &Version,
        fit: impl FnOnce(&mut Tree),
    ) -> Result<Object, ObjectError> {
        let mut tree = object.to_tree();
        tree.insert("apiVersion".to_owned(), self.api_version(&version.name).into());
        fit(&mut tree);
        Object::from_tree(&tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_version_and_what_it_knows_changes() {
        let property = |name: &str| json!({"openAPIV3Schema": {"type": "object", "properties": {name: {"type": "string"}}}});
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Cluster",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [
                    {"name": "v1", "served": true, "storage": false, "schema": property("new")},
                    {"name": "v1beta1", "served": true, "storage": true, "schema": property("old")},
                ],
            },
        });
        let kind = Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap();
        let tree = json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {"name": "a", "uid": "u"}, "new": "x", "old": "y",
        });
        let v1 = kind.version("v1").unwrap();
        let submitted = Object::from_tree(tree.as_object().unwrap()).unwrap();
        let kept = Arc::new(kind.to_storage(submitted, v1).unwrap());
        let expected = json!({
            "apiVersion": "example.com/v1beta1", "kind": "Foo",
            "metadata": {"name": "a", "uid": "u"}, "old": "y",
        });
        assert_eq!(json!(kept.to_tree()), expected);
        let shown = kind.in_version(&kept, v1);
        assert_eq!(shown.to_tree()["apiVersion"], "example.com/v1");
        assert_eq!(shown.to_tree().get("old"), None);
        assert!(Arc::ptr_eq(&kept, &kind.in_version(&kept, &kind.storage)));
    }
}
