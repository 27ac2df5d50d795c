//! `scale`: read and change the number of replicas of an object.

use std::sync::Arc;

use super::change::{Attributes, Changed, change};
use super::patch::SentPatch;
use super::{GetOptions, get};
use crate::error::ApiError;
use crate::kind::{Kind, ScalePaths, Version};
use crate::object::Key;
use crate::quota::{self, Room};
use crate::served_kind::ServedKind;
use crate::storage::Versioned;
use crate::write::{
    Decoded, Live, Submitted, SubmittedPatch, Wanted, check_identity, check_uid, scale_of,
};

/// Reads the Scale of an object.
///
/// # Errors
/// Those of a read; 500 when the object does not say how many replicas are wanted.
pub async fn get_scale(
    served: &ServedKind,
    version: &Version,
    key: &Key,
    options: GetOptions,
) -> Result<Versioned, ApiError> {
    let versioned = get(served, key, options).await?;
    scale(&served.kind, version, &versioned)
}

/// Sets the replicas of an object to those of a Scale.
///
/// # Errors
/// Those of an update of the object; 400 when it is no Scale.
pub async fn update_scale(
    attributes: &Attributes<'_>,
    submitted: Submitted,
) -> Result<Changed, ApiError> {
    let Attributes { served, version, key, field_validation, .. } = *attributes;
    let paths = paths(&served.kind, version)?;
    let wanted = Wanted::submitted(submitted, field_validation)?;
    check_identity(&mut wanted.as_object(), key)?;
    let make = |live: &Live, room: &mut Room| {
        room.grow_to(quota::of_tree(&live.tree))?;
        check_uid(&served.kind, &wanted.as_object(), key, live.uid())?;
        Ok(wanted.applied_to(paths, live))
    };
    change_scale(attributes, make).await
}

/// Applies a patch to the Scale of an object.
///
/// # Errors
/// Those of a patch of the object, and of a Scale.
pub async fn patch_scale(
    attributes: &Attributes<'_>,
    patch: Result<SubmittedPatch, ApiError>,
) -> Result<Changed, ApiError> {
    let Attributes { served, version, key, field_validation, .. } = *attributes;
    let paths = paths(&served.kind, version)?;
    let mut patch = SentPatch::new(patch);
    let make = |live: &Live, room: &mut Room| {
        let wanted = Wanted::patched(paths, live, patch.read()?, field_validation, room)?;
        check_identity(&mut wanted.as_object(), key)?;
        room.grow_to(quota::of_tree(&live.tree))?;
        Ok(wanted.applied_to(paths, live))
    };
    change_scale(attributes, make).await
}

async fn change_scale(
    attributes: &Attributes<'_>,
    make: impl FnMut(&Live, &mut Room) -> Result<Decoded, ApiError>,
) -> Result<Changed, ApiError> {
    let changed = change(attributes, make).await?;
    let versioned = scale(&attributes.served.kind, attributes.version, &changed.versioned)?;
    Ok(Changed { versioned, ..changed })
}

/// The Scale of an object, at its revision.
fn scale(kind: &Kind, version: &Version, versioned: &Versioned) -> Result<Versioned, ApiError> {
    let tree = kind.in_version(&versioned.object, version).to_tree();
    let object = Arc::new(scale_of(paths(kind, version)?, &tree)?);
    Ok(Versioned { revision: versioned.revision, object })
}

fn paths<'a>(kind: &Kind, version: &'a Version) -> Result<&'a ScalePaths, ApiError> {
    let paths = version.subresources.scale.as_ref();
    paths.ok_or_else(|| ApiError::not_found(&kind.group, &kind.names.plural, "scale"))
}
