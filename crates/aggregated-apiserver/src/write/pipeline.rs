//! The stages that every write passes, in the order of kube-apiserver:
//!
//! 1. decode the request
//! 2. read the live object
//! 3. compute the draft: the object that the request asks for
//! 4. set defaults
//! 5. track field managers
//! 6. mutating admission
//! 7. prepare: set the fields of the system
//! 8. validate
//! 9. validating admission
//! 10. encode in the storage version
//! 11. commit
//!
//! If a concurrent write has changed the object before the commit, the write restarts at stage 2.

use super::attributes::{Attributes, Part};
use super::change::{Change, DecodedChange};
use super::commit::{self, Committed, Conditions};
use super::draft::Draft;
use super::encode::{Encoded, encode};
use super::field_managers::{keep_times, track};
use super::live::{self, Live};
use super::{admission, prepare, reset, scale, validate};
use crate::conversion::known;
use crate::error::ApiError;
use crate::quota::Room;
use crate::schema;
use crate::storage::Versioned;

/// The result of a write, or of a dry run.
#[derive(Debug)]
pub struct Written {
    /// The object after the write. For a write to `scale` it is the Scale of the object.
    pub versioned: Versioned,
    /// The messages of `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether the write has created the object.
    pub is_created: bool,
}

/// Writes an object.
///
/// # Errors
/// The first of these, in the order of kube-apiserver:
/// - 400 if the request cannot be decoded.
/// - 404 if there is no live object.
/// - the refusal of an admission plugin.
/// - 409 if the live object has another resourceVersion.
/// - 422 with all invalid fields.
/// - 409 if the name of a new object is taken.
pub async fn write(attributes: &Attributes<'_>, change: Change<'_>) -> Result<Written, ApiError> {
    let _turn = match attributes.kind().strategy.one_at_a_time {
        true => Some(attributes.environment.turns.take(&attributes.user.name).await?),
        false => None,
    };
    let mut decoded = DecodedChange::decode(attributes, change)?;
    let mut creations = 0;
    loop {
        let live = live::current(attributes, &decoded).await;
        let live = live.map_err(|error| decoded.refused(error))?;
        let mut room = attributes.account.room(0)?;
        let change = || decoded.change(attributes, live.as_ref(), &mut room);
        let mut draft = known(attributes.kind(), attributes.account, change).await??;
        creations += usize::from(live.is_none());
        let may_repeat = decoded.may_repeat_creation(creations);
        let committed = stages(attributes, live.as_ref(), &mut draft, &mut room, may_repeat).await;
        match committed.map_err(|error| draft.refused(error))? {
            Committed::At(versioned) => {
                let versioned = part(attributes, versioned).await?;
                let is_created = live.is_none();
                return Ok(Written { versioned, warnings: draft.warnings, is_created });
            }
            Committed::Overtaken => tokio::task::yield_now().await,
        }
    }
}

/// Takes a draft through the stages from its defaults to the commit.
async fn stages(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
    room: &mut Room,
    may_repeat: bool,
) -> Result<Committed, ApiError> {
    reset::wipe_new(attributes, live, draft);
    let sent = prepare::set_defaults(attributes, live, draft);
    let track = || track(attributes, live, draft, &sent);
    let tracked = known(attributes.kind(), attributes.account, track).await??;
    draft.track(tracked);
    sent.remove_filled_after_admission(&mut draft.tree);
    reset::restore_omitted(attributes, live, draft);
    let namespace = admission::mutate(attributes, live, draft, room).await?;
    sent.remove_unchanged_copies(&mut draft.tree);
    let name = prepare::prepare(attributes, live, draft)?;
    if attributes.kind().strategy.one_at_a_time {
        tokio::task::yield_now().await;
    }
    validate::validate(attributes, live, draft).await?;
    authorize_create_by_update(attributes, live).await?;
    let reservation = admission::validate(attributes, live, draft).await?;
    let encoded = encoded(attributes, live, draft).await?;
    let conditions = Conditions { name, may_repeat, namespace, reservation };
    commit::commit(attributes, live, (encoded, &draft.revision), conditions).await
}

/// Checks the permission to create objects, if an update or apply creates one.
async fn authorize_create_by_update(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
) -> Result<(), ApiError> {
    match (live, attributes.name) {
        (None, Some(_)) => attributes.authorizer.authorize_create().await,
        _ => Ok(()),
    }
}

/// Encodes a validated object in the storage version.
async fn encoded(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<Encoded, ApiError> {
    let kind = attributes.kind();
    if let Some(live) = live {
        keep_times(live, draft);
    }
    if draft.is_applied && !kind.is_typed() {
        // An apply that removes all applied fields of an object can leave null instead of the object. Validation needs
        // these nulls; they are not stored.
        schema::prune(attributes.version.schema.root(), &mut draft.tree);
    }
    known(kind, attributes.account, || encode(attributes, live, draft)).await?
}

/// Returns the part of a stored object to which the request was made: the object, or its Scale.
async fn part(attributes: &Attributes<'_>, versioned: Versioned) -> Result<Versioned, ApiError> {
    let (kind, version) = (attributes.kind(), attributes.version);
    match attributes.part {
        Part::Scale => {
            let scale = || scale::scale_of(kind, version, &versioned);
            known(kind, attributes.account, scale).await?
        }
        _ => Ok(versioned),
    }
}
