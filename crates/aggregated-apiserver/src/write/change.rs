//! Change: the requested change of an object, and the draft that results from it.

use std::fmt;

use super::applied::{SubmittedApply, applied};
use super::attributes::{Attributes, Part};
use super::decode::{check_applied_uid, check_identity, check_namespace, check_uid, decode};
use super::draft::{Draft, Submitted};
use super::live::Live;
use super::patch::{SubmittedPatch, apply_patch};
use super::scale::{self, SubmittedScale};
use crate::error::ApiError;
use crate::object::{Tree, metadata};
use crate::quota::{self, Room};

/// The requested change of an object.
pub enum Change<'a> {
    /// Create this object.
    Create(Submitted),
    /// Replace the object, or its Scale.
    Update(Submitted),
    /// Patch the object, or its Scale. `Err` is a patch that cannot be parsed; the error is returned only if the object
    /// exists.
    Patch(Result<SubmittedPatch, ApiError>),
    /// Apply these fields; create the object if there is none. `Err` is a body that cannot be parsed.
    Apply(Result<SubmittedApply, ApiError>),
    /// Compute the new object with code, which is called again after each conflict with another write.
    Code(&'a Code<'a>),
}

/// Code that computes a new object from the live object.
pub type Code<'a> = dyn Fn(&Live) -> Result<Tree, ApiError> + Sync + 'a;

impl fmt::Debug for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(submitted) => f.debug_tuple("Create").field(submitted).finish(),
            Self::Update(submitted) => f.debug_tuple("Update").field(submitted).finish(),
            Self::Patch(patch) => f.debug_tuple("Patch").field(patch).finish(),
            Self::Apply(submitted) => f.debug_tuple("Apply").field(submitted).finish(),
            Self::Code(_) => f.debug_tuple("Code").finish_non_exhaustive(),
        }
    }
}

/// The largest number of attempts to generate a name that is not taken; same as kube-apiserver.
const GENERATE_NAME_ATTEMPTS: usize = 8;

/// The largest number of attempts of an update that may create its object, while other requests create and delete the
/// object.
const UPSERT_ATTEMPTS: usize = 4;

/// A decoded change. It may be applied several times, because other writes can cause conflicts.
pub(super) enum DecodedChange<'a> {
    /// `None` after the create of an object that cannot be created again.
    Create(Option<Draft>),
    Update(Draft),
    Patch(Sent<SubmittedPatch>),
    Apply(Sent<SubmittedApply>),
    UpdateScale(SubmittedScale),
    PatchScale(Sent<SubmittedPatch>),
    Code(&'a Code<'a>),
}

impl<'a> DecodedChange<'a> {
    /// Decodes a change, as far as that is possible without the live object.
    ///
    /// # Errors
    /// Same as kube-apiserver, in the same order: 400 for metadata of a wrong type, 400 for unknown fields under
    /// `Strict`, and 400 for a namespace or name that does not match the path.
    pub(super) fn decode(
        attributes: &Attributes<'_>,
        change: Change<'a>,
    ) -> Result<Self, ApiError> {
        let (kind, version) = (attributes.kind(), attributes.version);
        let validation = attributes.options.field_validation;
        let is_scale = attributes.part == Part::Scale;
        match change {
            Change::Create(submitted) => {
                let mut draft = decode(kind, version, validation, submitted)?;
                check_namespace(&mut draft.tree, attributes.namespace)
                    .map_err(|error| draft.refused(error))?;
                Ok(Self::Create(Some(draft)))
            }
            Change::Update(submitted) if is_scale => {
                let scale = SubmittedScale::submitted(submitted, validation)?;
                check_identity(&mut scale.as_object(), &attributes.key())?;
                Ok(Self::UpdateScale(scale))
            }
            Change::Update(submitted) => {
                let mut draft = decode(kind, version, validation, submitted)?;
                check_identity(&mut draft.tree, &attributes.key())
                    .map_err(|error| draft.refused(error))?;
                Ok(Self::Update(draft))
            }
            Change::Patch(patch) if is_scale => Ok(Self::PatchScale(Sent(Some(patch)))),
            Change::Patch(patch) => Ok(Self::Patch(Sent(Some(patch)))),
            Change::Apply(submitted) => Ok(Self::Apply(Sent(Some(submitted)))),
            Change::Code(code) => Ok(Self::Code(code)),
        }
    }

