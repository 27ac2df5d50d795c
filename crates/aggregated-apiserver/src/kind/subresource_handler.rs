//! Subresources that are handled by code. The body of a request is not stored. The handler answers the request, changes
//! the object, or deletes it.

use std::fmt;
use std::sync::Arc;

use super::{Kind, RuleContext};
use crate::error::FieldError;
use crate::object::{Key, Tree};

/// The reason why a request to a subresource is rejected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubresourceError {
    /// Fields of the body are invalid (422): the name of the body's object, and the fields.
    Invalid(String, Vec<FieldError>),
    /// The body does not fit the object, or cannot be decoded (400).
    BadRequest(String),
    /// The state of the object does not allow the request (409).
    Conflict(String),
    /// Another object conflicts with the request (409).
    ConflictOf {
        /// The group.
        group: String,
        /// The resource or the kind.
        resource: String,
        /// The name.
        name: String,
        /// The message.
        why: String,
    },
    /// An object that the body names does not exist (404): its group, plural and name.
    NotFound(String, String, String),
}

/// The effect of a request to a subresource.
#[derive(Debug)]
pub enum SubresourceOutcome {
    /// The response. Nothing is written, so admission is not called.
    Answer(Tree),
    /// The changed object. Admission sees an update; the object is not validated, so the handler must do it.
    Change(Tree),
    /// The changed object, which is then deleted with these DeleteOptions.
    Delete(Tree, Tree),
}

/// A request to a subresource: the object that the path names, and the body.
#[derive(Clone, Copy, Debug)]
pub struct SubresourceRequest<'a> {
    /// The key of the object.
    pub key: &'a Key,
    /// The current object.
    pub object: &'a Tree,
    /// The body.
    pub body: &'a Tree,
    /// The user and the time of the request.
    pub context: &'a RuleContext<'a>,
}

type Handle = Box<
    dyn Fn(&SubresourceRequest<'_>) -> Result<SubresourceOutcome, SubresourceError> + Send + Sync,
>;

/// A subresource that is handled by code.
pub struct SubresourceHandler {
    name: &'static str,
    kind: Arc<Kind>,
    handle: Handle,
}

impl SubresourceHandler {
    /// A subresource with this name that accepts a POST of objects of this kind. `handle` is called again if the object
    /// has changed in the meantime.
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

    /// Handles a request.
    ///
    /// # Errors
    /// The reason why the request is rejected.
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
