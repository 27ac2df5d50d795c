//! Subresources that code answers: what is posted there is not kept, but does something to
//! the object, or is answered.

use std::fmt;
use std::sync::Arc;

use super::{Kind, RuleContext};
use crate::error::FieldError;
use crate::object::{Key, Tree};

/// Why something that was posted to a subresource does nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubresourceError {
    /// Fields of it are wrong (422): what it is called, and the fields.
    Invalid(String, Vec<FieldError>),
    /// It does not fit the object, or cannot be read (400).
    BadRequest(String),
    /// The object is not in the state for it (409).
    Conflict(String),
    /// Something else is not: its group, resource or kind, and name, and why (409).
    ConflictOf {
        /// The group.
        group: String,
        /// The resource or the kind.
        resource: String,
        /// The name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Something that it names is not there (404): its group, plural and name.
    NotFound(String, String, String),
}

/// What comes of something that was posted to a subresource.
#[derive(Debug)]
pub enum Effect {
    /// This is the answer. Nothing is written, so admission is not asked.
    Answer(Tree),
    /// The object becomes this. Admission sees it as an update; nothing validates it, so the
    /// code must.
    Change(Tree),
    /// The object becomes this, and is deleted then, with these DeleteOptions.
    Delete(Tree, Tree),
}

/// A request to a subresource: the object that the path names, and the body.
#[derive(Clone, Copy, Debug)]
pub struct Posted<'a> {
    /// Where the object is.
    pub key: &'a Key,
    /// The object, as it is now.
    pub object: &'a Tree,
    /// What was posted.
    pub body: &'a Tree,
    /// The user and the time of the request.
    pub context: &'a RuleContext<'a>,
}

type Act = Box<dyn Fn(&Posted<'_>) -> Result<Effect, SubresourceError> + Send + Sync>;

/// A subresource that code answers.
pub struct CodedSubresource {
    name: &'static str,
    kind: Arc<Kind>,
    act: Act,
}

impl CodedSubresource {
    /// A subresource of this name, to which objects of this kind are posted. `act` is asked
    /// anew when the object has changed meanwhile.
    pub fn new(name: &'static str, kind: Arc<Kind>, act: Act) -> Self {
        Self { name, kind, act }
    }

    /// The name in the path.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The kind of what is posted.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// What comes of something that was posted.
    ///
    /// # Errors
    /// Why nothing does.
    pub fn act(&self, posted: &Posted<'_>) -> Result<Effect, SubresourceError> {
        (self.act)(posted)
    }
}

impl fmt::Debug for CodedSubresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CodedSubresource").field(&self.name).finish()
    }
}
