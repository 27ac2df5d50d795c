//! Conversion between versions of a kind by Rust code. The types are erased: the code receives JSON and converts
//! through one type, the hub.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::erased_validation::whole_floats_to_integers;
use super::{PrunedJson, Unconvertible};
use crate::log_throttle::{LogThrottle, shown};
use crate::object::names::{check_label_key, check_label_value};
use crate::object::{Tree, metadata};
use crate::quota;
use crate::schema::Type;

/// Throttles log lines about panics to a few per minute: one for each of a few invalid objects.
static PANICKED: LogThrottle = LogThrottle::at_most(5);

/// An object as the type to and from which all versions are converted.
pub type Hub = Box<dyn Any>;

type Read = Box<dyn Fn(&Tree) -> Result<Hub, Unconvertible> + Send + Sync>;
type Write = Box<dyn Fn(Hub) -> Result<Value, Unconvertible> + Send + Sync>;
type ReadJson = Box<dyn Fn(&str) -> Option<Hub> + Send + Sync>;
type WriteJson = Box<dyn Fn(Hub, Type<'_>) -> Option<PrunedJson> + Send + Sync>;

/// The largest size of all annotations of an object in bytes, same as in kube-apiserver.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// The code that converts objects of one version to and from the hub.
pub struct VersionCode {
    /// The version, such as `v1alpha`.
    pub version: String,
    /// Converts an object of the version to the hub.
    pub read: Read,
    /// Converts the hub to an object of the version.
    pub write: Write,
    /// The conversion without trees, if the types are known.
    pub direct: Option<DirectCode>,
}

/// The code that converts JSON of one version to and from the hub. It may decline any object, which is then converted
/// with a tree.
pub struct DirectCode {
    /// Converts the JSON of an object of the version to the hub.
    pub read: ReadJson,
    /// Converts the hub to the JSON of an object of the version, pruned according to a type.
    pub write: WriteJson,
}

/// Conversion between all versions of a kind.
pub struct ErasedConversion(Vec<VersionCode>);

impl ErasedConversion {
    /// Creates the conversion between these versions.
    pub fn new(versions: Vec<VersionCode>) -> Self {
        Self(versions)
    }

    /// Converts the JSON of an object between two versions. The result is pruned according to its type. `None` if the
    /// conversion must be tried with trees.
    pub(super) fn convert_json(
        &self,
        json: &str,
        (from, to): (&str, &str),
        of: Type<'_>,
    ) -> Option<PrunedJson> {
        let code = |name: &str| {
            let found = self.0.iter().find(|code| code.version == name);
            found.and_then(|code| code.direct.as_ref())
        };
        let (from, to) = (code(from)?, code(to)?);
        let converted = || (to.write)((from.read)(json)?, of);
        // A panic is not logged here: the object is converted again with a tree, which panics again and is logged.
        catch_unwind(AssertUnwindSafe(converted)).ok().flatten()
    }

    /// Converts an object between two versions, named like `v1alpha`. The result has this `api_version`. Annotations
    /// are the only metadata that the code may change.
    ///
    /// # Errors
    /// The reason, if the code fails, panics or returns another object.
    pub fn convert(
        &self,
        mut tree: Tree,
        (from, to): (&str, &str),
        api_version: String,
    ) -> Result<Tree, Unconvertible> {
        let code = |name: &str| {
            let found = self.0.iter().find(|code| code.version == name);
            found.ok_or_else(|| format!("there is no conversion of version {name}"))
        };
        let (from, to) = (code(from)?, code(to)?);
        whole_floats_to_integers(&mut tree);
        let converted = || (from.read)(&tree).and_then(&to.write);
        // The user's code may panic, and no caller on the way to the response catches a panic.
        let converted = catch_unwind(AssertUnwindSafe(converted)).map_err(|_| {
            // Every read converts the object again, so the log line is throttled.
            PANICKED.log(|suppressed| {
                let name = shown(metadata::name(&tree));
                tracing::error!(
                    suppressed,
                    object = %name,
                    version = %api_version,
                    "panic in a conversion"
                );
            });
            "the conversion panicked".to_owned()
        });
        let Value::Object(mut converted) = converted?? else {
            return Err("the conversion has made no object".to_owned().into());
        };
        if quota::of_tree(&converted) > quota::TREE_LIMIT {
            let limit = quota::TREE_LIMIT;
            return Err(format!("the conversion has made more than {limit} bytes").into());
        }
        converted.insert("apiVersion".to_owned(), api_version.into());
        give_back_metadata(tree, &mut converted)?;
        Ok(converted)
    }
}

impl fmt::Debug for ErasedConversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = self.0.iter().map(|code| &code.version);
        f.debug_list().entries(versions).finish()
    }
}

