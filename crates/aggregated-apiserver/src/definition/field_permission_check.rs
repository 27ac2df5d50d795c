//! Checks the declared field permissions of a kind against the results of its computation.

use std::any::TypeId;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use thiserror::Error;

use super::computed::Only;
use super::lookup::{AnyLookup, Related};
use super::{Computed, ComputedFromVariants, FieldPermissions, Variant, to_tree};

/// A field that is computed from a lookup without being declared in the [`FieldPermissions`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {what}", .resource)]
pub struct FieldPermissionError {
    resource: String,
    what: String,
}

/// Checks that the [`FieldPermissions`] of a kind declare all fields that depend on its lookups. The objects of a
/// source are computed with all lookups, and again without each looked-up type. A field that differs must be declared
/// for that type. `related` creates the lookups for each computation. A type without any declaration is not checked,
/// because nothing of it is visible without permission.
///
/// The check covers only the given objects: use objects with which every field gets a value.
///
/// # Errors
/// The undeclared fields, in the order of lookups.
///
/// ```
/// use aggregated_apiserver::{Computed, FieldPermissions, Lookup};
/// use aggregated_apiserver::computed::check_field_permissions;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use serde_json::{from_value, json};
///
/// /// A ConfigMap, and whether there is a Secret beside it.
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Pair", namespaced)]
/// pub struct PairSpec {
///     pub has_secret: Option<bool>,
///     pub keys: Option<usize>,
/// }
///
/// impl Computed for Pair {
///     type Source = ConfigMap;
///     type Related = Lookup<Secret>;
///
///     fn compute(map: &ConfigMap, secrets: &Lookup<Secret>) -> Option<Self> {
///         let name = map.metadata.name.as_deref()?;
///         let secret = secrets.get(map.metadata.namespace.as_deref(), name);
///         let keys = secret.as_ref().map(|secret| secret.data.iter().flatten().count());
///         Some(Self::new(name, PairSpec { has_secret: Some(secret.is_some()), keys }))
///     }
///
///     fn field_permissions() -> FieldPermissions {
///         FieldPermissions::new().protects_in_namespace::<Secret>(["spec.has_secret"])
///     }
/// }
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let metadata = json!({"namespace": "n", "name": "a"});
/// let map: ConfigMap = from_value(json!({"metadata": metadata}))?;
/// let secret: Secret = from_value(json!({"metadata": metadata, "data": {"key": "MQ=="}}))?;
/// let faults = check_field_permissions::<Pair>(&map, || Lookup::from_objects([secret.clone()]));
/// let faults = faults.err().unwrap_or_default();
/// assert_eq!(faults[0].to_string(), "secrets: show in fields that are not declared for them: spec.keys");
/// # Ok(())
/// # }
/// ```
pub fn check_field_permissions<K: Computed>(
    source: &K::Source,
    related: impl Fn() -> K::Related,
) -> Result<(), Vec<FieldPermissionError>> {
    check::<Only<K>>(&K::field_permissions(), source, related)
}

/// Same as [`check_field_permissions`], for one variant of a kind that is computed from several types.
///
/// # Errors
/// The undeclared fields, in the order of lookups.
pub fn check_variant_field_permissions<V>(
    source: &V::Source,
    related: impl Fn() -> V::Related,
) -> Result<(), Vec<FieldPermissionError>>
where
    V: Variant<Object: ComputedFromVariants>,
{
    check::<V>(&V::Object::field_permissions(), source, related)
}

