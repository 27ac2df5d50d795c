//! Subresources: what of a kind has a path of its own below each object.

use std::sync::Arc;

use super::Verb;
use crate::kind::{Kind, SubresourceHandler, Version, scale};
use crate::served_kind::{Backing, ServedKind};
use crate::write::Part;

/// A subresource of a kind: an entry of an open list. Route, discovery, OpenAPI, decoding and
/// encoding take what they say of it from here.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The name in the path.
    pub name: &'static str,
    /// What can be done with it.
    pub verbs: &'static [Verb],
    /// The kind of what is sent to it and of what it answers, if that is another one than the
    /// object's.
    pub kind: Option<Arc<Kind>>,
    /// What stands behind it.
    pub action: Action,
}

/// What stands behind a subresource.
#[derive(Clone, Debug)]
pub enum Action {
    /// A part of the object, or a form of it, that is read and written by itself.
    Part(Part),
    /// Code that handles what is posted.
    Handler(Arc<SubresourceHandler>),
}

impl Subresource {
    fn part(part: Part, verbs: &'static [Verb], kind: Option<Arc<Kind>>) -> Self {
        Self { name: part.subresource(), verbs, kind, action: Action::Part(part) }
    }

    /// The part of the object that is written.
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
    let Backing::Stored(_) = served.backing else { return all };
    let kind = &served.kind;
    if version.subresources.status {
        all.push(Subresource::part(Part::Status, CHANGE, None));
    }
    if version.subresources.scale.is_some() {
        all.push(Subresource::part(Part::Scale, CHANGE, scale()));
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
