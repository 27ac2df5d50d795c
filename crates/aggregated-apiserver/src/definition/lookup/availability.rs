//! Whether the objects of a lookup can be looked at: a kind does not wait for what it can be
//! computed without.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Standing;

/// How long a kind waits for the first list of what it looks up. More than that is not
/// needed of a cluster that is well, and nobody would wait for one that is not.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long what the cluster refuses to show is shown as it was last: rights and definitions are
/// replaced in less.
pub(in crate::definition) const GRACE: Duration = Duration::from_secs(60);

/// Whether the objects can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It is not known yet.
    Unknown,
    /// They are in view.
    Available,
    /// They are not: there is none, as far as can be seen.
    Unavailable,
}

impl Availability {
    /// How it is at a time, of what was `opened` at another, and until when that holds if nothing
    /// happens.
    pub fn at(now: Instant, standing: &Standing, opened: Instant) -> (Self, Option<Instant>) {
        let refused_since = standing.away.as_ref().and_then(|away| away.refused_since);
        let until = |end: Instant, meanwhile: Self| match now < end {
            true => (meanwhile, Some(end)),
            false => (Self::Unavailable, None),
        };
        if standing.excess.is_some() {
            return (Self::Unavailable, None);
        }
        match (standing.is_synced, refused_since) {
            (true, None) => (Self::Available, None),
            (true, Some(since)) => until(since + GRACE, Self::Available),
            (false, None) => until(opened + PATIENCE, Self::Unknown),
            (false, Some(_)) => (Self::Unavailable, None),
        }
    }
}
