//! Sharing of JSON between similar objects: only one of them stores all of its JSON.

use std::collections::HashMap;
use std::hash::RandomState;

use crate::object::{Key, Object};
use crate::watch_cache::WatchCache;

/// The number of forms that are always remembered; twice the number of objects is added to it.
const FORMS: usize = 1_000;

/// Finds objects that are similar to a given one. Objects of one template have names with a common prefix, so they are
/// neighbours in the cache. In addition, one object of each form is remembered.
#[derive(Default)]
pub(super) struct SharedJson {
    hasher: RandomState,
    one_of: HashMap<u64, Key>,
}

impl SharedJson {
    /// The same object, sharing its JSON with a similar published object if there is one. `count` is the number of
    /// objects.
    pub fn share(&mut self, object: Object, shown: &WatchCache, count: usize) -> Object {
        let form = object.form(&self.hasher);
        let known = self.one_of.get(&form).filter(|key| *key != object.key());
        let known = known.and_then(|key| shown.get(key));
        let others: Vec<_> = shown.neighbours(object.key()).into_iter().chain(known).collect();
        let others: Vec<&Object> = others.iter().map(|other| &*other.object).collect();
        let object = object.sharing_with(&others);
        if !object.is_sharing() {
            // The number of forms is limited. Forgotten forms are only not shared with any more.
            if self.one_of.len() >= FORMS + 2 * count {
                self.one_of.clear();
            }
            self.one_of.insert(form, object.key().clone());
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::storage::RevisionSequencer;

    fn object(value: &Value) -> Object {
        Object::from_tree(value.as_object().unwrap()).unwrap()
    }

    /// After creations, changes and deletions each object is served as it was given, and most objects share their
    /// common JSON.
    #[test]
    fn objects_with_shared_json_read_like_the_originals() {
        let mut random = fastrand::Rng::with_seed(17);
        let sequencer = Arc::new(RevisionSequencer::starting(jiff::Timestamp::now(), 7));
        let cache = WatchCache::new(sequencer, 1 << 20);
        let mut shared_json = SharedJson::default();
        let mut given: BTreeMap<Key, Value> = BTreeMap::new();
        let mut most_shared = 0;
        for round in 0..4_000_u32 {
            let name = format!("web-{}", random.u8(0..50));
            let key = Key::new(Some("n"), &name);
            if random.u8(0..8) == 0 {
                given.remove(&key);
                cache.publish(&key, None);
            } else {
                let mut value = json!({
                    "kind": "Foo",
                    "metadata": {
                        "name": name, "namespace": "n", "uid": format!("uid-{name}"),
                        "labels": {"app": random.u8(0..3).to_string(), "pod-name": name},
                    },
                    "status": {"image": "registry.example.com/shop/web:1.27.3", "number": round},
                });
                if random.u8(0..4) == 0 {
                    value["status"]["why"] = json!({"code": "Error", "message": round.to_string()});
                }
                let shared = shared_json.share(object(&value), &cache, given.len());
                cache.publish(&key, Some(shared));
                given.insert(key, value);
            }
            let mut shared = 0;
            for (key, value) in &given {
                let shown = cache.get(key).unwrap().object;
                assert_eq!(Value::Object(shown.to_tree()), *value);
                assert!(shown.same_content(&object(value)));
                assert_eq!(shown.uid(), value["metadata"]["uid"]);
                for label in ["app", "pod-name"] {
                    assert_eq!(
                        shown.labels().get(label),
                        value["metadata"]["labels"][label].as_str()
                    );
                }
                shared += usize::from(shown.is_sharing());
            }
            most_shared = most_shared.max(shared);
        }
        assert!(most_shared > 30, "{most_shared}");
    }

    #[test]
    fn forms_are_forgotten_where_there_are_too_many() {
        let sequencer = Arc::new(RevisionSequencer::starting(jiff::Timestamp::now(), 7));
        let cache = WatchCache::new(sequencer, 1 << 20);
        let mut shared_json = SharedJson::default();
        for index in 0..3 * FORMS {
            let member = format!("member-{index}");
            let value = json!({"metadata": {"name": "a", "uid": "u"}, "status": {(member): 1}});
            shared_json.share(object(&value), &cache, 1);
        }
        assert!(shared_json.one_of.len() <= FORMS + 2);
    }
}
