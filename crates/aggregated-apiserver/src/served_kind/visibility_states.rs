//! The states of a visibility rule, and the revisions at which they began.
//!
//! A client that resumes a watch from a resourceVersion has the objects that were visible when it received that
//! resourceVersion. The watch sends only what changed after it, so it must not go on if the state was another one then.
//!
//! - Each state has a *boundary*, which is a revision. All responses with this revision or a newer one were made with this
//!   state or a newer one. A watch from a revision before the boundary of the newest state receives 410 Gone, and the client
//!   lists again.
//! - A revision that was issued before the change may be the newest one still. A list after the change would return it again,
//!   and its watch would receive 410 again. So each change of the state issues a revision. If the revisions are those of the
//!   process, this revision is empty. Otherwise it is that of a small object in the store
//!   ([`Marker`](super::visibility_marker::Marker)).
//! - A reader takes its snapshot first, and the state afterwards. So the state of a response is never older than the revision
//!   of the response. A list whose snapshot is older than the boundary takes another one.
//! - A watch takes a change first, and looks for a newer state afterwards. So it sends no change that is newer than the
//!   boundary of a state that it does not use.
//! - Watches without a revision, with `resourceVersion=0` or with `sendInitialEvents` begin with all visible objects, so they
//!   are never refused. A bookmark is sent only by a watch that has sent all changes of visibility.
//! - Replicas that share a store learn about a change at different times. A client may have its objects from a replica that
//!   did not know the newest state. Each replica stores its marker after the change. When a replica sees the marker of
//!   another one, it ends the watches that were resumed from an older revision.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;

use super::visibility_marker::Marker;
use crate::kind::{ErasedVisibility, FollowingRule, NumberedRule};
use crate::storage::{FRESHNESS_WAIT, Revision, RevisionSequencer};

/// The number of watches of a kind that look for changes of visibility at the same time.
const SCANS: usize = 2;
/// The shortest time between two markers in the store.
const MARKER_PAUSE: Duration = Duration::from_millis(100);
/// The time after which a marker that could not be stored is stored again.
const RETRY: Duration = Duration::from_secs(1);

/// The state of the visibility of a kind.
#[derive(Clone, Debug)]
pub struct VisibilityState {
    /// Newer states have larger numbers.
    pub number: u64,
    /// The rule with this state.
    pub rule: Arc<ErasedVisibility>,
    /// The boundary; `None` until it is stored.
    pub boundary: Option<Revision>,
    /// Watches that were resumed from a revision before this one must end, because another replica may have issued it
    /// with another state.
    pub foreign: Revision,
}

/// The states of the visibility of a kind.
pub struct VisibilityStates {
    visibility: Arc<ErasedVisibility>,
    current: RwLock<Arc<VisibilityState>>,
    boundaries: Boundaries,
    /// Counts the changes of `current`.
    changes: watch::Sender<u64>,
    /// Limits the watches that look for changes of visibility at the same time.
    pub scans: Semaphore,
}

/// The source of the revisions at which states begin.
enum Boundaries {
    /// The revisions of the process.
    Process(Arc<RevisionSequencer>),
    /// The revisions of a store.
    Store { marker: Arc<Marker>, wanted: Notify },
}

impl VisibilityStates {
    /// The states of a rule that follows a state. `None` for other rules. The revisions of the kind are issued by this
    /// process.
    pub fn of_process(
        visibility: Option<&Arc<ErasedVisibility>>,
        sequencer: Arc<RevisionSequencer>,
    ) -> Option<Arc<Self>> {
        Self::new(visibility?, Boundaries::Process(sequencer))
    }

    /// The states of a rule that follows a state. `None` for other rules. The revisions of the kind are issued by a store.
    pub fn of_store(
        visibility: Option<&Arc<ErasedVisibility>>,
        marker: Arc<Marker>,
    ) -> Option<Arc<Self>> {
        Self::new(visibility?, Boundaries::Store { marker, wanted: Notify::new() })
    }