/// Restores the metadata of a converted object, except for its annotations.
///
/// # Errors
/// If the result is another object, or its metadata is invalid.
pub(super) fn give_back_metadata(original: Tree, converted: &mut Tree) -> Result<(), String> {
    hand_on_metadata(&original, converted);
    check_same(&original, converted)?;
    restore_metadata(original, converted, Changeable::Annotations)
}

/// Rejects a result that is another object, with kube-apiserver's message for webhooks.
pub(super) fn check_same(original: &Tree, converted: &Tree) -> Result<(), String> {
    fn kind(tree: &Tree) -> &str {
        tree.get("kind").and_then(Value::as_str).unwrap_or_default()
    }
    let compared = [
        ("kind", kind(original), kind(converted)),
        ("name", metadata::name(original), metadata::name(converted)),
        (
            "namespace",
            metadata::text(original, "namespace"),
            metadata::text(converted, "namespace"),
        ),
        ("UID", metadata::text(original, "uid"), metadata::text(converted, "uid")),
    ];
    match compared.into_iter().find(|(_, before, after)| before != after) {
        Some((what, before, after)) => {
            Err(format!("must have the same {what}: {before} != {after}"))
        }
        None => Ok(()),
    }
}

/// Copies the metadata of the original object into a converted object that has at most a name, because such a
/// conversion ignores metadata.
fn hand_on_metadata(original: &Tree, converted: &mut Tree) {
    let has_name_alone = |made: &Value| {
        let mut names = made.as_object().into_iter().flat_map(Tree::keys);
        names.all(|name| name == "name")
    };
    // Code can remove annotations on purpose. It cannot remove other metadata.
    let may_be_lost = |name: &String| matches!(name.as_str(), "name" | "annotations");
    if let (Some(given), Some(made)) = (original.get("metadata"), converted.get_mut("metadata"))
        && has_name_alone(made)
        && made.get("name").is_none_or(|name| Some(name) == given.get("name"))
        && given.as_object().is_some_and(|given| !given.keys().all(may_be_lost))
    {
        *made = given.clone();
    }
}

/// The metadata that a conversion may change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Changeable {
    /// Only annotations. Objects are found by their stored labels in all versions.
    Annotations,
    /// Labels and annotations. Label selectors match the labels of the requested version.
    LabelsAndAnnotations,
}

