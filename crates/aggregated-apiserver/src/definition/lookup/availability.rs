//! Availability of the objects of a lookup: a kind does not wait long for objects without which it can be computed.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::SourceStatus;

/// The longest time that a kind waits for the first list of a lookup, and for the completion of its first objects. A
/// healthy cluster needs less, and readers should not wait for an unhealthy one.
pub(in crate::definition) const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last known objects of a lookup are used after the cluster has started to reject reads. Replacing
/// permissions or definitions takes less time.
pub(in crate::definition) const GRACE: Duration = Duration::from_secs(60);

/// Whether the objects of a lookup can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// Not known yet.
    Unknown,
    /// The objects are synced.
    Available,
    /// The objects cannot be read.
    Unavailable,
}

impl Availability {
    /// The availability at the time `now` of a lookup that was opened at `opened`. Also returns until when it holds if
    /// nothing changes.
    pub fn at(now: Instant, status: &SourceStatus, opened: Instant) -> (Self, Option<Instant>) {
        let refused_since = status.failure.as_ref().and_then(|failure| failure.refused_since);
        let until = |end: Instant, meanwhile: Self| match now < end {
            true => (meanwhile, Some(end)),
            false => (Self::Unavailable, None),
        };
        if status.excess.is_some() {
            return (Self::Unavailable, None);
        }
        match (status.is_synced, refused_since) {
            (true, None) => (Self::Available, None),
            (true, Some(since)) => until(since + GRACE, Self::Available),
            (false, None) => until(opened + PATIENCE, Self::Unknown),
            (false, Some(_)) => (Self::Unavailable, None),
        }
    }
}
