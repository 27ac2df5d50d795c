//! Patches: what becomes of an object that a patch is applied to.

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
    /// RFC 6902.
    Json(JsonPatch),
    /// RFC 7386.
    Merge(Value),
    /// As RFC 7386, with lists that are merged by the keys of their items.
    Strategic(StrategicMergePatch),
}

/// A patch as it was sent.
#[derive(Clone, Debug)]
pub struct SubmittedPatch {
    /// The patch.
    pub patch: Patch,
    /// What is odd about it, in the words of field validation.
    pub problems: Vec<String>,
}

impl Patch {
    /// A JSON patch of these operations.
    pub fn json(operations: Vec<Operation>) -> Self {
        Self::Json(JsonPatch::new(operations))
    }

    /// Whether what it makes of an object depends on what is said of its managers.
    fn looks_at_managers(&self) -> bool {
        match self {
            Self::Json(patch) => patch.looks_at(["metadata", "managedFields"]),
            // Nothing is merged with a list.
            Self::Merge(_) => false,
            Self::Strategic(patch) => {
                let metadata = patch.patch.get("metadata").and_then(Value::as_object);
                // Directives are members too: `$setElementOrder/managedFields`.
                let names = metadata.into_iter().flat_map(Tree::keys);
                names.into_iter().any(|name| name.contains("managedFields"))
            }
        }
    }

    /// Applies the patch to an object; what comes of it need not be one.
    ///
    /// # Errors
    /// 422 when it cannot be applied.
    pub(super) fn apply(&self, object: Tree, room: &mut Room) -> Result<Value, ApiError> {
        match self {
            Self::Json(patch) => patch.apply(Value::Object(object), room),
            Self::Merge(patch) => {
                // Nothing is in the outcome that is in neither.
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

/// Applies a patch to an object, as the version of the request shows it, with
/// its resourceVersion; drops what the kind does not know.
///
/// # Errors
/// 422 when the patch cannot be applied, or what it makes is no object of the
/// kind; under `Strict` also when something of it is unknown. 413 and 429 when there is
/// no room for what it makes.
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
    // It is shown as it was before anything is dropped: made again, as that is rare.
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

/// 422 for what a patch has made.
pub(super) fn unfit_patch(shown: &str, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", quote(shown), why);
    ApiError::invalid("", "", "", vec![error])
}
