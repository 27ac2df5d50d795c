//! The order of stages that every write goes through, as in kube-apiserver.
//!
//! decode → current object → change → track managers → mutating admission (→ default again) → reset → prepare → validate → authorize, if an update creates → validating admission →
//! encode → commit. A write that is overtaken by another one begins again at the current
//! object.

use super::attributes::{Attributes, Part};
use super::change::{Change, DecodedChange};
use super::commit::{self, Committed};
use super::draft::Draft;
use super::live::{self, Live};
use super::{admission, encode, field_managers, prepare, reset, scale, validate};
use crate::conversion::known;
use crate::error::ApiError;
use crate::kind::Said;
use crate::quota::Room;
use crate::schema;
use crate::storage::Versioned;

/// What was written, or would have been.
#[derive(Debug)]
pub struct Written {
    /// The object as it is now; of a write to `scale` its Scale.
    pub versioned: Versioned,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether there was none before.
    pub is_created: bool,
}

/// Writes an object.
///
/// # Errors
/// What kube-apiserver answers, in its order: what cannot be read (400), what is not there
/// (404), what admission refuses, what was changed by others (409), everything that
/// validation finds (422), a name that is taken (409).
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
        let committed = committed.map_err(|error| draft.refused(error))?;
        if let Committed::At(versioned) = committed {
            let versioned = match attributes.part {
                Part::Scale => {
                    let (kind, version) = (attributes.kind(), attributes.version);
                    let scale = || scale::scale_of(kind, version, &versioned);
                    known(kind, attributes.account, scale).await??
                }
                _ => versioned,
            };
            let is_created = live.is_none();
            return Ok(Written { versioned, warnings: draft.warnings, is_created });
        }
        tokio::task::yield_now().await;
    }
}

async fn stages(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
    room: &mut Room,
    may_repeat: bool,
) -> Result<Committed, ApiError> {
    let is_typed = attributes.kind().is_typed();
    if live.is_none() {
        reset::reset_before_admission(attributes, live, draft);
    }
    let mut _managed = None;
    if !is_typed {
        // It takes what was sent of managers, and may have to begin again.
        let is_repeated = attributes.kind().is_converted_by_webhook();
        let sent = is_repeated.then(|| draft.sent_managers.clone());
        let track = || {
            if let Some(sent) = &sent {
                draft.sent_managers = sent.clone();
            }
            field_managers::track(attributes, live, draft)
        };
        _managed = known(attributes.kind(), attributes.account, track).await??;
    }
    if live.is_some() {
        reset::reset_before_admission(attributes, live, draft);
    }
    let filled_by_system = attributes.kind().strategy.filled_by_system;
    let is_complete = is_typed && admission::needs_defaults(attributes, live, draft);
    if is_complete {
        let said = Said::of(filled_by_system, &draft.tree);
        prepare::fill_in(attributes, live, draft.is_kind, &mut draft.tree);
        _managed = field_managers::track_but(attributes, live, draft, Some(&said))?;
        // The system has its turn when it is known what will be kept.
        draft.tree = said.behind_admission().alone(&draft.tree).into_owned();
    }
    // Plugins fill in some of these fields, too.
    let said = Said::of(filled_by_system, &draft.tree);
    let namespace = admission::mutate(attributes, live, draft, room).await?;
    let name_origin = prepare::prepare(attributes, live, draft)?;
    if is_typed && !is_complete {
        // Whoever leaves out what has a default is its owner, and strategies fill it in.
        _managed = field_managers::track_but(attributes, live, draft, Some(&said))?;
    }
    if attributes.kind().strategy.one_at_a_time {
        tokio::task::yield_now().await;
    }
    validate::validate(attributes, live, draft).await?;
    let is_upsert = live.is_none() && attributes.name.is_some();
    if is_upsert {
        attributes.authorizer.authorize_create().await?;
    }
    let reservation = admission::validate(attributes, live, draft).await?;
    if let Some(live) = live {
        field_managers::keep_times(live, draft);
    }
    if draft.is_applied && !is_typed {
        // Where all is removed that somebody had applied there may be nulls that are no values.
        // They are judged as they are, and never seen again.
        schema::prune(attributes.version.schema.root(), &mut draft.tree);
    }
    let encode = || encode::encode(attributes, live, draft);
    let encoded = known(attributes.kind(), attributes.account, encode).await??;
    let name = name_origin;
    let conditions = commit::Conditions { name, may_repeat, namespace, reservation };
    commit::commit(attributes, live, (encoded, &draft.revision), conditions).await
}
