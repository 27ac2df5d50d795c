//! `scale`: read and change the number of replicas of an object.

use std::sync::Arc;

use super::change::{Changed, change};
use super::patch::SentPatch;
use super::{GetOptions, get};
use crate::error::ApiError;
use crate::kind::{Kind, RuleContext, ScalePaths, Version};
use crate::object::Key;
use crate::served_kind::ServedKind;
use crate::storage::Versioned;
use crate::write::{
    Decoded, FieldValidation, Live, Part, Submitted, SubmittedPatch, Wanted, check_identity,
    check_uid, scale_of,
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
    served: &ServedKind,
    version: &Version,
    key: &Key,
    submitted: Submitted,
    field_validation: FieldValidation,
    context: &RuleContext<'_>,
) -> Result<Changed, ApiError> {
    let paths = paths(&served.kind, version)?;
    let wanted = Wanted::submitted(submitted, field_validation)?;
    check_identity(&mut wanted.as_object(), key)?;
    let make = |live: &Live| {
        check_uid(&served.kind, &wanted.as_object(), key, live)?;
        Ok(wanted.applied_to(paths, live))
    };
    change_scale(served, version, key, context, make).await
}

/// Applies a patch to the Scale of an object.
///
/// # Errors
/// Those of a patch of the object, and of a Scale.
pub async fn patch_scale(
    served: &ServedKind,
    version: &Version,
    key: &Key,
    patch: Result<SubmittedPatch, ApiError>,
    field_validation: FieldValidation,
    context: &RuleContext<'_>,
) -> Result<Changed, ApiError> {
    let paths = paths(&served.kind, version)?;
    let mut patch = SentPatch::new(patch);
    let make = |live: &Live| {
        let wanted = Wanted::patched(paths, live, patch.read()?, field_validation)?;
        check_identity(&mut wanted.as_object(), key)?;
        Ok(wanted.applied_to(paths, live))
    };
    change_scale(served, version, key, context, make).await
}

async fn change_scale(
    served: &ServedKind,
    version: &Version,
    key: &Key,
    context: &RuleContext<'_>,
    make: impl FnMut(&Live) -> Result<Decoded, ApiError>,
) -> Result<Changed, ApiError> {
    let changed = change(served, version, key, Part::Main, context, make).await?;
    let versioned = scale(&served.kind, version, &changed.versioned)?;
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
