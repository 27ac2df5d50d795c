//! Subresources: paths below each object of a kind.

use std::sync::Arc;

use super::Verb;
use crate::kind::{Kind, SubresourceHandler, Version, scale};
use crate::served_kind::{Backing, ServedKind};
use crate::write::Part;

/// A subresource of a kind. Routing, discovery, OpenAPI, decoding and encoding all use this description.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The name in the path.
    pub name: &'static str,
    /// The verbs of the subresource.
    pub verbs: &'static [Verb],
    /// The kind of the request and response bodies, if it differs from the kind of the object.
    pub kind: Option<Arc<Kind>>,
    /// The implementation of the subresource.
    pub action: Action,
}

/// The implementation of a subresource.
#[derive(Clone, Debug)]
pub enum Action {
    /// A part of the object, or another form of it, that is read and written separately.
    Part(Part),
    /// A handler for POST requests.
    Handler(Arc<SubresourceHandler>),
}

impl Subresource {
    fn part(part: Part, verbs: &'static [Verb], kind: Option<Arc<Kind>>) -> Self {
        Self { name: part.subresource(), verbs, kind, action: Action::Part(part) }
    }

    /// The part of the object that the subresource writes.
    pub fn written(&self) -> Part {
        match &self.action {
            Action::Part(part) => *part,
            Action::Handler(handler) => Part::Handler(handler.name()),
        }
    }
}

/// The subresources of a kind in one version, in the order of discovery.
pub fn subresources(served: &ServedKind, version: &Version) -> Vec<Subresource> {
    const CHANGE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
    let mut all = Vec::new();
    let changes = match &served.backing {
        Backing::Stored(_) => CHANGE,
        Backing::Virtual(backing) if backing.backend.writes().update => CHANGE,
        Backing::Virtual(_) | Backing::Direct(_) => &[Verb::Get],
        Backing::Computed(_) | Backing::Reviewed(_) => return all,
    };
    let kind = &served.kind;
    if version.subresources.status {
        all.push(Subresource::part(Part::Status, changes, None));
    }
    if version.subresources.scale.is_some() {
        all.push(Subresource::part(Part::Scale, changes, scale()));
    }
    if kind.strategy.has_finalize {
        all.push(Subresource::part(Part::Finalizers, &[Verb::Update], None));
    }
    all.extend(kind.subresource_handlers.iter().map(|handler| Subresource {
        name: handler.name(),
        verbs: &[Verb::Create],
        kind: Some(Arc::clone(handler.kind())),
        action: Action::Handler(Arc::clone(handler)),
    }));
    all
}
