//! Decode: turns a submitted object into a draft, and checks that it matches the path.

use super::attributes::Attributes;
use super::draft::{Draft, Submitted};
use super::live::Live;
use super::sent_managers::{SentManagers, is_emptied};
use super::{FieldValidation, field_validation, owners, text};
use crate::error::{ApiError, quote};
use crate::kind::{Kind, StoragePrefix, Version};
use crate::object::{Key, Tree, metadata};
use crate::schema::{self, Malformed};

/// Drops the fields that the kind does not define, and fills in the defaults of the kind.
///
/// # Errors
/// 400 for metadata of a wrong type, and for unknown fields under `Strict`.
pub fn decode(
    kind: &Kind,
    version: &Version,
    validation: FieldValidation,
    submitted: Submitted,
) -> Result<Draft, ApiError> {
    let Submitted { mut tree, duplicates, json, managed_fields } = submitted;
    // Messages about a custom resource contain the kind that the object states.
    let name = match kind.is_typed() {
        true => kind.names.kind.clone(),
        false => text(&tree, "kind").to_owned(),
    };
    let unhandled = |why: &str| {
        let version = quote(&version.name);
        ApiError::bad_request(format!(
            "{name} in version {version} cannot be handled as a {name}: {why}"
        ))
    };
    let is_emptied = kind.is_typed() && is_emptied(&tree);
    let (is_kind, unknown) = prune(kind, version, &mut tree).map_err(|why| unhandled(&why))?;
    let (problems, unknown) = match json {
        Some(json) if is_kind && !(duplicates.is_empty() && unknown.is_empty()) => {
            match schema::strict_problems(version.schema.root(), &json) {
                Some(problems) => (problems, Vec::new()),
                None => (duplicates, unknown),
            }
        }
        _ => (duplicates, unknown),
    };
    let mut warnings = field_validation::report(validation, problems, unknown)
        .map_err(|problems| unhandled(&format!("strict decoding error: {problems}")))?;
    warnings.extend(owners::without_duplicates(&mut tree, owners::Found::InTheRequest));
    let (tree, of_tree) = SentManagers::of(tree);
    let sent_managers = match managed_fields {
        _ if is_emptied => SentManagers::reset(),
        Some(managed_fields) => SentManagers::of_text(managed_fields),
        None => of_tree,
    };
    Ok(Draft { sent_managers, ..Draft::new(tree, is_kind, warnings) })
}

/// Drops unknown fields. Returns whether the object is of the kind, and the paths of the dropped fields.
pub(super) fn prune(
    kind: &Kind,
    version: &Version,
    tree: &mut Tree,
) -> Result<(bool, Vec<String>), String> {
    let is_kind = text(tree, "kind") == kind.names.kind;
    let of = version.schema.root();
    let mut unknown = Vec::new();
    if !(is_kind && of.go.is_some()) {
        unknown.extend(schema::coerce_metadata(tree, Malformed::Refused)?);
    }
    if is_kind {
        unknown.extend(schema::normalize(of, tree, Malformed::Refused)?);
    }
    Ok((is_kind, unknown))
}

/// Sets the namespace of the path. Another namespace in the object is rejected with 400.
pub(super) fn check_namespace(tree: &mut Tree, namespace: Option<&str>) -> Result<(), ApiError> {
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

/// Rejects the body of a subresource request if it is for another namespace or of another kind.
///
/// # Errors
/// 400 with the reason.
pub fn check_posted(
    attributes: &Attributes<'_>,
    kind: &Kind,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    if !draft.is_kind {
        return Err(ApiError::bad_request(format!("the object is no {}", kind.names.kind)));
    }
    check_namespace(&mut draft.tree, attributes.namespace)
}

/// Rejects an object whose namespace or name does not match the path.
///
/// # Errors
/// 400 with the reason.
pub(super) fn check_identity(tree: &mut Tree, key: &Key) -> Result<(), ApiError> {
    check_namespace(tree, key.namespace())?;
    let (given, name) = (metadata::name(tree), key.name());
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Rejects an object with a uid other than this one, which is empty if there is no object yet.
///
/// # Errors
/// 409 if the uids differ.
pub(super) fn check_uid(
    attributes: &Attributes<'_>,
    tree: &Tree,
    uid: &str,
) -> Result<(), ApiError> {
    let given = metadata::text(tree, "uid");
    if given.is_empty() || given == uid {
        return Ok(());
    }
    let cause = format!("UID in precondition: {given}, UID in object meta: {uid}");
    Err(precondition_failed(attributes, &cause))
}

/// Rejects the apply of an object with a uid if no object exists. If the existing object has another uid, validation
/// reports it.
///
/// # Errors
/// 409 if no object exists.
pub(super) fn check_applied_uid(
    attributes: &Attributes<'_>,
    tree: &Tree,
    uid: &str,
) -> Result<(), ApiError> {
    let given = metadata::text(tree, "uid");
    if given.is_empty() || !uid.is_empty() {
        return Ok(());
    }
    let kind = attributes.kind();
    let name = attributes.name.unwrap_or_default();
    let cause = format!(
        "uid mismatch: the provided object specified uid {given}, and no existing object was found"
    );
    Err(ApiError::conflict(&kind.group, &kind.names.plural, name, &cause))
}

/// Rejects the body of a subresource request if its uid or resourceVersion differs from that of the object.
///
/// # Errors
/// 409 if one of them differs.
pub fn check_preconditions(
    attributes: &Attributes<'_>,
    posted: &Tree,
    live: &Live,
) -> Result<(), ApiError> {
    check_uid(attributes, posted, live.uid())?;
    let (given, own) = (metadata::text(posted, "resourceVersion"), &live.revision);
    if given.is_empty() || given == own {
        return Ok(());
    }
    let cause =
        format!("ResourceVersion in precondition: {given}, ResourceVersion in object meta: {own}");
    Err(precondition_failed(attributes, &cause))
}

fn precondition_failed(attributes: &Attributes<'_>, cause: &str) -> ApiError {
    let kind = attributes.kind();
    let (group, plural, key) = (&kind.group, &kind.names.plural, attributes.key());
    let prefix = match kind.strategy.storage_prefix {
        StoragePrefix::Named(name) => name.to_owned(),
        StoragePrefix::Resource => plural.clone(),
        StoragePrefix::GroupAndResource => format!("{group}/{plural}"),
    };
    let cause = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{prefix}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {cause}"
    );
    ApiError::conflict(group, plural, key.name(), &cause)
}