    fn new(visibility: &Arc<ErasedVisibility>, boundaries: Boundaries) -> Option<Arc<Self>> {
        let ErasedVisibility::Following(following) = &**visibility else { return None };
        let NumberedRule { number, rule } = following.newest();
        // Revisions of earlier processes are unknown to this process.
        let boundary = match &boundaries {
            Boundaries::Process(_) => Some(Revision::NONE),
            Boundaries::Store { .. } => None,
        };
        let state = VisibilityState { number, rule, boundary, foreign: Revision::NONE };
        Some(Arc::new(Self {
            visibility: Arc::clone(visibility),
            current: RwLock::new(Arc::new(state)),
            boundaries,
            changes: watch::Sender::default(),
            scans: Semaphore::new(SCANS),
        }))
    }

    fn following(&self) -> Option<&dyn FollowingRule> {
        match &*self.visibility {
            ErasedVisibility::Following(following) => Some(&**following),
            ErasedVisibility::ByIdentity(_) | ErasedVisibility::ByContent(..) => None,
        }
    }

    /// The newest state. A change of the state gets its boundary here.
    pub fn newest(&self) -> Arc<VisibilityState> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(following) = self.following() else { return current };
        if following.is_newest(current.number) {
            return current;
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let NumberedRule { number, rule } = following.newest();
        if number != current.number {
            let boundary = match &self.boundaries {
                Boundaries::Process(sequencer) => {
                    let Ok(revision) = sequencer.publish(Ok::<_, std::convert::Infallible>);
                    Some(revision)
                }
                Boundaries::Store { wanted, .. } => {
                    wanted.notify_one();
                    None
                }
            };
            let foreign = current.foreign;
            *current = Arc::new(VisibilityState { number, rule, boundary, foreign });
            self.changes.send_modify(|changes| *changes += 1);
        }
        Arc::clone(&current)
    }

    /// Notified after each change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The newest state, with its boundary unless that takes too long.
    pub async fn settled(&self) -> Arc<VisibilityState> {
        let mut changes = self.subscribe();
        let settled = async {
            // The sender lives as long as `self`.
            while self.newest().boundary.is_none() && changes.changed().await.is_ok() {}
        };
        let _ = timeout(FRESHNESS_WAIT, settled).await;
        self.newest()
    }

    /// Follows the state, and stores boundaries, until the server stops.
    pub async fn run(self: Arc<Self>) {
        let (Some(following), boundaries) = (self.following(), &self.boundaries) else { return };
        loop {
            let state = self.newest();
            match boundaries {
                Boundaries::Store { marker, .. } if state.boundary.is_none() => {
                    match marker.store().await {
                        Ok(revision) => self.set_boundary(state.number, revision),
                        Err(error) => {
                            marker.log(&error);
                            tokio::time::sleep(RETRY).await;
                        }
                    }
                    tokio::time::sleep(MARKER_PAUSE).await;
                }
                Boundaries::Store { marker, wanted } => tokio::select! {
                    () = following.changed(state.number) => {}
                    () = wanted.notified() => {}
                    revision = marker.foreign(state.foreign) => self.set_foreign(revision),
                },
                Boundaries::Process(_) => following.changed(state.number).await,
            }
        }
    }

    fn set_boundary(&self, number: u64, revision: Revision) {
        self.change(|state| {
            if state.number == number {
                state.boundary = Some(state.foreign.max(revision));
            }
        });
    }

    fn set_foreign(&self, revision: Revision) {
        self.change(|state| {
            state.foreign = state.foreign.max(revision);
            state.boundary = state.boundary.map(|boundary| boundary.max(revision));
        });
    }

    fn change(&self, change: impl FnOnce(&mut VisibilityState)) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut current));
        self.changes.send_modify(|changes| *changes += 1);
    }
}