    /// The verb in Kubernetes.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Update(_) | Self::UpdateScale(_) | Self::Code(_) => "update",
            Self::Patch(_) | Self::PatchScale(_) | Self::Apply(_) => "patch",
        }
    }

    /// An error of the write before there is a draft, with the warnings about the fields of the submitted object.
    pub(super) fn refused(&self, error: ApiError) -> ApiError {
        match self {
            Self::Create(Some(draft)) | Self::Update(draft) => draft.refused(error),
            _ => error,
        }
    }

    /// Whether the create may be attempted again after this number of attempts.
    pub(super) fn may_repeat_creation(&self, creations: usize) -> bool {
        match self {
            Self::Create(again) => again.is_some() && creations < GENERATE_NAME_ATTEMPTS,
            _ => creations < UPSERT_ATTEMPTS,
        }
    }

    /// Returns the draft that results from the change of the live object, or from a create.
    ///
    /// # Errors
    /// 409 if the uid is that of another object, 400 and 422 if a patch cannot be applied, 413 and 429 if the result
    /// exceeds a memory limit.
    pub(super) fn change(
        &mut self,
        attributes: &Attributes<'_>,
        live: Option<&Live>,
        room: &mut Room,
    ) -> Result<Draft, ApiError> {
        let key = attributes.key();
        match (self, live) {
            (Self::Create(draft), _) => {
                // A generated name may be taken, so the draft is used again.
                let is_nameless = |draft: &&Draft| metadata::name(&draft.tree).is_empty();
                let again = draft.as_ref().filter(is_nameless).cloned();
                let draft = std::mem::replace(draft, again);
                draft.ok_or_else(|| ApiError::internal("an object is created a second time"))
            }
            (Self::Update(draft), live) => {
                let mut draft = draft.clone();
                let uid = live.map(Live::uid).unwrap_or_default();
                check_uid(attributes, &draft.tree, uid).map_err(|error| draft.refused(error))?;
                if live.is_none() {
                    // Without an object its resourceVersion is ignored, as in kube-apiserver.
                    draft.revision.clear();
                }
                Ok(draft)
            }
            (Self::Patch(patch), Some(live)) => {
                let mut draft = apply_patch(attributes, patch.read()?, live, room)?;
                check_identity(&mut draft.tree, &key).map_err(|error| draft.refused(error))?;
                Ok(draft)
            }
            (Self::Apply(submitted), live) => {
                let submitted = submitted.read()?;
                let mut draft = applied(attributes, submitted, live, room)?;
                let uid = live.map(Live::uid).unwrap_or_default();
                check_applied_uid(attributes, &draft.tree, uid)?;
                check_identity(&mut draft.tree, &key).map_err(|error| draft.refused(error))?;
                Ok(draft)
            }
            (Self::UpdateScale(scale), Some(live)) => {
                room.grow_to(quota::of_tree(&live.tree))?;
                check_uid(attributes, &scale.as_object(), live.uid())?;
                Ok(scale.applied_to(scale::paths(attributes)?, live))
            }
            (Self::PatchScale(patch), Some(live)) => {
                let paths = scale::paths(attributes)?;
                let validation = attributes.options.field_validation;
                let scale = SubmittedScale::patched(paths, live, patch.read()?, validation, room)?;
                check_identity(&mut scale.as_object(), &key)?;
                room.grow_to(quota::of_tree(&live.tree))?;
                Ok(scale.applied_to(paths, live))
            }
            (Self::Code(code), Some(live)) => {
                room.grow_to(quota::of_tree(&live.tree))?;
                let mut draft = Draft::new(code(live)?, true, Vec::new());
                check_identity(&mut draft.tree, &key)?;
                if metadata::text(&draft.tree, "uid") != live.uid() {
                    return Err(ApiError::internal("code has made another object of it"));
                }
                Ok(Draft { revision: live.revision.clone(), ..draft })
            }
            (_, None) => {
                let kind = attributes.kind();
                Err(ApiError::not_found(&kind.group, &kind.names.plural, key.name()))
            }
        }
    }
}

/// The body of a patch or apply request. Its parse error is returned once it is known that the object exists. A valid
/// body can be read several times, because other writes can cause conflicts.
pub(super) struct Sent<T>(Option<Result<T, ApiError>>);

impl<T> Sent<T> {
    /// The parsed body.
    ///
    /// # Errors
    /// The parse error.
    fn read(&mut self) -> Result<&T, ApiError> {
        if let Some(Err(error)) = self.0.take_if(|sent| sent.is_err()) {
            return Err(error);
        }
        match &self.0 {
            Some(Ok(patch)) => Ok(patch),
            _ => Err(ApiError::internal("a patch that was refused is applied again")),
        }
    }
}
