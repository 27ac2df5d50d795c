//! Subresources: paths below each object of a kind.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;

use super::Verb;
use crate::kind::{Kind, SubresourceHandler, Version, scale};
use crate::served_kind::{Backing, ServedKind};
use crate::subresource::Subresource;
use crate::write::Part;

/// A subresource of a kind. Routing, discovery, OpenAPI, decoding and encoding all use this description.
#[derive(Clone, Debug)]
pub struct ServedSubresource {
    /// The name in the path.
    pub name: &'static str,
    /// The verbs of the subresource.
    pub verbs: Cow<'static, [Verb]>,
    /// The kind of the request and response bodies, if it differs from the kind of the object.
    pub kind: Option<Arc<Kind>>,
    /// The implementation of the subresource.
    pub action: Action,
}

/// The verb with which a proxy handles OPTIONS. Authorizers get no verb for OPTIONS, same as in kube-apiserver, so only
/// roles with all verbs allow it.
pub fn verb_of_options(custom: &Subresource, method: &Method) -> Option<Verb> {
    (*method == Method::OPTIONS && custom.handles(method)).then_some(Verb::Get)
}

/// The implementation of a subresource.
#[derive(Clone, Debug)]
pub enum Action {
    /// A part of the object, or another form of it, that is read and written separately.
    Part(Part),
    /// A handler for POST requests of a built-in kind.
    Handler(Arc<SubresourceHandler>),
    /// Code of the user.
    Custom(Arc<Subresource>),
}

impl ServedSubresource {
    fn part(part: Part, verbs: &'static [Verb], kind: Option<Arc<Kind>>) -> Self {
        let verbs = Cow::Borrowed(verbs);
        Self { name: part.subresource(), verbs, kind, action: Action::Part(part) }
    }

    /// The verb with which a proxy handles OPTIONS.
    pub fn verb_of_options(&self, method: &Method) -> Option<Verb> {
        verb_of_options(self.custom()?, method)
    }

    /// The code of the user that handles requests, if there is any.
    pub fn custom(&self) -> Option<&Arc<Subresource>> {
        match &self.action {
            Action::Custom(custom) => Some(custom),
            Action::Part(_) | Action::Handler(_) => None,
        }
    }

    /// The part of the object that the subresource writes.
    pub fn written(&self) -> Part {
        match &self.action {
            Action::Part(part) => *part,
            Action::Handler(handler) => Part::Handler(handler.name()),
            Action::Custom(custom) => Part::Handler(custom.name()),
        }
    }
}

/// The subresources of a kind in one version, in the order of discovery.
pub fn subresources(served: &ServedKind, version: &Version) -> Vec<ServedSubresource> {
    const CHANGE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
    let mut all: Vec<_> = served.kind.subresources.iter().map(custom).collect();
    let changes = match &served.backing {
        Backing::Stored(_) => CHANGE,
        Backing::Virtual(backing) if backing.backend.writes().update => CHANGE,
        Backing::Direct(backing) if backing.reader.writes().update => CHANGE,
        Backing::Virtual(_) | Backing::Direct(_) => &[Verb::Get],
        Backing::Computed(_) | Backing::Reviewed(_) | Backing::Elsewhere => return all,
    };
    let kind = &served.kind;
    if version.subresources.status {
        all.push(ServedSubresource::part(Part::Status, changes, None));
    }
    if version.subresources.scale.is_some() {
        all.push(ServedSubresource::part(Part::Scale, changes, scale()));
    }
    if kind.strategy.has_finalize {
        all.push(ServedSubresource::part(Part::Finalizers, &[Verb::Update], None));
    }
    if kind.strategy.has_approval {
        all.push(ServedSubresource::part(Part::Approval, changes, None));
    }
    all.extend(kind.subresource_handlers.iter().map(|handler| ServedSubresource {
        name: handler.name(),
        verbs: Cow::Borrowed(&[Verb::Create]),
        kind: Some(Arc::clone(handler.kind())),
        action: Action::Handler(Arc::clone(handler)),
    }));
    all
}

/// A subresource of the user.
fn custom(subresource: &Arc<Subresource>) -> ServedSubresource {
    let mut verbs: Vec<_> = subresource.methods().filter_map(Verb::of_method).collect();
    verbs.sort_unstable_by_key(|verb| verb.name());
    let action = Action::Custom(Arc::clone(subresource));
    ServedSubresource { name: subresource.name(), verbs: verbs.into(), kind: None, action }
}
