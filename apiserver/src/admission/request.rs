//! AdmissionRequest: what a plugin is told about a write.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AdmissionError, Reservation};
use crate::kind::{RuleContext, Version};
use crate::object::{Key, Object, Tree, metadata};
use crate::served_kind::{ServedKind, ServedKinds};
use crate::user::User;
use crate::watch_cache::Scope;

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdmissionOperation {
    /// It is created, be it by a PUT.
    Create,
    /// It is changed: by a PUT or a PATCH, of itself or of a subresource, or by what is posted
    /// to a subresource, as a binding.
    Update,
    /// It is deleted, alone or with others.
    Delete,
}

impl AdmissionOperation {
    /// Its name in Kubernetes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// What a plugin is told about a write, besides the object.
#[derive(Debug)]
#[non_exhaustive]
pub struct AdmissionRequest<'a> {
    /// What is done.
    pub operation: AdmissionOperation,
    /// The API group of the kind; empty for the core group.
    pub group: &'a str,
    /// The version of the request, in which the objects are.
    pub version: &'a str,
    /// The plural, as in paths.
    pub resource: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The subresource that is written, as `status`; empty for the object itself. A write to
    /// any of them shows the object that it changes. An eviction is an update and then a
    /// deletion, both of the subresource `eviction`.
    pub subresource: &'a str,
    /// The namespace, if the kind has any.
    pub namespace: Option<&'a str>,
    /// The name in the path; of a new object the one that it says itself, which is empty if
    /// it is still to be generated.
    pub name: &'a str,
    /// The user of the request.
    pub user: &'a User,
    /// The field manager: the client's `fieldManager`, otherwise the first part of its
    /// User-Agent.
    pub field_manager: &'a str,
    /// When.
    pub now: Timestamp,
    /// Whether everything is checked and nothing is kept.
    pub dry_run: bool,
    old: OldObject<'a>,
    served: &'a ServedKind,
    kinds: &'a ServedKinds,
    warnings: Warnings,
    reservation: Mutex<Option<Reservation>>,
}

/// The object that is there when a write begins.
pub enum OldObject<'a> {
    /// There is none.
    None,
    /// This one.
    Borrowed(&'a Tree),
    /// One that is decoded when a plugin reads it for the first time.
    Lazy(&'a (dyn Fn() -> Tree + Sync), OnceLock<Tree>),
}

impl fmt::Debug for OldObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OldObject").field(&!matches!(self, Self::None)).finish()
    }
}

/// What clients are to be told, whatever becomes of their requests.
#[derive(Debug, Default)]
struct Warnings(Mutex<Vec<String>>);

