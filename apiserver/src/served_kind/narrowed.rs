//! Views of a computed kind for those who may not read all that it looks up: computed as if that could
//! not be read, so that nothing of it is seen, also not by selectors and the times of events.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;

use super::SourceResource;
use crate::watch_cache::WatchCache;

/// At most so many such views of a kind are kept: each takes as much as the kind itself.
const MOST: usize = 4;

/// The lookups of a kind that are left out, by their places.
pub type LeftOut = BTreeSet<usize>;

/// A view that is computed, and what computes it.
pub type Opened = (Arc<WatchCache>, JoinHandle<()>);

/// What else callers need rights on to see all of a computed kind, and the views for those who have
/// not.
pub struct Narrowed {
    /// The places of the lookups, and what they read.
    guarded: Vec<(usize, SourceResource)>,
    open: Box<dyn Fn(LeftOut) -> Opened + Send + Sync>,
    views: Mutex<HashMap<LeftOut, Opened>>,
}

impl Narrowed {
    /// No views yet; `open` begins to compute one.
    pub fn new(
        guarded: Vec<(usize, SourceResource)>,
        open: impl Fn(LeftOut) -> Opened + Send + Sync + 'static,
    ) -> Self {
        Self { guarded, open: Box::new(open), views: Mutex::default() }
    }

    /// What rights are needed on, with its place.
    pub fn guarded(&self) -> &[(usize, SourceResource)] {
        &self.guarded
    }

    /// The view without these lookups; `None` if there are too many views already.
    pub fn view(&self, left_out: &LeftOut) -> Option<Arc<WatchCache>> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((cache, _)) = views.get(left_out) {
            return Some(Arc::clone(cache));
        }
        if views.len() >= MOST {
            return None;
        }
        let (cache, task) = (self.open)(left_out.clone());
        views.insert(left_out.clone(), (Arc::clone(&cache), task));
        Some(cache)
    }
}

impl fmt::Debug for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Narrowed")
    }
}

impl Drop for Narrowed {
    fn drop(&mut self) {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.values().for_each(|(_, task)| task.abort());
    }
}
