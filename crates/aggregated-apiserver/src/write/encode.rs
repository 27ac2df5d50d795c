//! Encode: turns a validated object into bytes, within the size limits of stored objects.

use super::attributes::Attributes;
use super::deletion::can_be_removed;
use super::draft::Draft;
use super::live::Live;
use crate::codec;
use crate::error::{ApiError, Reason};
use crate::object::extent::{DEPTH_LIMIT, Extent};
use crate::object::{Object, ObjectError, Tree, metadata};

/// The largest number of values in a stored object, each field and list element counted, because a tree of values is
/// many times larger than its JSON. It is the limit of request bodies, plus a reserve for the fields that the server
/// sets.
const VALUES_LIMIT: usize = 50_000 + 1_000;

/// An object in the storage version.
pub(super) struct Encoded {
    pub object: Object,
    /// Whether the last finalizer was removed, so that the commit removes the object. `object` is its last state then.
    pub goes: bool,
}

/// Encodes an object, and converts it to the storage version.
///
/// # Errors
/// 413 if the object is too large.
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
        // The object is only returned, not stored. An object that is too large or cannot be converted can still be
        // removed.
        let object =
            Object::from_parts(&draft.tree, &managed_fields).map_err(ApiError::internal)?;
        let object = match kind.is_converted_by_code() {
            true => object,
            false => kind.to_storage(object, attributes.version).map_err(failed)?,
        };
        return Ok(Encoded { object, goes });
    }
    let size = live.map(|live| live.kept.object.json_size()).unwrap_or_default();
    let limit = Object::LIMIT.max(size);
    let object = if kind.is_converted_by_code() {
        // The limits apply to the storage version.
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

/// Encodes an object with its `managedFields`. They are omitted if they exceed a limit and the write is no apply.
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
    // `managedFields` are nearly always too small to reach a limit, so they are not parsed.
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
        // It is not encoded, because one byte can become six.
        return Err(too_large(format!("limit is {limit}")));
    }
    let object = Object::from_parts(tree, managed_fields).map_err(ApiError::internal)?;
    if object.json_size() > limit {
        return Err(too_large(format!("limit is {limit}")));
    }
    Ok(object)
}
