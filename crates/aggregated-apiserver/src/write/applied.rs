//! Server-side apply: computes the object that results from an apply request.

use std::borrow::Cow;

use super::attributes::{Attributes, Part};
use super::decode::{check_identity, check_uid};
use super::draft::Draft;
use super::field_managers::{SET, before, before_first_apply, is_current, manager, versions};
use super::field_validation::FieldValidation;
use super::live::Live;
use super::{last_applied, scale, scale_managers, text};
use crate::apply::{
    Application, Conflicts, Manager, Managers, Operation, Outcome, Refused, Versions, apply, check,
    check_loosely_beside, reconciled,
};
use crate::clock::to_rfc_3339;
use crate::error::{ApiError, Cause, Details, Reason};
use crate::kind;
use crate::object::{Tree, metadata};
use crate::quota::{self, Room};
use crate::schema::{self, Malformed};

/// The memory that an apply uses, in trees of both objects: the field sets of both, and the merged object before and
/// after pruning.
const TAKEN: usize = 2;

/// The additional memory if fields are pruned in another version, in trees of both objects: the whole object in two
/// versions, the rest after pruning, and that rest with the fields that its type requires.
const CONVERTED: usize = 4;

/// An object that a client has sent to be applied.
#[derive(Clone, Debug)]
pub struct SubmittedApply {
    /// The object.
    pub tree: Tree,
    /// Problems with its fields, in the words of field validation.
    pub problems: Vec<String>,
    /// Whether the apply takes over fields that other managers own.
    pub force: bool,
}

/// Applies an object to the live object; without a live object, the draft is a new object.
///
/// # Errors
/// The errors of kube-apiserver, in its order:
/// - 400 for an object of another type, and for one with `managedFields`.
/// - 500 for an object that does not match its type.
/// - 409 for fields that other managers own.
/// - 400 for duplicate fields under `Strict`.
pub(super) fn applied(
    attributes: &Attributes<'_>,
    submitted: &SubmittedApply,
    live: Option<&Live>,
    room: &mut Room,
) -> Result<Draft, ApiError> {
    let SubmittedApply { tree: sent, problems, .. } = submitted;
    check_type(attributes, sent)?;
    if metadata::of(sent).get("managedFields").is_some_and(|said| !said.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let size = live.map_or(0, |live| quota::of_tree(&live.tree)) + quota::of_tree(sent);
    let of_sets = live.map_or(0, |live| SET * live.managers().size());
    let converted = if attributes.kind().is_converted_by_code() { CONVERTED } else { 0 };
    let _working = attributes.account.reserve((TAKEN + converted) * size + of_sets)?;
    room.grow_to(size)?;
    let before = before(attributes, live);
    let mut managers = live.map(|live| live.managers().clone()).unwrap_or_default();
    if managers.is_empty() && live.is_some() {
        before_first_apply(attributes, &before, &mut managers).map_err(|why| {
            let of = type_of(attributes, &before);
            untyped(format!(
                "failed to create manager for existing fields: failed to convert new object ({of}) to smd typed: {why}"
            ))
        })?;
    }
    let mut draft = match attributes.part {
        Part::Scale => applied_to_scale(attributes, submitted, (&before, live), &managers)?,
        _ => {
            let is_current = is_current(attributes, live);
            let versions = versions(attributes);
            check_types(attributes, &versions, sent, (!is_current).then_some(&before))?;
            reconciled(&versions, is_current, &mut managers).map_err(untyped)?;
            applied_to_object(attributes, submitted, (&before, live), &managers, &versions)?
        }
    };
    match attributes.options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => draft.warnings.extend(problems.iter().cloned()),
        FieldValidation::Strict if problems.is_empty() => {}
        FieldValidation::Strict => {
            let problems = problems.join("\n  ");
            let message = format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {problems}"
            );
            return Err(ApiError::bad_request(message));
        }
    }
    Ok(draft)
}

