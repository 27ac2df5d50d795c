//! Annotations that admission adds to an event.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::policy::Level;
use super::{Audit, OBJECT_LIMIT};
use crate::admission::AuditAnnotations;
use crate::user::User;

/// The memory of an annotation besides its key and its value, in bytes.
const OVERHEAD: usize = 96;

/// The annotations that admission adds to the event of one request. A write that outlives its request holds them too.
#[derive(Debug)]
pub(super) struct AdmissionAnnotations {
    audit: Arc<Audit>,
    user: Arc<User>,
    level: Level,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The value of each key.
    pub values: BTreeMap<Box<str>, Box<str>>,
    /// Whether an annotation was omitted, because its size or the memory of all annotations exceeded a limit.
    pub is_truncated: bool,
    /// The memory that is reserved for the annotations, in bytes.
    reserved: usize,
}

impl AdmissionAnnotations {
    /// Creates the annotations of an event of this level. Their memory counts against the limit of the user.
    pub(super) fn new(audit: &Arc<Audit>, user: &Arc<User>, level: Level) -> Self {
        let (audit, user) = (Arc::clone(audit), Arc::clone(user));
        Self { audit, user, level, state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditAnnotations for AdmissionAnnotations {
    fn holds_bodies(&self) -> bool {
        self.level >= Level::Request
    }

    fn add(&self, key: &str, value: &str) {
        let mut state = self.state();
        if let Some(first) = state.values.get(key) {
            if **first != *value {
                tracing::debug!(key, "omitted a second value of an audit annotation");
            }
            return;
        }
        let bytes = key.len() + value.len() + OVERHEAD;
        let fits = state.reserved + bytes <= OBJECT_LIMIT
            && self.audit.objects(|room| room.take(&self.user.name, bytes));
        if !fits {
            state.is_truncated = true;
            return;
        }
        state.reserved += bytes;
        state.values.insert(key.into(), value.into());
    }
}

impl Drop for AdmissionAnnotations {
    fn drop(&mut self) {
        let reserved = self.state().reserved;
        self.audit.objects(|room| room.give_back(&self.user.name, reserved));
    }
}
