//! Lookup: what else a computation may look at.
//!
//! What was looked at is remembered, also when it was not there, so that its
//! change computes again just what looked at it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::computed::SourceType;
use super::kinds::SourceKind;
use crate::cluster::{Changed, SourceInformer, Sources, resource_name};
use crate::object::Key;
use crate::watch_cache::SourceState;

/// Objects of another type that a computation may look at.
pub struct Lookup<K> {
    objects: Objects<K>,
    seen: Mutex<HashSet<Key>>,
}

enum Objects<K> {
    Followed { informer: Arc<SourceInformer<K>>, changed: Arc<Changed> },
    Given(HashMap<Key, Arc<K>>),
}

impl<K: SourceType> Lookup<K> {
    /// The object of this name; `namespace` is `None` for cluster-scoped types.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let key = Key::new(namespace, name);
        let found = match &self.objects {
            Objects::Followed { informer, .. } => informer.get(&key),
            Objects::Given(objects) => objects.get(&key).cloned(),
        };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        found
    }

    /// A lookup in these objects, for tests of a computation.
    pub fn from_objects(objects: impl IntoIterator<Item = K>) -> Self {
        let keyed = objects.into_iter().map(|object| {
            let metadata = object.meta();
            let name = metadata.name.as_deref().unwrap_or_default();
            (Key::new(metadata.namespace.as_deref(), name), Arc::new(object))
        });
        Self { objects: Objects::Given(keyed.collect()), seen: Mutex::default() }
    }

    fn open(sources: &Sources, notify: &Arc<Notify>) -> Self {
        let informer = sources.open::<K>();
        let changed = informer.follow(Arc::clone(notify));
        Self { objects: Objects::Followed { informer, changed }, seen: Mutex::default() }
    }
}

/// A lookup, whatever its type.
pub trait Tracked {
    /// What was looked at since this was last asked.
    fn take_seen(&self) -> HashSet<Key>;
    /// What changed since this was last asked.
    fn take_changed(&self) -> HashSet<Key>;
    /// Whether everything there was to begin with has arrived.
    fn is_synced(&self) -> bool;
    /// The state of the source, if the objects come from the cluster.
    fn source(&self) -> Option<SourceState>;
}

/// The state of the source of an informer.
pub(super) fn source<K: SourceType>(informer: &SourceInformer<K>) -> SourceState {
    let (is_synced, watch_error) = (informer.is_synced(), informer.watch_error());
    let (resource, excess) = (resource_name::<K>(), informer.excess());
    SourceState { resource, is_synced, watch_error, excess }
}

impl<K: SourceType> Tracked for Lookup<K> {
    fn take_seen(&self) -> HashSet<Key> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_changed(&self) -> HashSet<Key> {
        match &self.objects {
            Objects::Followed { changed, .. } => changed.take(),
            Objects::Given(_) => HashSet::new(),
        }
    }

    fn is_synced(&self) -> bool {
        match &self.objects {
            Objects::Followed { informer, .. } => informer.is_synced(),
            Objects::Given(_) => true,
        }
    }

    fn source(&self) -> Option<SourceState> {
        match &self.objects {
            Objects::Followed { informer, .. } => Some(source(informer)),
            Objects::Given(_) => None,
        }
    }
}

/// What a computation may look at besides its source: nothing, a [`Lookup`],
/// or up to four of them.
pub trait Related: Send + Sync + Sized + 'static {
    #[doc(hidden)]
    fn open(sources: &Sources, notify: &Arc<Notify>) -> Self;
    #[doc(hidden)]
    fn lookups(&self) -> Vec<&dyn Tracked>;
    #[doc(hidden)]
    fn kinds() -> Vec<SourceKind>;
}

impl<K: SourceType> Related for Lookup<K> {
    fn open(sources: &Sources, notify: &Arc<Notify>) -> Self {
        Lookup::open(sources, notify)
    }

    fn lookups(&self) -> Vec<&dyn Tracked> {
        vec![self]
    }

    fn kinds() -> Vec<SourceKind> {
        vec![SourceKind::of::<K>()]
    }
}

impl Related for () {
    fn open(_: &Sources, _: &Arc<Notify>) -> Self {}

    fn lookups(&self) -> Vec<&dyn Tracked> {
        Vec::new()
    }

    fn kinds() -> Vec<SourceKind> {
        Vec::new()
    }
}

macro_rules! related {
    ($($name:ident)*) => {
        impl<$($name: Related),*> Related for ($($name,)*) {
            fn open(sources: &Sources, notify: &Arc<Notify>) -> Self {
                ($($name::open(sources, notify),)*)
            }

            #[allow(non_snake_case)] // each value is bound to the name of its type
            fn lookups(&self) -> Vec<&dyn Tracked> {
                let ($($name,)*) = self;
                let mut lookups: Vec<&dyn Tracked> = Vec::new();
                $(lookups.extend($name.lookups());)*
                lookups
            }

            fn kinds() -> Vec<SourceKind> {
                let mut kinds = Vec::new();
                $(kinds.extend($name::kinds());)*
                kinds
            }
        }
    };
}

related!(A);
related!(A B);
related!(A B C);
related!(A B C D);
