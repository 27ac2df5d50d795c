//! Subresources that code handles: the body of such a request is not kept. The handler answers
//! it, changes the object, or deletes it.

use std::fmt;
use std::sync::Arc;

use super::{Kind, RuleContext};
use crate::error::FieldError;
use crate::object::{Key, Tree};

/// Why a request to a subresource is refused.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubresourceError {
    /// Fields of the body are wrong (422): the name of the body's object, and the fields.
    Invalid(String, Vec<FieldError>),
    /// The body does not fit the object, or cannot be read (400).
    BadRequest(String),
    /// The object is not in a state for this request (409).
    Conflict(String),
    /// Another object is in conflict (409): its group, resource or kind, name, and why.
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
    /// An object that the body names does not exist (404): its group, plural and name.
    NotFound(String, String, String),
}

/// What a request to a subresource does.
#[derive(Debug)]
pub enum SubresourceOutcome {
    /// This is the answer. Nothing is written, so admission is not asked.
    Answer(Tree),
    /// The object becomes this. Admission sees it as an update; nothing validates it, so the
    /// handler must.
    Change(Tree),
    /// The object becomes this, and is deleted then, with these DeleteOptions.
    Delete(Tree, Tree),
}

/// A request to a subresource: the object that the path names, and the body.
#[derive(Clone, Copy, Debug)]
pub struct SubresourceRequest<'a> {
    /// Where the object is.
    pub key: &'a Key,
    /// The object, as it is now.
    pub object: &'a Tree,
    /// The body.
    pub body: &'a Tree,
    /// The user and the time of the request.
    pub context: &'a RuleContext<'a>,
}

type Handle = Box<
    dyn Fn(&SubresourceRequest<'_>) -> Result<SubresourceOutcome, SubresourceError> + Send + Sync,
>;

/// A subresource that code handles.
pub struct SubresourceHandler {
    name: &'static str,
    kind: Arc<Kind>,
    handle: Handle,
}

impl SubresourceHandler {
    /// A subresource of this name, to which objects of this kind are posted. `handle` is called
    /// again if the object has changed meanwhile.
    pub fn new(name: &'static str, kind: Arc<Kind>, handle: Handle) -> Self {
        Self { name, kind, handle }
    }

    /// The name in the path.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The kind of the bodies.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// What this request does.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn handle(
        &self,
        request: &SubresourceRequest<'_>,
    ) -> Result<SubresourceOutcome, SubresourceError> {
        (self.handle)(request)
    }
}

impl fmt::Debug for SubresourceHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SubresourceHandler").field(&self.name).finish()
    }
}
