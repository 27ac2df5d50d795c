//! The guards of a commit: the gate of its definition, its quota reservation, and its namespace. They are held until
//! the outcome of the commit is known and visible in this process. That is mostly so when the store responds. If it is
//! not, a task holds the guards, and undoes a create that should not have happened.
//!
//! The permit in flight and the memory account of the request are not among the guards, because the task holds none of
//! the objects. During an outage of etcd they would be held for the whole outage, or for ten seconds after a short
//! interruption. The server would then reject the writes of the same user, and finally of all users. A slot of
//! [`UnsettledWrites`] limits the number of these tasks instead.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::attributes::{Attributes, Part, WriteOptions};
use super::critical_section::Entered;
use super::live::terminating;
use super::store_error::unavailable;
use crate::admission::{AdmittedNamespace, Reservation};
use crate::backend::{WriteContext, WriteError, WrittenObject};
use crate::error::ApiError;
use crate::object::{Key, Object};
use crate::served_kind::{Backing, ServedKind, VirtualBacking};
use crate::storage::{
    Collection, Commit, FRESHNESS_WAIT, Precondition, Revision, Store, StoreError, Versioned,
};
use crate::user::User;

/// The largest number of commits that are in flight or not settled. It is more than twice the number that can be in
/// flight: after a short interruption of etcd there is a slot for each commit that was in flight, and for the next
/// ones.
const UNSETTLED: usize = 1_024;

/// The number of attempts to remove an object that was stored too late, while the store is unavailable.
const UNDO_ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// The limit of commits that are in flight or not settled.
#[derive(Clone, Debug)]
pub struct UnsettledWrites(Arc<Semaphore>);

impl Default for UnsettledWrites {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UNSETTLED)))
    }
}

impl UnsettledWrites {
    /// Acquires a slot for a commit. Waits at most as long as a read waits for the store.
    ///
    /// # Errors
    /// 503 if no slot becomes free, because the store does not settle its writes.
    async fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        if let Ok(place) = Arc::clone(&self.0).try_acquire_owned() {
            return Ok(place);
        }
        let place = timeout(FRESHNESS_WAIT, Arc::clone(&self.0).acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| unavailable(StoreError::Unavailable))
    }
}

/// The outcome of a commit that was unknown when the store responded.
#[derive(Debug)]
pub enum Outcome {
    /// The write was committed; `is_created` is true if it has created an object.
    Committed { is_created: bool },
    /// The write was not committed, or was undone.
    Refused(ApiError),
    /// The outcome remains unknown, because another write has followed or the store has failed.
    Unknown,
}

/// The guards of a commit. Clones hold the same guards.
#[derive(Clone)]
pub struct Guards<'a> {
    served: &'a ServedKind,
    part: Part,
    user: &'a User,
    options: &'a WriteOptions,
    held: Arc<Held>,
}

struct Held {
    namespace: Option<AdmittedNamespace>,
    _reservation: Option<Reservation>,
    _gate: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl<'a> Attributes<'a> {
    /// Enters the critical section to commit an object of this size, and acquires the guards of the commit.
    ///
    /// # Errors
    /// 429 if another definition has replaced the one that has validated the object, 503 if the store does not settle
    /// its writes.
    pub async fn enter(
        &self,
        bytes: usize,
        admitted: (Option<AdmittedNamespace>, Option<Reservation>),
    ) -> Result<(Entered<'a>, Guards<'a>), ApiError> {
        let place = self.environment.unsettled.place().await?;
        let entered = self.section.enter(bytes).await;
        let gate = self.enter_gate()?;
        let (namespace, reservation) = admitted;
        let held = Held { namespace, _reservation: reservation, _gate: gate, _place: place };
        let Attributes { served, part, user, options, .. } = *self;
        Ok((entered, Guards { served, part, user, options, held: Arc::new(held) }))
    }
}

impl Guards<'_> {
    /// Returns the error if an object of this name must not be created now, because its definition or its namespace is
    /// being deleted.
    pub fn refusal(&self, name: &str) -> Option<ApiError> {
        self.held.refusal(self.served, name)
    }

    /// The context of a call of a backend.
    fn context(&self) -> WriteContext {
        let WriteOptions { field_manager, audit_id, .. } = self.options;
        let audit_id = audit_id.as_ref().and_then(|id| id.to_str().ok());
        let context = WriteContext::new(self.user, field_manager, self.part.subresource());
        context.with_audit_id(audit_id.unwrap_or_default())
    }