/// Restores the metadata of a converted object, except for the parts that the conversion may change.
pub(super) fn restore_metadata(
    mut original: Tree,
    converted: &mut Tree,
    changeable: Changeable,
) -> Result<(), String> {
    let Some(mut kept) = original.remove("metadata") else {
        converted.remove("metadata");
        return Ok(());
    };
    let Some(Value::Object(mut made)) = converted.remove("metadata") else {
        return Err("missing metadata in converted object".to_owned());
    };
    // For Rust types, an empty value equals a missing one.
    fn given(value: Option<&Value>) -> Option<&Value> {
        let value = value.filter(|value| !value.is_null())?;
        value.as_object().is_none_or(|members| !members.is_empty()).then_some(value)
    }
    for map in ["labels", "annotations"] {
        check_texts(map, made.get(map))?;
    }
    let is_changed = |map: &str| given(kept.get(map)) != given(made.get(map));
    let changed: Vec<&str> =
        ["labels", "annotations"].into_iter().filter(|&map| is_changed(map)).collect();
    if changed.contains(&"labels") && changeable == Changeable::Annotations {
        return Err("metadata.labels: a conversion may not change them".to_owned());
    }
    for map in changed {
        let Some(members) = kept.as_object_mut() else { break };
        match made.remove(map).filter(|made| given(Some(made)).is_some()) {
            Some(texts) => {
                match map {
                    "labels" => check_labels(&texts)?,
                    _ => check_annotations(&texts)?,
                }
                members.insert(map.to_owned(), texts);
            }
            None => drop(members.remove(map)),
        }
    }
    converted.insert("metadata".to_owned(), kept);
    Ok(())
}

/// Rejects a value that is not a map of strings, with kube-apiserver's message: clients could not decode it.
fn check_texts(map: &str, made: Option<&Value>) -> Result<(), String> {
    fn type_name(value: &Value) -> &'static str {
        match value {
            Value::Null => "<nil>",
            Value::Bool(_) => "bool",
            Value::Number(number) if number.is_f64() => "float64",
            Value::Number(_) => "int64",
            Value::String(_) => "string",
            Value::Array(_) => "[]interface {}",
            Value::Object(_) => "map[string]interface {}",
        }
    }
    match made {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(members)) => {
            match members.iter().find(|(_, value)| !value.is_string()) {
                Some((key, value)) => Err(format!(
                    "metadata.{map}[{key}] must be a string, but is {} in converted object",
                    type_name(value)
                )),
                None => Ok(()),
            }
        }
        Some(other) => {
            Err(format!("invalid metadata.{map} of type {} in converted object", type_name(other)))
        }
    }
}

fn check_labels(labels: &Value) -> Result<(), String> {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let faults = [(key.as_str(), check_label_key(key)), (value, check_label_value(value))];
        for (text, faults) in faults {
            if let Some(why) = faults.first() {
                return Err(format!("metadata.labels: Invalid value: {text:?}: {why}"));
            }
        }
    }
    Ok(())
}

