//! Renewal: decides which objects are rewritten in another version.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::kind::Kind;
use crate::object::Object;
use crate::storage::Collection;

/// The largest number of objects of one problem in a message.
const NAMED: usize = 10;

/// The kinds whose objects are rewritten, and the objects that cannot be rewritten.
pub(super) struct Renewal {
    kinds: Vec<Kind>,
    unknown: Names,
    unconvertible: Names,
}

#[derive(Default)]
struct Names(Mutex<BTreeSet<String>>);

impl Names {
    fn add(&self, name: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    fn into_list(self) -> Vec<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
    }
}

impl Renewal {
    /// Creates the renewal for objects of these kinds.
    pub(super) fn new(kinds: Vec<Kind>) -> Self {
        Self { kinds, unknown: Names::default(), unconvertible: Names::default() }
    }

    /// Returns the rewritten object; `None` if the object does not change. An object that should change but cannot is
    /// recorded.
    pub(super) fn of(&self, collection: &Collection, object: &Arc<Object>) -> Option<Arc<Object>> {
        let kind = self.kinds.iter().find(|kind| kind.qualified() == collection.as_str())?;
        let version = object.api_version();
        if !kind.knows_version_of(object) {
            self.unknown.add(format!("{collection} {} in {version}", object.key()));
            return None;
        }
        if kind.api_version(&kind.storage.name) == version {
            return None;
        }
        match kind.to_storage_version(object) {
            Ok(renewed) => (renewed.api_version() != version).then_some(renewed),
            Err(why) => {
                self.unconvertible.add(format!("{collection} {} ({why})", object.key()));
                None
            }
        }
    }

    /// Returns a line with the results.
    ///
    /// # Errors
    /// The same line with the objects that could not be rewritten, if there are any.
    pub(super) fn report(self, mut said: String, damaged: Vec<String>) -> Result<String, String> {
        let left = [
            ("damaged", damaged),
            ("of unknown versions", self.unknown.into_list()),
            ("not convertible", self.unconvertible.into_list()),
        ];
        for (what, names) in left.iter().filter(|(_, names)| !names.is_empty()) {
            let others = names.len().saturating_sub(NAMED);
            let others = if others == 0 { String::new() } else { format!(" and {others} more") };
            let named = names[..names.len().min(NAMED)].join(", ");
            said += &format!("; left as they are, because they are {what}: {named}{others}");
        }
        match left.iter().all(|(_, names)| names.is_empty()) {
            true => Ok(said),
            false => Err(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{ErasedConversion, Hub, VersionCode};
    use serde_json::{Value, json};

    /// A kind with the storage version `v1`, whose conversion fails for objects with the field `broken`.
    fn kind() -> Kind {
        let version = |name: &str| {
            let schema = json!({"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }});
            json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
        };
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [version("v1"), version("v1alpha")],
            },
        });
        let code = |version: &str| VersionCode {
            version: version.to_owned(),
            read: Box::new(|object| match object.contains_key("broken") {
                true => Err("it is broken".to_owned().into()),
                false => Ok(Box::new(Value::Object(object.clone())) as Hub),
            }),
            write: Box::new(|hub| Ok(hub.downcast::<Value>().map(|value| *value).unwrap())),
            direct: None,
        };
        let conversion = ErasedConversion::new(vec![code("v1"), code("v1alpha")]);
        let kind = Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap();
        kind.with_conversion(Some(conversion.into())).with_shape()
    }

    #[test]
    fn renewal_reports_objects_that_cannot_be_converted() {
        let object = |name: &str, version: &str, member: &str| {
            let tree = json!({
                "apiVersion": format!("example.com/{version}"), "kind": "Foo",
                "metadata": {"name": name, "uid": name}, member: true,
            });
            Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
        };
        let collection = Collection::new("foos.example.com");
        let renewal = Renewal::new(vec![kind()]);
        let renewed = renewal.of(&collection, &object("a", "v1alpha", "whole")).unwrap();
        assert_eq!(renewed.api_version(), "example.com/v1");
        assert!(renewal.of(&collection, &object("b", "v1", "whole")).is_none());
        assert_eq!(
            Renewal::new(Vec::new()).report("1 of 2".to_owned(), Vec::new()),
            Ok("1 of 2".to_owned())
        );
        assert!(renewal.of(&collection, &object("c", "v1alpha", "broken")).is_none());
        assert!(renewal.of(&collection, &object("d", "v2", "whole")).is_none());
        let expected = "1 of 4; \
            left as they are, because they are of unknown versions: foos.example.com d in example.com/v2; \
            left as they are, because they are not convertible: foos.example.com c (foos.example.com \"c\" cannot be converted to example.com/v1: it is broken)";
        assert_eq!(renewal.report("1 of 4".to_owned(), Vec::new()), Err(expected.to_owned()));
    }
}