    /// Validates a dry run of a write: the backend of the kind may do so. Returns the object as it would be stored, if the
    /// backend has returned one.
    ///
    /// # Errors
    /// The errors of the backend.
    pub async fn dry_run(&self, commit: Commit) -> Result<WrittenObject, WriteError> {
        let revision = match commit.expected {
            Precondition::At(revision) => revision,
            Precondition::Absent => Revision::NONE,
        };
        let object = match (&self.served.backing, self.served.direct_session()) {
            (Backing::Virtual(VirtualBacking { backend, .. }), _) => {
                backend.validate(commit, self.context()).await?
            }
            (_, Some(session)) => session.validate(commit, self.context()).await?,
            _ => None,
        };
        Ok(WrittenObject { revision, object })
    }

    /// Commits a write. Returns the object as it is stored; `None` after a removal. If the outcome is unknown or not
    /// visible in this process yet, a task holds the guards until it is.
    ///
    /// # Errors
    /// Same as [`Store::commit`], and the errors of the backend of a virtual kind.
    pub async fn commit(
        &self,
        store: &Arc<dyn Store>,
        commit: Commit,
        entered: &Entered<'_>,
    ) -> Result<WrittenObject, WriteError> {
        let intended = commit.clone();
        let session = self.served.direct_session();
        let outcome = match (&self.served.backing, session) {
            (Backing::Virtual(VirtualBacking { backend, .. }), _) => {
                backend.write(commit, self.context()).await
            }
            (_, Some(session)) => session.write(commit, self.context()).await,
            _ => {
                let object = commit.object.clone();
                let revision = store.commit(commit).await;
                revision
                    .map(|revision| WrittenObject { revision, object })
                    .map_err(WriteError::from)
            }
        };
        let is_open = match &outcome {
            // The resourceVersions of a direct kind are no revisions, and its objects have no cache.
            Ok(stored) => session.is_none() && store.sequencer().current() < stored.revision,
            Err(error) => matches!(error, WriteError::Store(StoreError::Unknown)),
        };
        if is_open {
            let (teller, told) = oneshot::channel();
            if outcome.is_err() {
                entered.is_unknown(told);
            }
            let guarded = (self.served.clone(), Arc::clone(&self.held));
            let revision = outcome.as_ref().ok().map(|stored| stored.revision);
            let settled = settle(guarded, Arc::clone(store), Intent::of(intended), revision);
            tokio::spawn(async move {
                // The receiver may have been dropped with the request.
                let _ = teller.send(settled.await);
            });
        }
        outcome
    }
}

impl Held {
    fn refusal(&self, served: &ServedKind, name: &str) -> Option<ApiError> {
        let kind = &served.kind;
        let closed = served.create_gate.is_closed().then(|| terminating(kind, name));
        let object = (&*kind.group, &*kind.names.plural, name);
        closed.or_else(|| self.namespace.as_ref()?.known_refusal(object))
    }
}

/// Waits, with the guards held, until the outcome of a commit is known and visible in this process. Undoes a create
/// that has happened although its definition or its namespace is being deleted.
async fn settle(
    (served, held): (ServedKind, Arc<Held>),
    store: Arc<dyn Store>,
    intent: Intent,
    committed: Option<Revision>,
) -> Outcome {
    match committed {
        Some(revision) => {
            let sequencer = store.sequencer();
            tokio::select! {
                () = sequencer.wait_until(revision) => {}
                _ = store.failed() => return Outcome::Unknown,
            }
        }
        None => store.settled().await,
    }
    let is_create = intent.expected == Precondition::Absent;
    if committed.is_some() && !is_create {
        return Outcome::Committed { is_created: false };
    }
    let place = (&intent.collection, &intent.key);
    if store.failure().is_some() {
        return Outcome::Unknown;
    }
    let found = loop {
        match store.get(place.0, place.1).await {
            Ok(found) => break found,
            Err(StoreError::Unavailable) => sleep(PAUSE).await,
            Err(_) => return Outcome::Unknown,
        }
    };
    let outcome = match intent.outcome(found.as_ref()) {
        // A backend may still create or change the object, also after its call was given up.
        Outcome::Refused(_) if !served.is_stored() => Outcome::Unknown,
        outcome => outcome,
    };
    if let (true, Outcome::Committed { .. }, Some(found)) = (is_create, &outcome, found)
        && let Some(refusal) = held.refusal(&served, intent.key.name())
    {
        undo(&*store, place, found.revision, found.object.uid()).await;
        return Outcome::Refused(refusal);
    }
    outcome
}

/// The parameters of a commit, without its object.
struct Intent {
    collection: Collection,
    key: Key,
    expected: Precondition,
    /// The uid and the hash of the object; `None` if the commit removes an object.
    write: Option<(String, u64)>,
}

impl Intent {
    fn of(commit: Commit) -> Self {
        let Commit { collection, key, expected, object, .. } = commit;
        let write = object.map(|object| (object.uid().to_owned(), hash(&object)));
        Self { collection, key, expected, write }
    }

