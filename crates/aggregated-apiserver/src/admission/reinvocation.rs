//! Reinvocation: the second call of the mutating plugins. A plugin requests it after it has changed an object, because
//! the plugins before it have not seen the change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::Extensions;

/// The state of the plugin calls for one write.
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    is_requested: AtomicBool,
    has_begun: AtomicBool,
    /// The data that plugins store between the two calls, by type.
    state: Mutex<Extensions>,
}

impl Reinvocation {
    pub(super) fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Starts the second call, if a plugin has requested it in the first.
    pub(super) fn begin(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed) && !self.has_begun.swap(true, Ordering::Relaxed)
    }

    pub(super) fn keep<T: Clone + Send + Sync + 'static>(&self, state: T) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).insert(state);
    }

    pub(super) fn take<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).remove()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_called_twice_at_most() {
        let calls = Reinvocation::default();
        assert!(!calls.begin() && !calls.has_begun());
        calls.request();
        assert!(calls.begin() && calls.has_begun());
        calls.request();
        assert!(!calls.begin());
    }
}
