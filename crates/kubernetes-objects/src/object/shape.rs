//! `Shape`: the definition that an object was written under.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Object;

/// The definition that an object was written under, as far as it affects the content of objects. An object with the
/// current shape of its kind is returned as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(u64);

impl Shape {
    /// The shape with this number. Zero is the shape of kinds whose definition never changes.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of the shape.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The shape of objects that another server has written under a definition that is unknown to this server. No kind
    /// has this shape.
    pub fn of_another_server() -> Self {
        // The shapes of definitions are odd numbers.
        Self(2)
    }
}

/// An object of an older shape in its current shape, once a reader has requested it. It is cached beside the object, so
/// that only the first reader converts. A lock is used because most objects never have a converted form, and many
/// objects are created and dropped at once: an empty lock costs nothing.
#[derive(Default)]
pub(super) struct Shown(Mutex<Option<Box<InShape>>>);

/// An object and its shape.
type InShape = (Shape, Arc<Object>);

impl Shown {
    fn now(&self) -> Option<InShape> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_deref().cloned()
    }

    /// Returns the object in this shape, and creates it if necessary. It is cached if it uses at most `limit` bytes.
    pub(super) fn get_or_make<E>(
        &self,
        shape: Shape,
        limit: usize,
        make: impl FnOnce() -> Result<Object, E>,
    ) -> Result<Arc<Object>, E> {
        if let Some((_, shown)) = self.now().filter(|(now, _)| *now == shape) {
            return Ok(shown);
        }
        let made = Arc::new(make()?);
        if made.size() <= limit {
            let shown = Some(Box::new((shape, Arc::clone(&made))));
            let before = std::mem::replace(
                &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
                shown,
            );
            drop(before);
        }
        Ok(made)
    }
}

/// A copy has an empty cache.
impl Clone for Shown {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = self.now().map(|(shape, _)| shape);
        f.debug_tuple("Shown").field(&shape).finish()
    }
}
