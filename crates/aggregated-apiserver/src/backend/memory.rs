//! The memory limit of the objects of backends.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit of the memory, in bytes.
const UNIT: usize = 1 << 10;

/// The memory that the objects of one backend or of several backends may use.
#[derive(Clone)]
pub(crate) struct BackendMemory {
    /// The free memory, in units of [`UNIT`].
    free: Arc<Semaphore>,
    limit: usize,
}

impl BackendMemory {
    /// A limit in bytes.
    pub(crate) fn of(limit: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(limit / UNIT)), limit }
    }

    /// The limit in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether this number of bytes is free.
    pub(super) fn has(&self, bytes: usize) -> bool {
        bytes.div_ceil(UNIT) <= self.free.available_permits()
    }

    /// Changes the memory that is held to this number of bytes. Returns false, and changes nothing, if there is not enough
    /// memory.
    pub(super) fn hold(&self, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let wanted = bytes.div_ceil(UNIT);
        let now = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if wanted <= now {
            drop(held.as_mut().and_then(|held| held.split(now - wanted)));
            return true;
        }
        let units = u32::try_from(wanted - now).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(units) else { return false };
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_share_their_memory() {
        let memory = BackendMemory::of(10 * UNIT);
        let (mut one, mut other) = (None, None);
        assert!(memory.hold(&mut one, 6 * UNIT) && memory.hold(&mut other, 4 * UNIT));
        assert!(!memory.hold(&mut one, 6 * UNIT + 1) && !memory.has(1));
        assert!(memory.hold(&mut other, UNIT + 1) && memory.has(2 * UNIT));
        assert!(memory.hold(&mut one, 8 * UNIT) && !memory.has(1));
        drop(one);
        assert!(memory.has(8 * UNIT) && !memory.has(8 * UNIT + 1));
    }
}
