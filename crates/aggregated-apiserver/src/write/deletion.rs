//! Marks an object as being deleted while finalizers or a grace period hold it.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::metadata_rules::{FOREGROUND, ORPHAN};
use super::prepare;
use crate::clock::{Clock, to_rfc_3339};
use crate::error::ApiError;
use crate::kind::{Kind, Strategy};
use crate::object::{Object, Tree, metadata};

/// The propagation policy: the handling of the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are deleted after their owner.
    Background,
    /// Dependents are deleted before their owner.
    Foreground,
    /// Dependents are not deleted, and lose their owner reference.
    Orphan,
}

impl Propagation {
    /// The name in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// The options of the deletion of one object.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkOptions {
    /// The propagation policy, if the client has sent one.
    pub propagation: Option<Propagation>,
    /// The grace period in seconds, for kinds that have one.
    pub grace_period: Option<i64>,
}

impl MarkOptions {
    /// The grace period of an object, in seconds.
    fn seconds(&self, strategy: &Strategy, tree: &Tree) -> i64 {
        let Some(usual) = strategy.grace_period.and_then(|period| period(tree)) else { return 0 };
        match self.grace_period.unwrap_or(usual) {
            given if given < 0 => 1,
            given => given,
        }
    }
}

/// Marks an object as being deleted, with the finalizers of the propagation policy. Returns `None` if nothing holds the
/// object, so that it can be removed at once.
/// # Errors
/// Never in practice: the tree was an object before.
pub fn mark(
    object: &Object,
    strategy: &Strategy,
    options: &MarkOptions,
    clock: &Clock,
) -> Result<Option<Object>, ApiError> {
    let (mut tree, managed_fields) = object.to_parts();
    if strategy.is_garbage_collected {
        set_finalizers(&mut tree, options.propagation);
    }
    let seconds = options.seconds(strategy, &tree);
    if !strategy.holds(&tree) && seconds == 0 {
        return Ok(None);
    }
    if let Some(note) = strategy.prepare_for_deletion {
        note(&mut tree, clock.now());
    }
    if strategy.marked_by_time_alone {
        metadata::edit(&mut tree, |metadata| {
            let now = || to_rfc_3339(clock.now()).into();
            metadata.entry("deletionTimestamp").or_insert_with(now);
        });
    } else {
        end_in(&mut tree, seconds, options.grace_period, clock);
    }
    // The size is not limited, because an object that cannot be marked could never be deleted.
    let marked = Object::from_parts(&tree, &managed_fields).map_err(ApiError::internal)?;
    Ok(Some(marked.of_shape(object.shape())))
}

/// Sets the deletion time to the end of the grace period, unless the object already has an earlier one.
fn end_in(tree: &mut Tree, seconds: i64, given: Option<i64>, clock: &Clock) {
    let metadata = metadata::of(tree);
    let ends = metadata.get("deletionTimestamp").and_then(Value::as_str);
    let ends: Option<Timestamp> = ends.and_then(|time| time.parse().ok());
    let before = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    let begun = match ends {
        None => {
            prepare::add_generation(tree);
            clock.now()
        }
        Some(ends) => {
            let before = before.unwrap_or_default();
            // The grace period never becomes longer, and becomes shorter only on request.
            if seconds >= before || (given.is_none() && seconds > 0) {
                return;
            }
            ends.saturating_sub(SignedDuration::from_secs(before)).unwrap_or(ends)
        }
    };
    let ends = begun.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(begun);
    metadata::edit(tree, |metadata| {
        metadata.insert("deletionTimestamp".to_owned(), to_rfc_3339(ends).into());
        metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
    });
}

/// The last state of an object, which its `DELETED` event contains.
///
/// # Errors
/// Never in practice: the tree was an object before.
pub fn final_state(
    object: &Object,
    strategy: &Strategy,
    clock: &Clock,
) -> Result<Object, ApiError> {
    let (mut tree, managed_fields) = object.to_parts();
    // Objects of other kinds are removed without a mark.
    if strategy.grace_period.is_some() {
        end_in(&mut tree, 0, Some(0), clock);
    }
    let gone = Object::from_parts(&tree, &managed_fields).map_err(ApiError::internal)?;
    Ok(gone.of_shape(object.shape()))
}

/// Sets the finalizers of the garbage collector according to the propagation policy. Without a policy they do not
/// change.
fn set_finalizers(tree: &mut Tree, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let before = metadata::finalizers(tree);
    let mut after: Vec<&str> =
        before.iter().copied().filter(|name| ![ORPHAN, FOREGROUND].contains(name)).collect();
    after.extend(wanted);
    let sorted = |names: &[&str]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        names.join("\n")
    };
    if sorted(&before) == sorted(&after) {
        return;
    }
    let after: Vec<Value> = after.into_iter().map(Value::from).collect();
    metadata::edit(tree, |metadata| {
        if after.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), after.into());
        }
    });
}

/// Whether an object that is being deleted can be removed now.
pub(super) fn can_be_removed(kind: &Kind, tree: &Tree) -> bool {
    let metadata = metadata::of(tree);
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    metadata::is_being_deleted(tree) && !kind.strategy.holds(tree) && grace.unwrap_or_default() == 0
}
