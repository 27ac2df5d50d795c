//! Turns objects of a backend into objects of the kind, and back.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::metadata_store::{CONTENT_HASH, FIRST_SEEN};
use super::origin::{self, Former, OF_RESPONSES};
use crate::error::FieldError;
use crate::kind::Kind;
use crate::log_throttle::{LogThrottle, shown};
use crate::object::names::check_path_segment;
use crate::object::{Key, Object, Tree, metadata, write_json};
use crate::schema::{self, Malformed};

/// Throttles the log about objects that do not belong to their kind.
static UNFIT: LogThrottle = LogThrottle::at_most(5);

/// The tree of an object without its managed fields, and the managed fields as JSON.
pub(super) type Parts = (Tree, Bytes);

/// The field that is not in the tree of [`Parts`].
const MANAGED_FIELDS: &str = "managedFields";

/// The fields of the metadata that each record has.
const IDENTITY: [&str; 3] = ["name", "namespace", "uid"];

/// Returns an object of a backend as an object of the kind. `kept` are the fields of the metadata that the backend stores:
/// they are not added.
///
/// # Errors
/// The reason why the object does not belong to the kind.
pub(super) fn to_object(
    kind: &Kind,
    tree: Tree,
    former: Former<'_>,
    kept: &[String],
) -> Result<Object, String> {
    let mut tree = tree;
    check_type(kind, &tree)?;
    tree.insert("apiVersion".to_owned(), kind.api_version(&kind.storage.name).into());
    tree.insert("kind".to_owned(), kind.names.kind.clone().into());
    schema::coerce_metadata(&mut tree, Malformed::Refused)?;
    check_key(kind, &tree)?;
    origin::add_metadata(kind, &mut tree, former, kept);
    schema::normalize(kind.storage.schema.root(), &mut tree, Malformed::Refused)?;
    check_values(kind, &tree)?;
    origin::add_generation(kind, &mut tree, former);
    let object = Object::from_tree(&tree).map_err(|error| error.to_string())?;
    if object.json_size() > Object::LIMIT {
        return Err(format!("it has more than {} bytes", Object::LIMIT));
    }
    kind.to_storage(object, &kind.storage).map_err(|error| error.to_string())
}

/// Rejects values of types that the schema does not have, because typed clients cannot decode them. Other rules of the
/// schema are not checked, as for stored objects that are older than their definition.
fn check_values(kind: &Kind, tree: &Tree) -> Result<(), String> {
    let errors = schema::validate(kind.storage.schema.root(), tree);
    match errors.into_iter().find(FieldError::blocks_rules) {
        Some(error) => Err(error.to_string()),
        None => Ok(()),
    }
}

/// Logs an object that does not belong to the kind.
pub(super) fn log_unfit(kind: &Kind, key: &Key, why: &str) {
    UNFIT.log(|suppressed| {
        let (kind, object, error) = (kind.qualified(), shown(key), shown(why));
        tracing::error!(suppressed, kind, object, error, "ignored object of the backend");
    });
}

/// The key of an object of a backend.
pub(super) fn key(tree: &Tree) -> Key {
    let text = |field| Some(metadata::text(tree, field)).filter(|text| !text.is_empty());
    Key::new(text("namespace"), text("name").unwrap_or_default())
}

/// Sets the name and the namespace of an object that a backend has returned without them.
pub(super) fn fill_key(tree: &mut Tree, key: &Key) {
    let fields = [("name", Some(key.name())), ("namespace", key.namespace())];
    metadata::edit(tree, |metadata| {
        for (field, text) in fields {
            let is_missing = metadata.get(field).is_none_or(|value| value.is_null() || value == "");
            if let Some(text) = text.filter(|_| is_missing) {
                metadata.insert(field.to_owned(), text.into());
            }
        }
    });
}

