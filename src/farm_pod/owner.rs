//! The owners of a Pod, up to the top-level workload.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::{Metadata, OwnerLink};
use super::object_view::{AnyOwnerView, OwnerView};

/// The largest number of owners that are followed. No workload has more, and owner references can be circular.
const MOST_OWNERS: usize = 8;

/// The top-level workload of a Pod.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// The name of the workload.
    pub name: String,
}

impl From<&OwnerLink> for Owner {
    fn from(OwnerLink { api_version, kind, name, .. }: &OwnerLink) -> Self {
        let [api_version, kind, name] = [&**api_version, &**kind, &**name].map(str::to_owned);
        Self { api_version, kind, name }
    }
}

/// An object of which only the metadata is read.
pub trait Owned {
    /// The metadata of the object.
    fn metadata(&self) -> &Metadata;
}

impl<K> Owned for OwnerView<K> {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Owned for AnyOwnerView {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The owners of an object, nearest first, each with the object that was found under its name.
pub struct Chain(Vec<(Owner, Option<Arc<dyn Owned>>)>);

impl Chain {
    /// Follows the controllers of an object with this metadata. `look` finds the object of a reference. The chain ends
    /// if the next owner is unknown (not yet or no longer), or if its name belongs to an object with another uid.
    pub fn follow(object: &Metadata, look: impl Fn(&OwnerLink) -> Option<Arc<dyn Owned>>) -> Self {
        let mut chain = Vec::new();
        let mut uids = Vec::new();
        let mut next = object.controller().cloned();
        while let Some(reference) = next.take() {
            if chain.len() == MOST_OWNERS || uids.contains(&reference.uid) {
                break;
            }
            let found = look(&reference);
            let found =
                found.filter(|one| one.metadata().uid().as_deref() == Some(&*reference.uid));
            next = found.as_ref().and_then(|found| found.metadata().controller()).cloned();
            chain.push((Owner::from(&reference), found));
            uids.push(reference.uid);
        }
        Self(chain)
    }

    /// The top-level owner.
    pub fn top(&self) -> Option<&Owner> {
        self.0.last().map(|(owner, _)| owner)
    }

    /// All owners, nearest first, for example `ReplicaSet/web-1`.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|(owner, _)| format!("{}/{}", owner.kind, owner.name)).collect()
    }

    /// The metadata of the owners that were found, nearest first.
    pub fn metadata(&self) -> impl Iterator<Item = &Metadata> {
        self.0.iter().filter_map(|(_, found)| found.as_deref().map(Owned::metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::{Value, json};

    fn reference(kind: &str, name: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true})
    }

    /// The owners of an object whose owner is `first`. Each entry of `objects` has a name, a uid and an owner.
    fn chain(first: Value, objects: &[(&str, &str, Option<Value>)]) -> Vec<String> {
        let of = |name: &str, uid: &str, owner: Option<Value>| -> OwnerView<ReplicaSet> {
            let owners: Vec<Value> = owner.into_iter().collect();
            let metadata = json!({"name": name, "uid": uid, "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let object = of("p", "p", Some(first));
        let chain = Chain::follow(&object.metadata, |reference| {
            let (name, uid, owner) = objects.iter().find(|(name, ..)| **name == *reference.name)?;
            let found: Arc<dyn Owned> = Arc::new(of(name, uid, owner.clone()));
            Some(found)
        });
        chain.texts()
    }

    #[test]
    fn is_followed_to_the_top() {
        let set = ("set", "uid-set", Some(reference("Rollout", "roll")));
        let roll = ("roll", "uid-roll", Some(reference("App", "app")));
        let found = chain(reference("ReplicaSet", "set"), &[set.clone(), roll]);
        assert_eq!(found, ["ReplicaSet/set", "Rollout/roll", "App/app"]);
        let found = chain(reference("ReplicaSet", "set"), &[set]);
        assert_eq!(found, ["ReplicaSet/set", "Rollout/roll"]);
    }

    #[test]
    fn an_owner_chain_ends_at_a_missing_or_recreated_owner() {
        let another = ("set", "another", Some(reference("Deployment", "web")));
        assert_eq!(chain(reference("ReplicaSet", "set"), &[another]), ["ReplicaSet/set"]);
        assert_eq!(chain(reference("ReplicaSet", "set"), &[]), ["ReplicaSet/set"]);
        let mut no_controller = reference("ReplicaSet", "set");
        no_controller["controller"] = json!(false);
        assert_eq!(chain(no_controller, &[]), [] as [&str; 0]);
    }

    #[test]
    fn may_be_a_circle_or_long() {
        let a = ("a", "uid-a", Some(reference("X", "b")));
        let b = ("b", "uid-b", Some(reference("X", "a")));
        assert_eq!(chain(reference("X", "a"), &[a, b]), ["X/a", "X/b"]);
        let names: Vec<String> = (0..20).map(|index| index.to_string()).collect();
        let uids: Vec<String> = (0..20).map(|index| format!("uid-{index}")).collect();
        let next = |index: usize| Some(reference("X", &(index + 1).to_string()));
        let long: Vec<(&str, &str, Option<Value>)> = (0..20)
            .map(|index| (names[index].as_str(), uids[index].as_str(), next(index)))
            .collect();
        assert_eq!(chain(reference("X", "0"), &long).len(), MOST_OWNERS);
    }
}
