//! The order of steps that every write goes through.
//!
//! An object arrives as a tree. Its metadata is read, what its schema does not
//! know is pruned, the system's fields are stamped, the rules are checked; what
//! is left is encoded once.

mod field_validation;
mod metadata;
mod stamp;
mod validate;

pub use field_validation::FieldValidation;

use serde_json::Value;

use crate::ambient::Ambient;
use crate::error::{ApiError, FieldError, Reason, quote};
use crate::kind::{Kind, Version};
use crate::object::{Object, Tree};

/// The largest object that is kept; as etcd.
const OBJECT_LIMIT: usize = 3 << 19;

/// So many faults of one object are said; nobody mends more at a time.
const ERRORS_LIMIT: usize = 100;

/// An object as a client sent it.
#[derive(Debug)]
pub struct Submitted {
    /// The object.
    pub tree: Tree,
    /// Paths of members that were given more than once.
    pub duplicates: Vec<String>,
}

/// An object that may be kept, and what its author should know.
#[derive(Debug)]
pub struct Prepared {
    /// The object.
    pub object: Object,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Where its name comes from.
    pub name_origin: NameOrigin,
}

/// Where the name of an object comes from.
#[derive(Clone, Copy, Debug)]
pub struct NameOrigin {
    /// Whether it was made from a prefix.
    pub is_generated: bool,
    /// Whether a prefix was given, with a name or without.
    pub has_prefix: bool,
}

impl Prepared {
    /// The same object under another generated name.
    ///
    /// # Errors
    /// None that could be met: it was an object before.
    pub fn renamed(self, ambient: &Ambient) -> Result<Self, ApiError> {
        let mut tree = self.object.to_tree();
        stamp::rename(&mut tree, ambient);
        let object = Object::from_tree(&tree).map_err(ApiError::internal)?;
        Ok(Self { object, ..self })
    }
}

/// Prepares a new object of a kind for its namespace.
///
/// # Errors
/// What kube-apiserver answers, in its order: metadata of a wrong type (400),
/// unknown fields under `Strict` (400), another namespace than the path's
/// (400), then everything that validation finds (422).
pub fn prepare_new(
    kind: &Kind,
    version: &Version,
    namespace: Option<&str>,
    submitted: Submitted,
    field_validation: FieldValidation,
    ambient: &Ambient,
) -> Result<Prepared, ApiError> {
    let Submitted { mut tree, duplicates } = submitted;
    let given_kind = text(&tree, "kind");
    let unhandled = |why: &str| {
        let name = &kind.names.kind;
        let version = quote(&version.name);
        ApiError::bad_request(format!(
            "{name} in version {version} cannot be handled as a {name}: {why}"
        ))
    };
    let mut unknown = metadata::coerce(&mut tree).map_err(|why| unhandled(&why))?;
    let is_kind = given_kind == kind.names.kind;
    if is_kind {
        unknown.extend(version.schema.prune(&mut tree));
    }
    let warnings = field_validation::report(field_validation, duplicates, unknown)
        .map_err(|problems| unhandled(&format!("strict decoding error: {problems}")))?;
    let completed = complete(kind, version, namespace, tree, is_kind, ambient);
    match completed {
        Ok((object, name_origin)) => Ok(Prepared { object, warnings, name_origin }),
        Err(error) => Err(error.with_warnings(warnings)),
    }
}

/// Stamps a pruned tree, checks it and encodes it.
fn complete(
    kind: &Kind,
    version: &Version,
    namespace: Option<&str>,
    mut tree: Tree,
    is_kind: bool,
    ambient: &Ambient,
) -> Result<(Object, NameOrigin), ApiError> {
    check_namespace(&mut tree, namespace)?;
    stamp::refuse_revision(&tree)?;
    let is_generated = stamp::stamp(&mut tree, ambient);
    let name = metadata::name(&tree).to_owned();
    if !is_kind {
        let given_kind = text(&tree, "kind");
        let must = format!("must be {}", kind.names.kind);
        let error = FieldError::invalid("kind", quote(&given_kind), &must);
        return Err(ApiError::invalid(&kind.group, &given_kind, &name, vec![error]));
    }
    let mut errors = metadata::validate(&tree);
    errors.extend(validate::validate(&version.schema, &tree));
    errors.truncate(ERRORS_LIMIT);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&kind.group, &kind.names.kind, &name, errors));
    }
    let object = Object::from_tree(&tree).map_err(ApiError::internal)?;
    if object.json_size() > OBJECT_LIMIT {
        let message = format!("Request entity too large: limit is {OBJECT_LIMIT}");
        return Err(ApiError::new(Reason::RequestEntityTooLarge, message));
    }
    let has_prefix = metadata::prefix(&tree).is_some();
    Ok((object, NameOrigin { is_generated, has_prefix }))
}

/// Prepares an object that a new store begins with; it keeps its own uid.
///
/// # Errors
/// What is wrong with it.
pub fn prepare_initial(
    kind: &Kind,
    version: &Version,
    tree: Tree,
    ambient: &Ambient,
) -> Result<Object, ApiError> {
    let text = |field: &str| {
        let metadata = tree.get("metadata").and_then(Value::as_object);
        metadata.and_then(|metadata| metadata.get(field)?.as_str()).map(str::to_owned)
    };
    let namespace = text("namespace");
    let uid = text("uid");
    if namespace.is_some() != kind.is_namespaced() {
        let scope = if kind.is_namespaced() { "must be set" } else { "must not be set" };
        return Err(ApiError::bad_request(format!("metadata.namespace: {scope}")));
    }
    let submitted = Submitted { tree, duplicates: Vec::new() };
    let strict = FieldValidation::Strict;
    let prepared = prepare_new(kind, version, namespace.as_deref(), submitted, strict, ambient)?;
    let Some(uid) = uid else { return Ok(prepared.object) };
    let mut tree = prepared.object.to_tree();
    metadata::edit(&mut tree, |metadata| {
        metadata.insert("uid".to_owned(), uid.into());
    });
    Object::from_tree(&tree).map_err(ApiError::internal)
}

/// Fills in the namespace of the path; another one is refused.
fn check_namespace(tree: &mut Tree, namespace: Option<&str>) -> Result<(), ApiError> {
    let given = tree.get("metadata").and_then(|metadata| metadata["namespace"].as_str());
    if namespace.is_some() && given.is_some() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata::edit(tree, |metadata| {
        match namespace {
            Some(namespace) => metadata.insert("namespace".to_owned(), namespace.into()),
            None => metadata.remove("namespace"),
        };
    });
    Ok(())
}

fn text(tree: &Tree, field: &str) -> String {
    tree.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