fn applied_to_object(
    attributes: &Attributes<'_>,
    submitted: &SubmittedApply,
    (before, live): (&Tree, Option<&Live>),
    managers: &Managers,
    versions: &Versions<'_>,
) -> Result<Draft, ApiError> {
    let (sent, version) = (&submitted.tree, attributes.version);
    let manager = manager(attributes, Operation::Apply);
    // The commit checks the resourceVersion of the request.
    let revision = metadata::text(sent, "resourceVersion").to_owned();
    let mut config = Cow::Borrowed(sent);
    if metadata::of(sent).contains_key("managedFields") {
        metadata::edit(config.to_mut(), |metadata| drop(metadata.remove("managedFields")));
    }
    let outcome = apply_to(
        (versions, &manager),
        (before, &config),
        managers,
        submitted.force,
        &to_rfc_3339(attributes.now),
        &type_of(attributes, before),
    )?;
    let Outcome { object, managers } = outcome;
    let is_changed = object.is_some();
    let mut tree = object.unwrap_or_else(|| before.clone());
    if is_changed {
        let unfit = |why: String| inconvertible(attributes, sent, &why);
        if version.schema.is_typed() {
            schema::normalize(version.schema.root(), &mut tree, Malformed::Refused)
                .map_err(unfit)?;
        } else {
            schema::coerce_metadata(&mut tree, Malformed::Refused).map_err(unfit)?;
            schema::fill_defaults(version.schema.root(), &mut tree);
        }
    }
    if manager.name == last_applied::KUBECTL {
        last_applied::renew(&mut tree, sent);
    }
    let revision = match live {
        Some(live) if revision.is_empty() => live.revision.clone(),
        Some(_) => revision,
        None => String::new(),
    };
    let mut draft = Draft::new(tree, true, Vec::new());
    metadata::edit(&mut draft.tree, |metadata| drop(metadata.remove("resourceVersion")));
    Ok(Draft { revision, managers, is_applied: true, ..draft })
}

/// Applies a Scale, which sets the number of replicas of an object.
fn applied_to_scale(
    attributes: &Attributes<'_>,
    submitted: &SubmittedApply,
    (before, live): (&Tree, Option<&Live>),
    managers: &Managers,
) -> Result<Draft, ApiError> {
    let internal = |why: String| ApiError::internal(why);
    let scale_kind = kind::scale().ok_or_else(|| ApiError::internal("there is no Scale"))?;
    let versions = scale_managers::versions(&scale_kind.storage);
    check_types(attributes, &versions, &submitted.tree, None)?;
    let scale = scale_managers::scale_of(attributes, before).map_err(internal)?;
    let of_scale = scale_managers::to_scale(attributes, managers);
    let outcome = apply_to(
        (&versions, &scale_managers::manager(attributes, Operation::Apply)),
        (&scale, &submitted.tree),
        &of_scale,
        submitted.force,
        &to_rfc_3339(attributes.now),
        &type_of(attributes, &scale),
    )?;
    let paths = scale::paths(attributes)?;
    let mut tree = before.clone();
    let wanted = scale::replicas_of(outcome.object.as_ref().unwrap_or(&scale))
        .map_err(|why| inconvertible(attributes, &submitted.tree, &why))?;
    match (wanted, scale::wanted(paths, before)?) {
        (None, None) => return Err(scale::unsaid(paths)),
        // Go omits a number that is zero.
        (wanted, _) => scale::set_replicas(&mut tree, paths, wanted.unwrap_or_default()),
    }
    check_scale(attributes, &submitted.tree, live)?;
    let managers = scale_managers::to_object(attributes, managers, outcome.managers);
    let draft = Draft::new(tree, true, Vec::new());
    let given = metadata::text(&submitted.tree, "resourceVersion");
    let revision = match live {
        Some(live) if given.is_empty() => live.revision.clone(),
        _ => given.to_owned(),
    };
    Ok(Draft { revision, managers, is_applied: true, ..draft })
}

/// Rejects a Scale whose metadata names another object.
fn check_scale(
    attributes: &Attributes<'_>,
    sent: &Tree,
    live: Option<&Live>,
) -> Result<(), ApiError> {
    let key = attributes.key();
    let mut said = Tree::new();
    said.insert("metadata".to_owned(), metadata::of(sent).clone().into());
    metadata::edit(&mut said, |metadata| {
        metadata.entry("name").or_insert_with(|| key.name().into());
    });
    check_identity(&mut said, &key)?;
    let (kind, uid) = (attributes.kind(), live.map(Live::uid).unwrap_or_default());
    let given = metadata::text(&said, "uid");
    if kind.is_typed() && !given.is_empty() && given != uid {
        // Kubernetes' own kinds check the uid themselves.
        let scale = format!("{}/scale", kind.names.plural);
        let cause =
            format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
        return Err(ApiError::conflict(&kind.group, &scale, key.name(), &cause));
    }
    check_uid(attributes, &said, uid)
}

