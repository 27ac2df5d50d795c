//! Encode: an object that was validated becomes bytes, within the limits of what is kept.

use super::attributes::Attributes;
use super::deletion::can_be_removed;
use super::draft::Draft;
use super::live::Live;
use crate::codec;
use crate::error::{ApiError, Reason};
use crate::object::extent::{DEPTH_LIMIT, Extent};
use crate::object::{Object, ObjectError, Tree, metadata};

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
    let managed_fields = draft.managers.write();
    let goes = live.is_some() && can_be_removed(kind, &draft.tree);
    let failed = |why: ObjectError| {
        let name = metadata::name(&draft.tree);
        ApiError::from(kind.unconvertible(name, &kind.storage.name, why.to_string()))
    };
    if goes {
        // It is shown, not kept: what is too large, or cannot be converted, can still go.
        let object =
            Object::from_parts(&draft.tree, &managed_fields).map_err(ApiError::internal)?;
        let object = match kind.is_converted_by_code() {
            true => object,
            false => kind.to_storage(object, attributes.version).map_err(failed)?,
        };
        return Ok(Encoded { object, goes });
    }
    let size = live.map(|live| live.kept.object.json_size()).unwrap_or_default();
    let limit = OBJECT_LIMIT.max(size);
    let object = if kind.is_converted_by_code() {
        // What is kept is held against the limits.
        let refused = |why| kind.refuse_sent(metadata::name(&draft.tree), &kind.storage.name, why);
        let kept = kind.tree_to_storage(&draft.tree, attributes.version);
        let (tree, shape) = kept.map_err(refused)?;
        encode_some(limit, (&tree, draft.is_applied), &managed_fields)?.of_shape(shape)
    } else {
        let object = encode_some(limit, (&draft.tree, draft.is_applied), &managed_fields)?;
        kind.to_storage(object, attributes.version).map_err(failed)?
    };
    Ok(Encoded { object, goes })
}

/// An object with what is said of its managers; without, if that is too much, and nobody applies.
fn encode_some(
    limit: usize,
    (tree, is_applied): (&Tree, bool),
    managed_fields: &[u8],
) -> Result<Object, ApiError> {
    match encode_within(limit, tree, managed_fields) {
        Err(_) if !is_applied && !managed_fields.is_empty() => encode_within(limit, tree, &[]),
        encoded => encoded,
    }
}

fn too_large(what: String) -> ApiError {
    ApiError::new(Reason::RequestEntityTooLarge, format!("Request entity too large: {what}"))
}

fn encode_within(limit: usize, tree: &Tree, managed_fields: &[u8]) -> Result<Object, ApiError> {
    let extent = Extent::of(tree);
    // Nearly always so little is said of managers that no limit can be met: then it is not walked.
    let most = codec::most_in(managed_fields);
    let extent = match 2 + most <= DEPTH_LIMIT && extent.values + most <= VALUES_LIMIT {
        true => extent,
        false => extent.with_managed_fields(managed_fields),
    };
    if extent.depth > DEPTH_LIMIT {
        return Err(too_large(format!("an object nests at most {DEPTH_LIMIT} levels deep")));
    }
    if extent.values > VALUES_LIMIT {
        return Err(too_large(format!("an object holds at most {VALUES_LIMIT} values")));
    }
    if extent.texts > limit {
        // It is not encoded: six bytes may become of one.
        return Err(too_large(format!("limit is {limit}")));
    }
    let object = Object::from_parts(tree, managed_fields).map_err(ApiError::internal)?;
    if object.json_size() > limit {
        return Err(too_large(format!("limit is {limit}")));
    }
    Ok(object)
}