/// The fields of the metadata of an object that its backend stores, besides those that identify the object.
pub(super) fn metadata_fields(tree: &Tree) -> Vec<String> {
    const OF_ALL: [&str; 7] = [
        "creationTimestamp",
        "generateName",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    let fields = metadata::of(tree).iter();
    let fields =
        fields.filter(|(name, value)| !value.is_null() && !OF_ALL.contains(&name.as_str()));
    fields.map(|(name, _)| name.clone()).collect()
}

/// Whether two objects differ only in the metadata that the backend does not store. `kept` are the fields of the metadata
/// that it stores.
pub(super) fn is_same_for_backend(one: &Tree, other: &Tree, kept: &[String]) -> bool {
    let content = |tree: &Tree| -> Tree {
        let fields = tree.iter().filter(|(name, _)| *name != "metadata");
        fields.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let has_field = |tree: &Tree, field: &String| metadata::of(tree).get(field).cloned();
    content(one) == content(other)
        && kept.iter().all(|field| has_field(one, field) == has_field(other, field))
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

fn check_key(kind: &Kind, tree: &Tree) -> Result<(), String> {
    let problems = |name: &str| match name {
        "" => vec!["it is empty".to_owned()],
        name => check_path_segment(name),
    };
    if let Some(why) = problems(metadata::text(tree, "name")).first() {
        return Err(format!("metadata.name: {why}"));
    }
    let namespace = Some(metadata::text(tree, "namespace")).filter(|text| !text.is_empty());
    match namespace {
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

/// An object that holds only the metadata that the backend does not store, and the hash of the object for which its
/// generation holds. `kept` are the fields that the backend stores. `is_timeless` says whether the backend has returned the
/// object without a creation time.
pub(super) fn record(
    kind: &Kind,
    (tree, managed_fields): &Parts,
    kept: &[String],
    is_timeless: bool,
) -> Result<Arc<Object>, String> {
    let is_kept = |name: &str| kept.iter().any(|kept| kept == name);
    let fields = metadata::of(tree).iter();
    let fields = fields.filter(|(name, _)| IDENTITY.contains(&&***name) || !is_kept(name));
    let metadata: Tree = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut record = Tree::new();
    for field in ["apiVersion", "kind"] {
        record.extend(tree.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    if origin::generation_of(&metadata).is_some() {
        let hash = origin::content_hash(kind, tree);
        record.insert(CONTENT_HASH.to_owned(), hash.into());
    }
    if is_timeless {
        record.insert(FIRST_SEEN.to_owned(), true.into());
    }
    record.insert("metadata".to_owned(), metadata.into());
    let managed_fields = if is_kept(MANAGED_FIELDS) { &[] } else { &**managed_fields };
    let record = Object::from_parts(&record, managed_fields);
    record.map(Arc::new).map_err(|error| error.to_string())
}

/// Whether a backend has returned the object that it has received, so that [`to_object`] would return that object. `parts`
/// are the parts of the sent object if the library stores the metadata that the backend omits. `kept` are the fields that
/// the backend stores.
pub(super) fn is_as_sent(
    kind: &Kind,
    (sent, parts): (&Object, Option<&Parts>),
    returned: &Tree,
    (known, kept): (Option<&Object>, &[String]),
) -> bool {
    let metadata = metadata::of(returned);
    // An object in another version than the storage version may have been sent without defaults.
    let has_others = kind.versions.iter().any(|version| version.name != kind.storage.name);
    if has_others || sent.json_size() > Object::LIMIT {
        return false;
    }
    // The generation of a known object depends on its content.
    let is_numbered = !kind.strategy.has_generation || origin::generation_of(metadata).is_some();
    match parts {
        Some((tree, _)) if !metadata.contains_key(MANAGED_FIELDS) => {
            (is_numbered || known.is_none() && kind.strategy.has_generation)
                && !kept.iter().any(|field| field == MANAGED_FIELDS)
                && is_part_of(returned, tree, kept)
        }
        _ if is_numbered => {
            let mut json = Vec::with_capacity(sent.json_size());
            write_json(&mut json, returned);
            json == *sent.json()
        }
        _ => false,
    }
}

/// Whether an object is equal to another one, except for metadata that it omits and that its backend does not store.
fn is_part_of(returned: &Tree, sent: &Tree, kept: &[String]) -> bool {
    let (some, all) = (metadata::of(returned), metadata::of(sent));
    let mut fields = returned.iter().filter(|(name, _)| *name != "metadata");
    let mut present = some.iter().filter(|(_, value)| !value.is_null());
    let mut omitted = all.keys().filter(|name| some.get(*name).is_none_or(Value::is_null));
    returned.len() == sent.len()
        && returned.get("metadata").is_some_and(Value::is_object)
        && fields.all(|(name, value)| sent.get(name) == Some(value))
        && present.all(|(name, value)| all.get(name) == Some(value))
        && omitted.all(|name| !kept.contains(name) && !OF_RESPONSES.contains(&&**name))
}
