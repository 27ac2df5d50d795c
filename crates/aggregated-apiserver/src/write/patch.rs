//! Patches: computes the object that results from a patch.

use serde_json::Value;

use super::attributes::Attributes;
use super::decode::prune;
use super::draft::Draft;
use super::live::Live;
use super::sent_managers::{SentManagers, is_emptied};
use super::{field_validation, former_versions, merge_patch, owners, text};
use crate::error::{ApiError, FieldError, go_value, no_object, quote};
use crate::object::json_patch::{JsonPatch, Operation};
use crate::object::{Tree, to_json};
use crate::quota::{self, Room};
use crate::schema::StrategicMergePatch;

/// A change of parts of an object.
#[derive(Clone, Debug)]
pub enum Patch {
    /// A JSON patch (RFC 6902).
    Json(JsonPatch),
    /// A JSON merge patch (RFC 7386).
    Merge(Value),
    /// A strategic merge patch: lists are merged by the keys of their elements.
    Strategic(StrategicMergePatch),
}

/// A patch that a client has sent.
#[derive(Clone, Debug)]
pub struct SubmittedPatch {
    /// The patch.
    pub patch: Patch,
    /// Problems with its fields, in the words of field validation.
    pub problems: Vec<String>,
}

impl Patch {
    /// A JSON patch of these operations.
    pub fn json(operations: Vec<Operation>) -> Self {
        Self::Json(JsonPatch::new(operations))
    }

    /// Whether the result of the patch depends on `metadata.managedFields`.
    fn looks_at_managers(&self) -> bool {
        match self {
            Self::Json(patch) => patch.looks_at(["metadata", "managedFields"]),
            // A merge patch replaces lists.
            Self::Merge(_) => false,
            Self::Strategic(patch) => {
                let metadata = patch.patch.get("metadata").and_then(Value::as_object);
                // Directives are fields too: `$setElementOrder/managedFields`.
                let names = metadata.into_iter().flat_map(Tree::keys);
                names.into_iter().any(|name| name.contains("managedFields"))
            }
        }
    }

    /// Applies the patch to an object. The result is not necessarily an object.
    ///
    /// # Errors
    /// 422 if the patch cannot be applied.
    pub(super) fn apply(&self, object: Tree, room: &mut Room) -> Result<Value, ApiError> {
        match self {
            Self::Json(patch) => patch.apply(Value::Object(object), room),
            Self::Merge(patch) => {
                // Every value of the result is in the object or in the patch.
                room.grow_to(quota::of_tree(&object) + quota::of_value(patch))?;
                Ok(merge_patch::apply(object, patch))
            }
            Self::Strategic(patch) => {
                room.grow_to(quota::of_tree(&object) + quota::of_tree(&patch.patch))?;
                patch.apply(object).map(Value::Object).map_err(ApiError::bad_request)
            }
        }
    }
}

/// Applies a patch to an object in the version of the request, with its resourceVersion. Drops the fields that the kind
/// does not define.
///
/// # Errors
/// 422 if the patch cannot be applied, if its result is no object of the kind, and under `Strict` if it has unknown
/// fields. 413 and 429 if the result exceeds a memory limit.
pub(super) fn apply_patch(
    attributes: &Attributes<'_>,
    submitted: &SubmittedPatch,
    live: &Live,
    room: &mut Room,
) -> Result<Draft, ApiError> {
    let (kind, version) = (attributes.kind(), attributes.version);
    let validation = attributes.options.field_validation;
    let patched = match submitted.patch.looks_at_managers() {
        true => submitted.patch.apply(live.whole(room)?, room)?,
        false => submitted.patch.apply(live.with_revision(), room)?,
    };
    // The error contains the object before anything was dropped. It is computed again, because errors are rare.
    let mut unfit = |why: &str| {
        let whole = match live.whole(room) {
            Ok(whole) => whole,
            Err(error) => return error,
        };
        match &submitted.patch {
            Patch::Strategic(patch) => unfit_patch(&go_value(&patch.shown(&whole)), why),
            patch => match patch.apply(whole, room) {
                Ok(patched) => unfit_patch(&to_json(&patched), why),
                Err(error) => error,
            },
        }
    };
    let Value::Object(mut tree) = patched else {
        return Err(unfit(&no_object(&patched)));
    };
    if kind.is_typed() {
        match submitted.patch {
            Patch::Strategic(_) => former_versions::ignore_type(&mut tree),
            Patch::Json(_) | Patch::Merge(_) => former_versions::update(&mut tree, &kind.group),
        }
        kind.complete_type(&mut tree, version).map_err(|why| unfit(&why))?;
    }
    if text(&tree, "kind").is_empty() {
        let shown = to_json(&Value::Object(tree));
        return Err(unfit(&format!("Object 'Kind' is missing in '{shown}'")));
    }
    if text(&tree, "apiVersion").is_empty() {
        let message = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Err(ApiError::internal(message));
    }
    let is_emptied = kind.is_typed() && is_emptied(&tree);
    let (is_kind, mut unknown) = prune(kind, version, &mut tree).map_err(|why| unfit(&why))?;
    if matches!(submitted.patch, Patch::Strategic(_)) {
        unknown.sort_unstable();
    }
    let problems = submitted.problems.clone();
    let mut warnings = field_validation::report(validation, problems, unknown)
        .map_err(|problems| unfit(&format!("strict decoding error: {problems}")))?;
    warnings.extend(owners::without_duplicates(&mut tree, owners::Found::AfterAdmission));
    let mut draft = Draft::new(tree, is_kind, warnings);
    if is_emptied {
        draft.sent_managers = SentManagers::reset();
    }
    Ok(draft)
}

/// The error for a patch with an invalid result: 422.
pub(super) fn unfit_patch(shown: &str, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", quote(shown), why);
    ApiError::invalid("", "", "", vec![error])
}
