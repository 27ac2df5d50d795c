//! Tests that converting an object to another version and back loses nothing.

use std::fmt;

use serde_json::{Value, json};

use super::{Convert, Stored, to_tree};
use crate::kind::{Kind, drop_null_fields};
use crate::object::{Tree, metadata, to_json};
use crate::schema;

/// An object that differs after a conversion to another version and back.
#[derive(Debug)]
#[non_exhaustive]
pub struct RoundTripError {
    /// The version of the object.
    pub from: String,
    /// The version to which the object was converted.
    pub through: String,
    /// The object, as JSON.
    pub object: String,
    /// The first difference, or the reason why the object cannot be converted.
    pub why: String,
}

impl fmt::Display for RoundTripError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, through, object, why } = self;
        write!(f, "from {from} to {through} and back: {why}: {object}")
    }
}

impl std::error::Error for RoundTripError {}

/// Checks that objects of a version are unchanged after a conversion to the hub and back, and objects of the hub after
/// a conversion to the version and back. The check also covers the other requirements of a server. A conversion must
/// not fail or panic, its result must be valid according to the schema, and it must not change names, labels or other
/// metadata. Objects without metadata get some. Use objects from a generator, such as `proptest` or `arbitrary`, and
/// known edge cases. The check stops at the first object that differs.
///
/// An annotation that one direction adds and the other direction removes is not a difference.
///
/// ```
/// # mod v1 {
/// #     use kube::CustomResource;
/// #     use schemars::JsonSchema;
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "example.com", version = "v1", kind = "Herd", namespaced)]
/// #     pub struct HerdSpec { pub heads: u32 }
/// # }
/// # mod v1alpha {
/// #     use kube::CustomResource;
/// #     use schemars::JsonSchema;
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "example.com", version = "v1alpha", kind = "Herd", namespaced)]
/// #     pub struct HerdSpec { pub heads: String }
/// # }
/// # use aggregated_apiserver::{Convert, Stored, Versions};
/// # use aggregated_apiserver::versions::ConversionError;
/// # impl Stored for v1::Herd {
/// #     fn versions() -> Versions<Self> { Versions::new().version::<v1alpha::Herd>() }
/// # }
/// # impl Convert<v1::Herd> for v1alpha::Herd {
/// #     fn into_hub(self) -> Result<v1::Herd, ConversionError> {
/// #         let spec = v1::HerdSpec { heads: self.spec.heads.parse()? };
/// #         Ok(v1::Herd { metadata: self.metadata, spec })
/// #     }
/// #     fn from_hub(hub: v1::Herd) -> Result<Self, ConversionError> {
/// #         let spec = v1alpha::HerdSpec { heads: hub.spec.heads.to_string() };
/// #         Ok(Self { metadata: hub.metadata, spec })
/// #     }
/// # }
/// use aggregated_apiserver::versions::check_round_trips;
///
/// let of_hub = [0, 1, u32::MAX].map(|heads| v1::Herd::new("a", v1::HerdSpec { heads }));
/// let spec = |heads: &str| v1alpha::HerdSpec { heads: heads.to_owned() };
/// let of_version = ["0", "31"].map(|heads| v1alpha::Herd::new("a", spec(heads)));
/// check_round_trips(of_version, of_hub).unwrap();
/// // One that is written in another way than it would be:
/// let fault = check_round_trips([v1alpha::Herd::new("a", spec("031"))], []).unwrap_err();
/// assert!(fault.to_string().contains(r#".spec.heads: "031" became "31""#));
/// ```
///
/// # Errors
/// The first object that differs after the conversions, and where it differs.
pub fn check_round_trips<V: Convert<H>, H: Stored>(
    of_version: impl IntoIterator<Item = V>,
    of_hub: impl IntoIterator<Item = H>,
) -> Result<(), RoundTripError> {
    let (version, hub) = (V::version(&()), H::version(&()));
    let merged = H::versions().merged();
    let fault = |why: String| RoundTripError {
        from: hub.to_string(),
        through: version.to_string(),
        object: String::new(),
        why,
    };
    if !merged.faults.is_empty() {
        return Err(fault(merged.faults.join(", ")));
    }
    let kind = Kind::parse(&merged.definition, None).map_err(|error| fault(error.to_string()))?;
    let kind = kind.with_conversion(merged.conversion.map(Into::into));
    for object in of_version {
        check(&kind, to_tree(&object).map(Value::Object), &version, &hub)?;
    }
    for object in of_hub {
        check(&kind, to_tree(&object).map(Value::Object), &hub, &version)?;
    }
    Ok(())
}

