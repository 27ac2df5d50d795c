//! Turns objects of a backend into objects of the kind, and back.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::kind::Kind;
use crate::object::names::check_path_segment;
use crate::object::{Key, Object, Tree, metadata};
use crate::schema::{self, Malformed};

/// The largest object of a backend, in bytes of JSON; same as of stored objects.
const OBJECT_LIMIT: usize = 3 << 19;
/// The fields of the metadata that the library sets in each response.
const OF_RESPONSES: [&str; 2] = ["resourceVersion", "selfLink"];

/// Returns an object of a backend as an object of the kind. Metadata that the backend omits is taken from `metadata`.
///
/// # Errors
/// The reason why the object does not belong to the kind.
pub(super) fn to_object(
    kind: &Kind,
    tree: Tree,
    metadata: Option<&Tree>,
) -> Result<Object, String> {
    let mut tree = tree;
    check_type(kind, &tree)?;
    tree.insert("apiVersion".to_owned(), kind.api_version(&kind.storage.name).into());
    tree.insert("kind".to_owned(), kind.names.kind.clone().into());
    schema::coerce_metadata(&mut tree, Malformed::Refused)?;
    check_key(kind, &key(&tree))?;
    add_metadata(kind, &mut tree, metadata);
    schema::normalize(kind.storage.schema.root(), &mut tree, Malformed::Refused)?;
    let object = Object::from_tree(&tree).map_err(|error| error.to_string())?;
    if object.json_size() > OBJECT_LIMIT {
        return Err(format!("it has more than {OBJECT_LIMIT} bytes"));
    }
    kind.to_storage(object, &kind.storage).map_err(|error| error.to_string())
}

/// The key of an object of a backend.
pub(super) fn key(tree: &Tree) -> Key {
    let text = |field| Some(metadata::text(tree, field)).filter(|text| !text.is_empty());
    Key::new(text("namespace"), text("name").unwrap_or_default())
}

/// Whether two objects differ in their metadata alone.
pub(super) fn has_same_content(one: &Tree, other: &Tree) -> bool {
    let content = |tree: &Tree| -> Tree {
        let fields = tree.iter().filter(|(name, _)| *name != "metadata");
        fields.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    content(one) == content(other)
}

fn check_type(kind: &Kind, tree: &Tree) -> Result<(), String> {
    let stated = |field| tree.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let own = kind.api_version(&kind.storage.name);
    match (stated("apiVersion"), stated("kind")) {
        (Some(version), _) if version != own => {
            Err(format!("its apiVersion is {version}, and the backend must return {own}"))
        }
        (_, Some(name)) if name != kind.names.kind => {
            Err(format!("its kind is {name}, and the backend must return {}", kind.names.kind))
        }
        _ => Ok(()),
    }
}

fn check_key(kind: &Kind, key: &Key) -> Result<(), String> {
    let problems = |name: &str| match name {
        "" => vec!["it is empty".to_owned()],
        name => check_path_segment(name),
    };
    if let Some(why) = problems(key.name()).first() {
        return Err(format!("metadata.name: {why}"));
    }
    match key.namespace() {
        None if kind.is_namespaced() => Err("metadata.namespace: it must be set".to_owned()),
        Some(_) if !kind.is_namespaced() => {
            Err("metadata.namespace: it must not be set, because the kind is cluster-scoped".into())
        }
        Some(namespace) => match problems(namespace).first() {
            Some(why) => Err(format!("metadata.namespace: {why}")),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// Adds the metadata that the backend omits, and a uid that is the same in every process.
fn add_metadata(kind: &Kind, tree: &mut Tree, known: Option<&Tree>) {
    let key = key(tree);
    let created = metadata::text(tree, "creationTimestamp").to_owned();
    // An object with another uid or another creation time was deleted and created again.
    let is_other = |known: &&Tree| {
        ["uid", "creationTimestamp"].into_iter().any(|field| {
            let (one, other) = (metadata::text(tree, field), known.get(field));
            let other = other.and_then(Value::as_str).unwrap_or_default();
            !one.is_empty() && !other.is_empty() && one != other
        })
    };
    let known = known.filter(|known| !is_other(known)).cloned().unwrap_or_default();
    metadata::edit(tree, |metadata| {
        for field in OF_RESPONSES {
            metadata.remove(field);
        }
        metadata.retain(|_, value| !value.is_null());
        for (field, value) in known {
            if !OF_RESPONSES.contains(&&*field) {
                metadata.entry(field).or_insert(value);
            }
        }
        metadata.entry("uid").or_insert_with(|| uid(kind, &key, &created).into());
    });
}

/// A uid for an object whose backend has none.
fn uid(kind: &Kind, key: &Key, created: &str) -> String {
    let name = format!("{}/{key}/{created}", kind.qualified());
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
}

/// An object that holds only metadata, as it is stored for a backend that does not store it.
pub(super) fn metadata_only(object: &Object) -> Result<Arc<Object>, String> {
    let tree = object.to_tree();
    let fields = ["apiVersion", "kind", "metadata"];
    let tree: Tree = tree.into_iter().filter(|(name, _)| fields.contains(&&**name)).collect();
    Object::from_tree(&tree).map(Arc::new).map_err(|error| error.to_string())
}