impl<'a> AdmissionRequest<'a> {
    pub(crate) fn new(
        (operation, subresource): (AdmissionOperation, &'a str),
        served: &'a ServedKind,
        version: &'a str,
        (namespace, name): (Option<&'a str>, &'a str),
        context: &RuleContext<'a>,
        field_manager: &'a str,
        kinds: &'a ServedKinds,
    ) -> Self {
        let kind = &served.kind;
        Self {
            operation,
            group: &kind.group,
            version,
            resource: &kind.names.plural,
            kind: &kind.names.kind,
            subresource,
            namespace,
            name,
            user: context.user,
            field_manager,
            now: context.now,
            dry_run: context.dry_run,
            old: OldObject::None,
            served,
            kinds,
            warnings: Warnings::default(),
            reservation: Mutex::default(),
        }
    }

    /// The same request about this object.
    #[must_use]
    pub(crate) fn about(mut self, old: OldObject<'a>) -> Self {
        self.old = old;
        self
    }

    /// The object that is there, if one is changed or deleted, without its resourceVersion. If it
    /// is deleted and cannot be converted to the version of the request, it is as it is kept.
    pub fn old_object(&self) -> Option<&Tree> {
        match &self.old {
            OldObject::None => None,
            OldObject::Borrowed(tree) => Some(tree),
            OldObject::Lazy(make, made) => Some(made.get_or_init(make)),
        }
    }

    /// The same as a Rust type; `None` also if it does not fit the type.
    pub fn old<K: DeserializeOwned>(&self) -> Option<K> {
        serde_json::from_value(Value::Object(self.old_object()?.clone())).ok()
    }

    /// Tells the client something, whatever becomes of the write: a `Warning` header, which
    /// kubectl prints.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// What was to be told.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether code converts objects of the request into other versions.
    pub(super) fn converts_by_code(&self) -> bool {
        self.served.kind.is_converted_by_code()
    }

    /// The object of the request in another version; as it is, if no code converts.
    ///
    /// # Errors
    /// When it cannot be converted: 422 if one of its fields is at fault, 500 otherwise.
    pub(super) fn convert<'t>(
        &self,
        tree: &'t Tree,
        version: &str,
    ) -> Result<Cow<'t, Tree>, AdmissionError> {
        let kind = &self.served.kind;
        kind.convert_tree(tree, &kind.api_version(version)).map_err(|why| {
            AdmissionError::answer(kind.refuse_sent(metadata::name(tree), version, why))
        })
    }

    /// The object that is there in another version.
    ///
    /// # Errors
    /// 500 when it cannot be converted: the request has not sent it.
    pub(super) fn convert_old<'t>(
        &self,
        tree: &'t Tree,
        version: &str,
    ) -> Result<Cow<'t, Tree>, AdmissionError> {
        let kind = &self.served.kind;
        kind.convert_tree(tree, &kind.api_version(version)).map_err(|why| {
            let why = why.to_string();
            AdmissionError::answer(kind.unconvertible(metadata::name(tree), version, why).into())
        })
    }

    /// The kind in service.
    pub(super) fn served(&self) -> &'a ServedKind {
        self.served
    }

    /// Holds what is reserved for the object, until it was kept or will not be.
    pub(super) fn hold(&self, reservation: Reservation) {
        *self.reservation.lock().unwrap_or_else(PoisonError::into_inner) = Some(reservation);
    }

    /// What is reserved for the object.
    pub(crate) fn take_reservation(&self) -> Option<Reservation> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Looks up an object of a kind that this server serves, as
    /// `find("farm.example.com/v1", "llamas", Some("default"), "dolly")`; it is as new as the
    /// last write that was acknowledged, and has no resourceVersion.
    ///
    /// # Errors
    /// 503 when the kind is not served, has not synced yet, or the object does not fit the
    /// type: then nothing is known, and a plugin that goes on would judge by nothing.
    pub fn find<K: DeserializeOwned>(
        &self,
        api_version: &str,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<K>, AdmissionError> {
        let (served, version) = self.looked_up(api_version, resource)?;
        let Some(found) = served.cache.get(&Key::new(namespace, name)) else { return Ok(None) };
        read_as(served, version, &found.object).map(Some)
    }

    /// Looks up all objects of a kind that this server serves, of one namespace or of all, in the
    /// order of their namespaces and names; as [`find`](Self::find) otherwise. Each is read anew:
    /// this is for kinds of which there are few.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_all<K: DeserializeOwned>(
        &self,
        api_version: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<K>, AdmissionError> {
        let (served, version) = self.looked_up(api_version, resource)?;
        let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
        let objects = served.cache.snapshot();
        let found = objects.from(&scope, None);
        found.map(|found| read_as(served, version, &found.object)).collect()
    }

    /// A kind that objects are looked up of, and its version.
    fn looked_up(
        &self,
        api_version: &str,
        resource: &str,
    ) -> Result<(&'a ServedKind, &'a Version), AdmissionError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let unknown = AdmissionError::unavailable;
        let Some((served, version)) = self.kinds.find(group, version, resource) else {
            return Err(unknown(format!("{resource} of {api_version} are not served here")));
        };
        if !served.cache.is_synced() {
            return Err(unknown(format!("{resource} of {api_version} are not known yet")));
        }
        Ok((served, version))
    }
}

/// An object of a kind, in a version, as a Rust type.
fn read_as<K: DeserializeOwned>(
    served: &ServedKind,
    version: &Version,
    object: &Arc<Object>,
) -> Result<K, AdmissionError> {
    let unknown = |why: String| AdmissionError::unavailable(why);
    let shown = served.kind.in_version(object, version);
    let (tree, _) = shown.map_err(|error| unknown(error.to_string()))?.to_parts();
    let name = metadata::name(&tree).to_owned();
    serde_json::from_value(Value::Object(tree)).map_err(|error| {
        let resource = &served.kind.names.plural;
        let api_version = served.kind.api_version(&version.name);
        unknown(format!("{resource} {name:?} of {api_version} does not fit its type: {error}"))
    })
}