    /// The outcome of a settled commit, derived from the object that is stored now.
    fn outcome(&self, found: Option<&Versioned>) -> Outcome {
        let is_before = match (self.expected, found) {
            (Precondition::At(revision), Some(found)) => found.revision == revision,
            (Precondition::Absent, found) => found.is_none(),
            (Precondition::At(_), None) => false,
        };
        if is_before {
            return Outcome::Refused(unavailable(StoreError::Unavailable));
        }
        match (&self.write, found) {
            (None, None) => Outcome::Committed { is_created: false },
            (Some((uid, hashed)), Some(found)) if found.object.uid() == uid => {
                let is_created = self.expected == Precondition::Absent;
                let is_it = is_created || hash(&found.object) == *hashed;
                if is_it { Outcome::Committed { is_created } } else { Outcome::Unknown }
            }
            _ => Outcome::Unknown,
        }
    }
}

fn hash(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.json().hash(&mut hasher);
    hasher.finish()
}

/// Removes an object that was stored too late, even if it was changed since.
pub(super) async fn undo(
    store: &dyn Store,
    (collection, key): (&Collection, &Key),
    mut revision: Revision,
    uid: &str,
) {
    for _ in 0..UNDO_ATTEMPTS {
        let commit = Commit {
            collection: collection.clone(),
            key: key.clone(),
            expected: Precondition::At(revision),
            object: None,
            marks: true,
        };
        match store.commit(commit).await {
            Err(StoreError::Changed { .. } | StoreError::Exists) => {
                match store.get(collection, key).await {
                    Ok(Some(changed)) if changed.object.uid() == uid => revision = changed.revision,
                    Ok(_) => return,
                    Err(_) => sleep(PAUSE).await,
                }
            }
            Err(StoreError::Unavailable | StoreError::Unknown) => sleep(PAUSE).await,
            Ok(_) | Err(StoreError::Absent) => return,
            Err(error) => {
                tracing::error!(
                    collection = %collection,
                    object = %key,
                    %error,
                    "object remains in the store"
                );
                return;
            }
        }
    }
    tracing::error!(collection = %collection, object = %key, "object remains in the store");
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::error::Reason;

    fn object(uid: &str, size: u32) -> Arc<Object> {
        let tree = json!({"metadata": {"name": "a", "uid": uid}, "size": size});
        Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap())
    }

    #[test]
    fn the_stored_object_determines_the_outcome_of_a_commit() {
        let at = |number| Precondition::At(Revision::new(number));
        let found = |uid, size, number| {
            Some(Versioned { revision: Revision::new(number), object: object(uid, size) })
        };
        let (new, changed) = (Some(object("u", 1)), Some(object("u", 2)));
        for (expected, write, found, outcome) in [
            // A create.
            (Precondition::Absent, new.clone(), None, "refused"),
            (Precondition::Absent, new.clone(), found("u", 1, 7), "committed"),
            (Precondition::Absent, new.clone(), found("u", 9, 8), "committed"),
            (Precondition::Absent, new, found("v", 1, 7), "unknown"),
            // An update.
            (at(5), changed.clone(), found("u", 1, 5), "refused"),
            (at(5), changed.clone(), found("u", 2, 7), "committed"),
            (at(5), changed.clone(), found("u", 3, 7), "unknown"),
            (at(5), changed.clone(), found("v", 2, 7), "unknown"),
            (at(5), changed, None, "unknown"),
            // A removal.
            (at(5), None, found("u", 1, 5), "refused"),
            (at(5), None, None, "committed"),
            (at(5), None, found("u", 1, 7), "unknown"),
        ] {
            let key = Key::new(None, "a");
            let collection = Collection::new("c");
            let commit = Commit { collection, key, expected, object: write, marks: false };
            let intent = Intent::of(commit);
            let actual = match intent.outcome(found.as_ref()) {
                Outcome::Committed { is_created } => {
                    assert_eq!(is_created, expected == Precondition::Absent);
                    "committed"
                }
                Outcome::Refused(error) => {
                    assert_eq!(error.reason(), Reason::ServiceUnavailable);
                    "refused"
                }
                Outcome::Unknown => "unknown",
            };
            assert_eq!(actual, outcome, "{expected:?} {found:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unsettled_commits_are_limited() {
        let unsettled = UnsettledWrites::default();
        let place = || unsettled.place().now_or_never().and_then(Result::ok);
        let mut held: Vec<_> = std::iter::from_fn(place).collect();
        assert_eq!(held.len(), UNSETTLED);
        let refused = unsettled.place().await.unwrap_err();
        assert_eq!(refused.reason(), Reason::ServiceUnavailable);
        assert_eq!(refused.retry_after_seconds(), Some(1));
        let (waited, ()) = tokio::join!(unsettled.place(), async {
            sleep(FRESHNESS_WAIT / 2).await;
            held.pop();
        });
        assert!(waited.is_ok());
    }
}
