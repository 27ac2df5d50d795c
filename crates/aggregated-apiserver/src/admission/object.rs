//! AdmissionObject: an object that a plugin may change.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::object::Tree;

/// An object that a plugin may change: a JSON object. It records whether it was touched, because only touched objects
/// are defaulted again.
pub struct AdmissionObject<'a> {
    tree: &'a mut Tree,
    is_touched: bool,
    fill: Option<&'a Fill<'a>>,
}

/// Fills in defaults.
type Fill<'a> = dyn Fn(&mut Tree) -> Result<(), String> + Sync + 'a;

impl fmt::Debug for AdmissionObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdmissionObject").field(&self.tree).finish()
    }
}

impl<'a> AdmissionObject<'a> {
    pub(crate) fn new(tree: &'a mut Tree) -> Self {
        Self { tree, is_touched: false, fill: None }
    }

    /// Sets the function that fills in defaults.
    #[must_use]
    pub(crate) fn filled_by(self, fill: &'a Fill<'a>) -> Self {
        Self { fill: Some(fill), ..self }
    }

    /// Fills in the defaults of the changed object.
    ///
    /// # Errors
    /// The reason, if the object does not match its type any more.
    pub fn set_defaults(&mut self) -> Result<(), String> {
        self.is_touched = true;
        match self.fill {
            Some(fill) => fill(self.tree),
            None => Ok(()),
        }
    }

    /// Whether a plugin may have changed the object since the last call.
    pub(crate) fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.is_touched)
    }
}

impl Deref for AdmissionObject<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.tree
    }
}

impl DerefMut for AdmissionObject<'_> {
    fn deref_mut(&mut self) -> &mut Tree {
        self.is_touched = true;
        self.tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_mark_an_admission_object_as_touched() {
        let mut tree = Tree::new();
        let mut object = AdmissionObject::new(&mut tree);
        assert!(object.get("spec").is_none() && !object.take_touched());
        object.insert("spec".to_owned(), 1.into());
        assert!(object.take_touched() && !object.take_touched());
    }
}
