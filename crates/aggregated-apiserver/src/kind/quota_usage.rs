//! The usage that objects of a kind add to ResourceQuotas.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::object::Tree;
use crate::schema::Quantity;

/// The usage that objects of a kind add to ResourceQuotas. Every object counts as one under `count/foos.example.com`,
/// unless the kind is exempt.
#[derive(Clone, Copy, Debug, Default)]
pub enum QuotaUsage {
    /// No other usage.
    #[default]
    Count,
    /// Also counts as one under this name.
    CountAs(&'static str),
    /// Also counts the usage that this evaluator computes from an object.
    Evaluated(&'static dyn QuotaEvaluator),
    /// No usage at all.
    Exempt,
}

/// Computes the usage of the objects of a kind, same as the quota evaluators of Kubernetes.
pub trait QuotaEvaluator: fmt::Debug + Send + Sync {
    /// The usage of an object, from its JSON. The count of objects is added by the caller. The function is called for
    /// every change of an object, while no other change is published, so it must be fast.
    ///
    /// # Errors
    /// The JSON is not an object of the kind. A write of such an object is rejected if a quota applies to its namespace.
    fn usage(&self, json: &[u8]) -> Result<ObjectUsage, serde_json::Error>;

    /// Whether objects of the kind can use this resource, besides the count of objects.
    fn covers(&self, resource: &str) -> bool;

    /// Whether an update is charged. An update that is not charged is accepted, also if it increases the usage.
    fn charges_update(&self, _old: &Tree, _new: &Tree) -> bool {
        true
    }

    /// Returns the message if an object must specify more, because a quota limits these resources.
    fn missing(&self, _object: &Tree, _limited: &BTreeSet<&str>) -> Option<String> {
        None
    }
}

/// The usage of one object.
#[derive(Clone, Debug, Default)]
pub struct ObjectUsage {
    /// The amount of each resource, by the name of the resource.
    pub amounts: BTreeMap<String, Quantity>,
    /// The scopes of quotas that apply to the object.
    pub scopes: ObjectScopes,
}

/// The scopes of quotas that apply to an object. A quota with scopes limits the objects to which all its scopes apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectScopes {
    /// The scopes without values that apply, such as `BestEffort`.
    pub flags: BTreeSet<&'static str>,
    /// The values of the object for scopes with values, such as `PriorityClass`. An object without a class has an empty
    /// set.
    pub values: BTreeMap<&'static str, BTreeSet<String>>,
}