fn check(
    kind: &Kind,
    object: Result<Value, String>,
    from: &str,
    through: &str,
) -> Result<(), RoundTripError> {
    let fault = |object: &Value, why: String| RoundTripError {
        from: from.to_owned(),
        through: through.to_owned(),
        object: to_json(object),
        why,
    };
    let mut object = object.map_err(|why| fault(&Value::Null, why))?;
    let Value::Object(tree) = &mut object else { return Ok(()) };
    fill_in_metadata(kind, tree);
    if let Some(version) = kind.version_of(tree) {
        drop_null_fields(version.schema.root(), tree);
    }
    let there = shown(kind, tree, through).map_err(|why| fault(&object, why))?;
    let back = shown(kind, &there, from)
        .map_err(|why| fault(&object, format!("on the way back: {why}")))?;
    match difference("", &object, &Value::Object(back)) {
        Some(why) => Err(fault(&object, why)),
        None => Ok(()),
    }
}

/// Fills in the metadata that stored objects have. A conversion must not change it.
fn fill_in_metadata(kind: &Kind, tree: &mut Tree) {
    let namespace = kind.is_namespaced().then(|| json!("n"));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "v"});
    let members = [
        ("namespace", namespace),
        ("uid", Some(json!("u"))),
        ("generation", Some(json!(1))),
        ("creationTimestamp", Some(json!("2026-01-01T00:00:00Z"))),
        ("labels", Some(json!({"example.com/label": "x"}))),
        ("annotations", Some(json!({"example.com/annotation": "x"}))),
        ("finalizers", Some(json!(["example.com/finalizer"]))),
        ("ownerReferences", Some(json!([owner]))),
    ];
    metadata::edit(tree, |metadata| {
        for (name, value) in members {
            let Some(value) = value else { continue };
            match metadata.get_mut(name) {
                Some(Value::Object(given)) => {
                    given.extend(value.as_object().cloned().unwrap_or_default());
                }
                Some(Value::Null) | None => drop(metadata.insert(name.to_owned(), value)),
                Some(_) => {}
            }
        }
    });
}

/// Converts an object to another version as a server would do, and validates the result.
fn shown(kind: &Kind, tree: &Tree, version: &str) -> Result<Tree, String> {
    let shown = kind.convert_tree(tree, &kind.api_version(version));
    let mut shown = shown.map_err(|why| why.to_string())?.into_owned();
    let version = kind.version_of(&shown).ok_or("there is no such version")?;
    let of = version.schema.root();
    if let Some(unknown) = schema::prune(of, &mut shown).first() {
        return Err(format!("{}: {unknown} is not known", version.name));
    }
    match schema::validate(of, &shown).first() {
        Some(error) => Err(format!("{}: {error}", version.name)),
        None => Ok(shown),
    }
}

/// The first difference between two values, if there is one. Numbers are equal if they are equal as floats.
fn difference(path: &str, before: &Value, after: &Value) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let names =
                before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let at = format!("{path}.{name}");
                let value = |tree: &Tree| tree.get(name).cloned().unwrap_or_default();
                match (before.contains_key(name), after.contains_key(name)) {
                    (true, false) => Some(format!("{at}: {} is gone", to_json(&value(before)))),
                    (false, _) => Some(format!("{at}: {} was not there", to_json(&value(after)))),
                    _ => difference(&at, &value(before), &value(after)),
                }
            })
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let mut pairs = before.iter().zip(after).enumerate();
            pairs.find_map(|(at, (before, after))| {
                difference(&format!("{path}[{at}]"), before, after)
            })
        }
        (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => None,
        _ if before == after => None,
        _ => Some(format!("{path}: {} became {}", to_json(before), to_json(after))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_reported_with_their_path() {
        let rows = [
            (json!({"a": 1}), json!({"a": 1.0}), None),
            (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}), Some(".a[1].b: 2 became 3")),
            (json!({"a": [1]}), json!({"a": []}), Some(".a: [1] became []")),
            (json!({"a": null}), json!({}), Some(".a: null is gone")),
            (json!({}), json!({"a": "x"}), Some(".a: \"x\" was not there")),
        ];
        for (before, after, expected) in rows {
            assert_eq!(difference("", &before, &after).as_deref(), expected);
        }
    }
}
