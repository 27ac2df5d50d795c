//! A lookup, independent of its type, and the state of its source.

use std::any::TypeId;

use tokio::time::Instant;

use super::availability::Availability;
use super::queries::{Invalidated, QueryId};
use super::shared_lookups::{Dependent, SourceNumber};
use super::{Followed, Lookup, LookupOptions};
use crate::cluster::{SourceStatus, SourceType, resource_name};
use crate::watch_cache::SourceState;

/// A lookup, independent of its type.
pub trait AnyLookup {
    /// The type of the objects.
    fn type_of_objects(&self) -> TypeId;
    /// Whether a query since the last [`take_latest`](Self::take_latest) was about objects outside of this namespace.
    fn has_queried_outside(&self, namespace: Option<&str>) -> bool;
    /// Makes the lookup find nothing from now on, as if the objects could not be read.
    fn make_unavailable(&self);
    /// Takes the queries since the last call, in order.
    fn take_latest(&self) -> Vec<QueryId>;
    /// Records the queries that the computation of a source has made. Replaces its earlier queries.
    fn set_dependencies(&self, source: SourceNumber, before: &[QueryId], now: &[QueryId]);
    /// Processes the changes since the last call, and adds the sources that they invalidate. Returns when to
    /// call this again at the latest if nothing changes before.
    fn take_invalidated(&self, invalidated: &mut Invalidated<SourceNumber>) -> Option<Instant>;
    /// Whether the availability of the objects is known and computations see the current one.
    fn is_settled(&self) -> bool;
    /// The state of the source, if the objects come from the cluster.
    fn sources(&self) -> Vec<SourceState>;
    /// The number of recorded queries.
    #[cfg(test)]
    fn queries(&self) -> usize;
}

/// The state of a source with this status. With `may_be_absent`, the cluster may lack the source.
pub(in crate::definition) fn source_state(
    resource: String,
    status: SourceStatus,
    may_be_absent: bool,
) -> SourceState {
    let SourceStatus { is_synced, failure, excess, unreadable } = status;
    let is_absent = failure.as_ref().is_some_and(|failure| failure.is_absent);
    SourceState {
        resource,
        is_synced,
        is_rightly_absent: may_be_absent && is_absent && excess.is_none(),
        unseen_since: failure.as_ref().map(|failure| failure.since),
        watch_error: failure.map(|failure| failure.why),
        excess,
        unreadable,
        is_left_out: None,
    }
}

/// Whether computations run without the source of an informer that was opened at a time. Also returns until when this
/// holds if nothing changes.
pub(in crate::definition) fn is_left_out(
    status: &SourceStatus,
    opened: Instant,
) -> (bool, Option<Instant>) {
    let (is, until) = Availability::at(Instant::now(), status, opened);
    (is == Availability::Unavailable, until)
}

impl<K: SourceType, S: LookupOptions> AnyLookup for Lookup<K, S> {
    fn type_of_objects(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn has_queried_outside(&self, namespace: Option<&str>) -> bool {
        self.state().queries.has_queried_outside(namespace)
    }

    fn make_unavailable(&self) {
        let mut state = self.state();
        state.availability = Availability::Unavailable;
        state.indexed = None;
    }

    fn take_latest(&self) -> Vec<QueryId> {
        self.state().queries.take_latest()
    }

    fn set_dependencies(&self, source: SourceNumber, before: &[QueryId], now: &[QueryId]) {
        let dependent = Dependent::new(self.computation, source);
        self.state().queries.set_dependencies(dependent, before, now);
    }

    fn take_invalidated(&self, invalidated: &mut Invalidated<SourceNumber>) -> Option<Instant> {
        let followed = self.shared.followed.as_ref()?;
        let mut state = self.state();
        let until = self.process_changes(followed, &mut state);
        state.queries.take_invalidated(self.computation, invalidated);
        until
    }

    fn is_settled(&self) -> bool {
        match self.state().availability {
            Availability::Unknown => false,
            Availability::Unavailable => true,
            // Objects that were dropped because they exceeded the memory limit must not be mistaken for deleted ones.
            Availability::Available => {
                let informer = self.shared.followed.as_ref().map(|followed| &followed.informer);
                informer.is_none_or(|informer| !informer.is_exceeded())
            }
        }
    }

    fn sources(&self) -> Vec<SourceState> {
        let Some(Followed { informer, .. }) = &self.shared.followed else { return Vec::new() };
        let is_left_out = self.state().availability == Availability::Unavailable;
        let may_be_absent = S::OPTIONS.may_be_absent();
        let source = source_state(resource_name::<K>(), informer.status(), may_be_absent);
        vec![SourceState { is_left_out: Some(is_left_out), ..source }]
    }

    #[cfg(test)]
    fn queries(&self) -> usize {
        self.state().queries.len()
    }
}
