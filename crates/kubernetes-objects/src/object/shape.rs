//! Shape: by which definition an object was written.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::Object;

/// By which definition of its kind an object was written, as far as that says what objects
/// hold: objects of the shape that a kind has now are shown as they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(u64);

impl Shape {
    /// The shape of this number. Zero is that of kinds whose definition never changes.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The shape of objects that another server has written, by a definition that nobody knows
    /// here. No kind has it.
    pub fn of_another_server() -> Self {
        // Those of definitions are odd.
        Self(2)
    }
}

/// An object of an older shape as it is shown now, once somebody has asked for it. It is
/// kept beside the object, so that only the first reader converts. A lock, because most objects never have one, and many
/// are made and forgotten at once, where it costs nothing.
#[derive(Default)]
pub(super) struct Shown(Mutex<Option<Box<InShape>>>);

/// An object in another shape.
type InShape = (Shape, Arc<Object>);

impl Shown {
    fn now(&self) -> Option<InShape> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_deref().cloned()
    }

    /// The object in this shape. It is kept if it takes at most so many bytes.
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

/// A copy is shown anew.
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