/// Checks the request body against its type, and the live object too, if its type may have changed since it was stored.
fn check_types(
    attributes: &Attributes<'_>,
    versions: &Versions<'_>,
    sent: &Tree,
    live: Option<&Tree>,
) -> Result<(), ApiError> {
    let place = versions.place(versions.requested()).ok_or_else(gone)?;
    let unfit = |which, tree, why| {
        let of = type_of(attributes, tree);
        untyped(format!("failed to create typed {which} object ({of}): {why}"))
    };
    check(place, sent).map_err(|why| unfit("patch", sent, why))?;
    match live {
        Some(live) => {
            check_loosely_beside(place, live, sent).map_err(|why| unfit("live", live, why))
        }
        None => Ok(()),
    }
}

fn gone() -> ApiError {
    ApiError::internal("the version of the request is gone")
}

/// Applies an object that is valid for its type.
fn apply_to(
    (versions, manager): (&Versions<'_>, &Manager),
    (live, sent): (&Tree, &Tree),
    managers: &Managers,
    force: bool,
    now: &str,
    of: &str,
) -> Result<Outcome, ApiError> {
    let place = versions.place(versions.requested()).ok_or_else(gone)?;
    let mut application = Application { versions, manager, live, applied: sent, force, now };
    let outcome = match apply(&application, managers) {
        Err(Refused::Conflicts(conflicts)) if manager.name == last_applied::KUBECTL => {
            match last_applied::left(place, (live, versions.requested()), conflicts) {
                Some(conflicts) => Err(Refused::Conflicts(conflicts)),
                None => {
                    application.force = true;
                    apply(&application, managers)
                }
            }
        }
        outcome => outcome,
    };
    outcome.map_err(|refused| match refused {
        Refused::Conflicts(conflicts) => conflict(&conflicts),
        Refused::Inconvertible(why) => untyped(why),
        Refused::Untyped(why) => {
            untyped(format!("failed to create typed live object ({of}): {why}"))
        }
    })
}

/// The name and the type of an object, in the format of messages about types.
fn type_of(attributes: &Attributes<'_>, sent: &Tree) -> String {
    let (namespace, name) = (metadata::text(sent, "namespace"), metadata::name(sent));
    let (version, kind) = expected_type(attributes);
    format!("{namespace}/{name}; {}, Kind={kind}", with_slash(&version))
}

/// Puts a slash in front of a version of the core group.
fn with_slash(version: &str) -> String {
    if version.contains('/') { version.to_owned() } else { format!("/{version}") }
}

fn expected_type(attributes: &Attributes<'_>) -> (String, String) {
    let kind = attributes.kind();
    match attributes.part {
        Part::Scale => (scale::GROUP_VERSION.to_owned(), scale::KIND.to_owned()),
        _ => (kind.api_version(&attributes.version.name), kind.names.kind.clone()),
    }
}

fn check_type(attributes: &Attributes<'_>, sent: &Tree) -> Result<(), ApiError> {
    let (version, kind) = expected_type(attributes);
    let (sent_version, sent_kind) = (text(sent, "apiVersion"), text(sent, "kind"));
    if sent_version == version && sent_kind == kind {
        return Ok(());
    }
    let version = with_slash(&sent_version);
    Err(ApiError::bad_request(format!("invalid object type: {version}, Kind={sent_kind}")))
}

/// The error for an applied object that cannot be converted to its type.
fn inconvertible(attributes: &Attributes<'_>, sent: &Tree, why: &str) -> ApiError {
    let (version, kind) = expected_type(attributes);
    let of_type = format!("{}, Kind={kind}", with_slash(&version));
    let (namespace, name) = (metadata::text(sent, "namespace"), metadata::text(sent, "name"));
    untyped(format!(
        "failed to convert new object ({namespace}/{name}; {of_type}) to proper version: \
         unable to convert unstructured object to {of_type}: {why}"
    ))
}

/// An error without a reason, same as in kube-apiserver.
fn untyped(message: String) -> ApiError {
    ApiError::new(Reason::Unknown, message)
}

fn conflict(conflicts: &Conflicts) -> ApiError {
    let cause = |one: &crate::apply::Conflict| Cause {
        reason: "FieldManagerConflict",
        message: format!("conflict with {}", one.manager),
        field: one.path.clone(),
    };
    let causes = conflicts.all().iter().map(cause).collect();
    ApiError::new(Reason::Conflict, conflicts.to_string())
        .with_details(Details { causes, ..Details::default() })
}
