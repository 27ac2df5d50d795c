//! What the computations of one kind share: of each type that several of them look at there is one lookup.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::cluster::Sources;

/// Which of the computations of a kind this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asker(pub u8);

/// What is looked at by the computations of a kind, by its type.
#[derive(Default)]
pub struct Pool(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Pool {
    /// What is shared of a type; made when it is first asked for.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        type_id: TypeId,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.get(&type_id).map(Arc::clone);
        if let Some(Ok(known)) = known.map(Arc::downcast) {
            return known;
        }
        let made = Arc::new(make());
        shared.insert(type_id, made.clone());
        made
    }
}

/// What is needed to open lookups.
pub struct Opening<'a> {
    pub sources: &'a Sources,
    /// Wakes the task that takes changes.
    pub notify: &'a Arc<Notify>,
    /// Which of the types that share lookups asks.
    pub asker: Asker,
    /// The lookups that are shared.
    pub pool: &'a Pool,
}