fn check_annotations(annotations: &Value) -> Result<(), String> {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        if let Some(why) = check_label_key(&key.to_lowercase()).first() {
            return Err(format!("metadata.annotations: Invalid value: {key:?}: {why}"));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        let limit = ANNOTATIONS_LIMIT;
        return Err(format!("metadata.annotations: Too long: may not be more than {limit} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Creates the converted object.
    type Change = fn(Value) -> Result<Value, String>;

    /// A conversion with this code for objects of `v1`.
    fn conversion(change: Change) -> ErasedConversion {
        let code = |version: &str, write: Write| VersionCode {
            version: version.to_owned(),
            read: Box::new(|object| Ok(Box::new(Value::Object(object.clone())) as Hub)),
            write,
            direct: None,
        };
        let value = |hub: Hub| hub.downcast::<Value>().map(|value| *value).unwrap();
        ErasedConversion::new(vec![
            code("v1", Box::new(move |hub| Ok(value(hub)))),
            code("v2", Box::new(move |hub| Ok(change(value(hub))?))),
        ])
    }

    fn object() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "generation": 3,
                "labels": {"x": "y"}, "annotations": {"a": "b"},
            },
            "size": 1,
        })
    }

    fn convert(change: Change) -> Result<Value, String> {
        let tree = object().as_object().cloned().unwrap();
        let converted = conversion(change).convert(tree, ("v1", "v2"), "example.com/v2".to_owned());
        converted.map(Value::Object).map_err(|why| why.to_string())
    }

    #[test]
    fn conversion_code_can_change_annotations_but_not_system_metadata() {
        let converted = convert(|mut object| {
            object["size"] = json!("1");
            object["metadata"]["generation"] = json!(99);
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            object["metadata"]["annotations"] = json!({"c": "d"});
            Ok(object)
        });
        let mut expected = object();
        expected["apiVersion"] = json!("example.com/v2");
        expected["size"] = json!("1");
        expected["metadata"]["annotations"] = json!({"c": "d"});
        assert_eq!(converted, Ok(expected));
    }

    #[test]
    fn metadata_omitted_by_conversion_code_is_preserved() {
        let made: [fn(Value) -> Result<Value, String>; 2] = [
            |mut object| {
                object["metadata"] = json!({"name": "a"});
                Ok(object)
            },
            |mut object| {
                object["metadata"] = json!({});
                Ok(object)
            },
        ];
        for made in made {
            assert_eq!(convert(made).unwrap()["metadata"], object()["metadata"]);
        }
        // If annotations are the only metadata besides the name, their removal is intended.
        let mut tree = object();
        tree["metadata"] = json!({"name": "a", "annotations": {"a": "b"}});
        let tree = tree.as_object().cloned().unwrap();
        let converted = conversion(made[0]).convert(tree, ("v1", "v2"), "v2".to_owned()).unwrap();
        assert_eq!(converted["metadata"], json!({"name": "a"}));
    }

    #[test]
    fn empty_annotations_are_removed_after_conversion() {
        for none in [json!({}), Value::Null] {
            let of_none = none.clone();
            let mut tree = object();
            tree["metadata"]["labels"] = Value::Null;
            let changed = conversion(|mut object| {
                let none = object["none"].take();
                object["metadata"]["annotations"] = none;
                Ok(object)
            });
            tree["none"] = of_none;
            let tree = tree.as_object().cloned().unwrap();
            let converted = changed.convert(tree, ("v1", "v2"), "example.com/v2".to_owned());
            assert_eq!(converted.unwrap()["metadata"].get("annotations"), None);
        }
    }

    #[test]
    fn another_object_is_refused() {
        let rows: [(Change, &str); 9] = [
            (|_| Err("it is too heavy".to_owned()), "it is too heavy"),
            (|_| panic!("wrong"), "the conversion panicked"),
            (|_| Ok(json!(3)), "the conversion has made no object"),
            (
                |mut object| {
                    object["kind"] = json!("Bar");
                    Ok(object)
                },
                "must have the same kind: Foo != Bar",
            ),
            (
                |mut object| {
                    object["metadata"]["name"] = json!("b");
                    Ok(object)
                },
                "must have the same name: a != b",
            ),
            (
                |mut object| {
                    object["metadata"]["namespace"] = json!("m");
                    Ok(object)
                },
                "must have the same namespace: n != m",
            ),
            (
                |mut object| {
                    object["metadata"]["uid"] = json!("v");
                    Ok(object)
                },
                "must have the same UID: u != v",
            ),
            (
                |mut object| {
                    object["metadata"]["labels"] = json!({"x": "z"});
                    Ok(object)
                },
                "metadata.labels: a conversion may not change them",
            ),
            (
                |mut object| {
                    object["metadata"]["annotations"] = json!({"-": "b"});
                    Ok(object)
                },
                "metadata.annotations: Invalid value: \"-\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
        ];
        for (change, expected) in rows {
            assert_eq!(convert(change), Err(expected.to_owned()));
        }
    }

    #[test]
    fn conversion_code_receives_whole_floats_as_integers() {
        let mut tree = object().as_object().cloned().unwrap();
        tree.insert("size".to_owned(), json!(2.0));
        let whole = conversion(|object| match object["size"].is_i64() {
            true => Ok(object),
            false => Err("is no whole number".to_owned()),
        });
        assert!(whole.convert(tree, ("v1", "v2"), "example.com/v2".to_owned()).is_ok());
    }
}