fn check<V: Variant>(
    field_permissions: &FieldPermissions,
    source: &V::Source,
    related: impl Fn() -> V::Related,
) -> Result<(), Vec<FieldPermissionError>> {
    let shown = |left_out: Option<usize>| {
        let related = related();
        if let Some(lookup) = left_out.and_then(|place| related.lookups().into_iter().nth(place)) {
            lookup.make_unavailable();
        }
        let objects = V::compute_all(source, &related);
        // An object that cannot be serialized as JSON is never served.
        let trees = objects.iter().filter_map(|object| to_tree(object).ok());
        let mut trees: Vec<Value> = trees.map(Value::Object).collect();
        trees.sort_by_cached_key(|tree| {
            ["namespace", "name"].map(|of| tree["metadata"][of].to_string())
        });
        trees
    };
    let whole = shown(None);
    let mut faults = Vec::new();
    let kinds = V::Related::kinds();
    let types: Vec<TypeId> =
        related().lookups().into_iter().map(AnyLookup::type_of_objects).collect();
    for (place, type_id) in types.into_iter().enumerate() {
        // Objects that are found by references have no static kind, and all readers see them.
        let Some(kind) = kinds.iter().find(|kind| kind.type_id == type_id) else { continue };
        let Some(declared) = field_permissions.fields_of(type_id) else { continue };
        let mut fault = |what: String| {
            faults.push(FieldPermissionError { resource: kind.plural.clone(), what });
        };
        let without = shown(Some(place));
        if whole.len() != without.len() {
            fault("whether there is an object depends on them".to_owned());
            continue;
        }
        let mut differing = BTreeSet::new();
        for (whole, without) in whole.iter().zip(&without) {
            differ(String::new(), Some(whole), Some(without), &mut differing);
        }
        let is_declared = |path: &String| declared.iter().any(|one| leads_to(one, path));
        let forgotten: Vec<String> =
            differing.into_iter().filter(|path| !is_declared(path)).collect();
        if !forgotten.is_empty() {
            let forgotten = forgotten.join(", ");
            fault(format!("show in fields that are not declared for them: {forgotten}"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Whether a declared path covers another path: both are equal, or the other one is below it.
fn leads_to(declared: &str, path: &str) -> bool {
    path.strip_prefix(declared).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Adds the paths at which two values differ. An empty object counts as a missing one.
fn differ(path: String, one: Option<&Value>, other: Option<&Value>, found: &mut BTreeSet<String>) {
    if one == other {
        return;
    }
    match (one, other) {
        (Some(Value::Object(_)), Some(Value::Object(_)) | None)
        | (None, Some(Value::Object(_))) => {
            let members = [one, other].map(|value| value.and_then(Value::as_object));
            let names: BTreeSet<&String> =
                members.into_iter().flatten().flat_map(Map::keys).collect();
            for name in names {
                let separator = if path.is_empty() { "" } else { "." };
                let below = format!("{path}{separator}{name}");
                let [one, other] = members.map(|members| members?.get(name));
                differ(below, one, other, found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (one, other) in one.iter().zip(other) {
                differ(format!("{path}[*]"), Some(one), Some(other), found);
            }
        }
        _ => drop(found.insert(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Lookup;
    use crate::definition::computed::FanOut;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    /// A key of a ConfigMap, and whether a Secret of the same name exists.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Entry", namespaced)]
    struct EntrySpec {
        has_secret: Option<bool>,
    }

    impl Computed for Entry {
        type Source = ConfigMap;
        type Related = Lookup<Secret>;

        const FAN_OUT: FanOut = FanOut::Several;

        fn compute_all(map: &ConfigMap, secrets: &Lookup<Secret>) -> Vec<Self> {
            let namespace = map.metadata.namespace.as_deref();
            let secret = |name: &str| secrets.get(namespace, name).is_some();
            let entry = |name: &str| Self::new(name, EntrySpec { has_secret: Some(secret(name)) });
            let names = map.data.iter().flatten().map(|(name, _)| name);
            // An object with the prefix `only` exists if its Secret does.
            names
                .filter(|name| !name.starts_with("only") || secret(name))
                .map(|name| entry(name))
                .collect()
        }

        fn field_permissions() -> FieldPermissions {
            FieldPermissions::new().protects_in_namespace::<Secret>(["metadata.labels"])
        }
    }

    /// The errors for a ConfigMap with these keys and a Secret of the last key.
    fn check_entries(names: &[&str]) -> Vec<String> {
        let data: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!(""))).collect();
        let map = json!({"metadata": {"namespace": "n", "name": "a"}, "data": data});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let secret = json!({"metadata": {"namespace": "n", "name": names.last()}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let related = || Lookup::from_objects([secret.clone()]);
        let checked = check_field_permissions::<Entry>(&map, related);
        checked.err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_objects_of_a_source_are_checked() {
        let shown = "secrets: show in fields that are not declared for them: spec.has_secret";
        assert_eq!(check_entries(&["a", "b"]), [shown]);
        let exists = "secrets: whether there is an object depends on them";
        assert_eq!(check_entries(&["a", "only"]), [exists]);
    }

    fn check(one: &Value, other: &Value, expected: &[&str]) {
        for (one, other) in [(one, other), (other, one)] {
            let mut found = BTreeSet::new();
            differ(String::new(), Some(one), Some(other), &mut found);
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{one} {other}");
        }
    }

    #[test]
    fn differences_are_named_as_fields_are() {
        let one = json!({"a": 1, "b": {"c": 1, "d": {}}, "e": [{"f": 1, "g": 2}, {"f": 2}]});
        check(&one, &one, &[]);
        check(&one, &json!({"a": 2, "b": {"c": 1}, "e": one["e"]}), &["a"]);
        check(&one, &json!({"a": 1, "e": [{"f": 1}, {"f": 3}]}), &["b.c", "e[*].f", "e[*].g"]);
        check(&one, &json!({"a": 1, "b": one["b"], "e": [{"f": 1, "g": 2}]}), &["e"]);
        check(&one, &json!({"a": 1, "b": one["b"]}), &["e"]);
    }

    #[test]
    fn a_declared_path_covers_the_fields_below_it() {
        for (path, expected) in [
            ("a.b", true),
            ("a.b.c", true),
            ("a.b[*].c", true),
            ("a.bc", false),
            ("a", false),
            ("x.a.b", false),
        ] {
            assert_eq!(leads_to("a.b", path), expected, "{path}");
        }
        assert!(leads_to("a[*].b", "a[*].b.c") && !leads_to("a[*].b", "a"));
    }
}
