//! Objects that were converted a moment ago: what all readers of a version look at, one after the
//! other, is converted once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::conversion::ConversionError;
use super::{Kind, Version};
use crate::object::Object;

/// What those that are remembered may take, in bytes, of all kinds together.
const BYTES: usize = 8 << 20;
/// How many are remembered.
const COUNT: usize = 64;

/// An object in another version than the kept one.
struct Converted {
    /// While they are referred to, nothing else has their addresses.
    kept: Weak<Object>,
    version: Weak<Version>,
    shown: Arc<Object>,
}

#[derive(Default)]
struct Remembered {
    /// The one that was made first is in front.
    all: VecDeque<Converted>,
    bytes: usize,
}

static REMEMBERED: Mutex<Option<Remembered>> = Mutex::new(None);

impl Kind {
    /// The same as [`in_version`](Self::in_version), made once for all who ask within a moment. Two who
    /// ask at once may both make it.
    ///
    /// # Errors
    /// When what the conversion makes of it is no object.
    pub fn in_version_shared(
        &self,
        object: &Arc<Object>,
        version: &Arc<Version>,
    ) -> Result<Arc<Object>, ConversionError> {
        // A webhook's answers are kept with its questions, and for a second only.
        if self.is_converted_by_webhook()
            || (version.name == self.storage.name && self.view.is_none())
        {
            return self.in_version(object, version);
        }
        if let Some(shown) = lock().get_or_insert_default().find(object, version) {
            return Ok(shown);
        }
        let shown = self.in_version(object, version)?;
        // What is forgotten may be large: others do not wait until it is freed.
        let forgotten = lock().get_or_insert_default().add(object, version, &shown);
        drop(forgotten);
        Ok(shown)
    }
}

fn lock() -> MutexGuard<'static, Option<Remembered>> {
    REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remembered {
    fn find(&self, object: &Arc<Object>, version: &Arc<Version>) -> Option<Arc<Object>> {
        let (object, version) = (Arc::as_ptr(object), Arc::as_ptr(version));
        let is_it =
            |one: &&Converted| one.kept.as_ptr() == object && one.version.as_ptr() == version;
        self.all.iter().rev().find(is_it).map(|one| Arc::clone(&one.shown))
    }

    /// Remembers an object. Answers what is forgotten instead.
    #[must_use]
    fn add(
        &mut self,
        object: &Arc<Object>,
        version: &Arc<Version>,
        shown: &Arc<Object>,
    ) -> Vec<Converted> {
        let mut forgotten = Vec::new();
        let (kept, version) = (Arc::downgrade(object), Arc::downgrade(version));
        self.bytes += shown.size();
        self.all.push_back(Converted { kept, version, shown: Arc::clone(shown) });
        while (self.bytes > BYTES || self.all.len() > COUNT)
            && let Some(first) = self.all.pop_front()
        {
            self.bytes -= first.shown.size();
            forgotten.push(first);
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_many_read_is_converted_once() {
        let of_any = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": of_any},
                    {"name": "v1beta1", "served": true, "storage": false, "schema": of_any},
                ],
            },
        });
        let kind = Kind::parse(&serde_json::from_value(definition).unwrap(), None).unwrap();
        let object = |name: String, text: String| {
            let tree = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name, "uid": "u"}, "text": text});
            let object = Object::from_tree(tree.as_object().unwrap()).unwrap();
            Arc::new(kind.to_storage(object, &kind.storage).unwrap())
        };
        let other = kind.version("v1beta1").unwrap();
        let kept = object("a".to_owned(), String::new());
        let shown = kind.in_version_shared(&kept, other).unwrap();
        assert_eq!(shown.to_tree()["apiVersion"], "example.com/v1beta1");
        assert!(Arc::ptr_eq(&shown, &kind.in_version_shared(&kept, other).unwrap()));
        let stored = kind.in_version_shared(&kept, &kind.storage).unwrap();
        assert!(Arc::ptr_eq(&stored, &kept));
        // What is remembered is bounded, by its bytes and by its number.
        for (count, length) in [(20, 1 << 20), (2 * COUNT, 1)] {
            for number in 0..count {
                let object = object(format!("b{number}"), "x".repeat(length));
                kind.in_version_shared(&object, other).unwrap();
            }
            let remembered = lock();
            let remembered = remembered.as_ref().unwrap();
            assert!(remembered.bytes <= BYTES && remembered.all.len() <= COUNT);
        }
        assert!(!Arc::ptr_eq(&shown, &kind.in_version_shared(&kept, other).unwrap()));
    }
}
