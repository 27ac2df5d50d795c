//! Encode: an object that was validated becomes bytes, within the limits of what is kept.

use super::attributes::Attributes;
use super::deletion::can_be_removed;
use super::draft::Draft;
use super::extent::{DEPTH_LIMIT, Extent};
use super::field_managers::{managed_fields, without_managed_fields};
use super::live::Live;
use crate::error::{ApiError, Reason};
use crate::object::{Object, Tree};

/// The largest object that is kept; as etcd.
const OBJECT_LIMIT: usize = 3 << 19;

/// Values in an object, each member and item: a tree of them costs many times its text. As
/// many as are read, and what the system adds.
const VALUES_LIMIT: usize = 50_000 + 1_000;

/// An object in the version in which it is kept.
pub(super) struct Encoded {
    pub object: Object,
    /// Whether its last finalizer is gone, so that the object goes: this is what it would
    /// have been.
    pub goes: bool,
}

/// Encodes an object, and converts it to the version in which it is kept.
///
/// # Errors
/// 413 when it is too large.
pub(super) fn encode(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &Draft,
) -> Result<Encoded, ApiError> {
    let kind = attributes.kind();
    let goes = live.is_some() && can_be_removed(kind, &draft.tree);
    let object = if goes {
        // It is shown, not kept: what is too large can still go.
        Object::from_tree(&draft.tree).map_err(ApiError::internal)?
    } else {
        let size = live.map(|live| live.kept.object.json_size()).unwrap_or_default();
        let limit = OBJECT_LIMIT.max(size);
        match encode_within(limit, &draft.tree) {
            // What is said of managers is let go of first, but not by whoever applies.
            Err(_) if !draft.is_applied && !managed_fields(&draft.tree).is_empty() => {
                let (tree, _) = without_managed_fields(draft.tree.clone());
                encode_within(limit, &tree)?
            }
            encoded => encoded?,
        }
    };
    let object = kind.to_storage(object, attributes.version).map_err(ApiError::internal)?;
    Ok(Encoded { object, goes })
}

fn encode_within(limit: usize, tree: &Tree) -> Result<Object, ApiError> {
    let too_large = |what: String| {
        let message = format!("Request entity too large: {what}");
        Err(ApiError::new(Reason::RequestEntityTooLarge, message))
    };
    let extent = Extent::of(tree);
    if extent.depth > DEPTH_LIMIT {
        return too_large(format!("an object nests at most {DEPTH_LIMIT} levels deep"));
    }
    if extent.values > VALUES_LIMIT {
        return too_large(format!("an object holds at most {VALUES_LIMIT} values"));
    }
    let object = Object::from_tree(tree).map_err(ApiError::internal)?;
    if object.json_size() > limit {
        return too_large(format!("limit is {limit}"));
    }
    Ok(object)
}
