//! AdmissionRequest: the data of a write that plugins get.

mod attributes;
mod build;
mod conversion;
mod lookup;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::reinvocation::Reinvocation;
use super::{AdmissionError, AdmittedNamespace, AuditAnnotations, Reservation};
use crate::codec;
use crate::error::{ApiError, no_object};
use crate::kind::{RuleContext, go_reader};
use crate::object::Tree;
use crate::object::json_patch::JsonPatch;
use crate::quota::{self, Account, Room};
use crate::schema::{self, Malformed};
use crate::served_kind::{ServedKind, ServedKinds};
use crate::user::User;

/// The largest number of warnings of one request.
const WARNINGS: usize = 1_000;
/// The largest total length of the warnings of one request, in bytes.
const WARNINGS_BYTES: usize = 256 << 10;

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdmissionOperation {
    /// A create, also one by a PUT.
    Create,
    /// An update: a PUT or a PATCH of the object or of a subresource, or a POST to a subresource, for example a
    /// binding.
    Update,
    /// A deletion, of one object or as part of a collection.
    Delete,
    /// A request for a subresource that is handled by code. It has no object, only the object that
    /// the path names, as the old one.
    Connect,
}

impl AdmissionOperation {
    /// The name in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The data of a write that plugins get, except the object.
#[derive(Debug)]
#[non_exhaustive]
pub struct AdmissionRequest<'a> {
    /// The operation.
    pub operation: AdmissionOperation,
    /// The API group of the kind; empty for the core group.
    pub group: &'a str,
    /// The version of the request, which is the version of the objects.
    pub version: &'a str,
    /// The plural name of the kind, same as in paths.
    pub resource: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The subresource that is written, for example `status`; empty for the object itself. For most subresources,
    /// plugins get the whole object that the write changes. An eviction is an update and then a deletion, both of the
    /// subresource `eviction`.
    pub subresource: &'a str,
    /// The namespace, if the kind is namespaced.
    pub namespace: Option<&'a str>,
    /// The name in the path. For a create it is the name in the object, which is empty if it is yet to be generated.
    pub name: &'a str,
    /// The user of the request.
    pub user: &'a User,
    /// The field manager: the client's `fieldManager`, otherwise the first part of its
    /// User-Agent.
    pub field_manager: &'a str,
    /// The time of the write.
    pub now: Timestamp,
    /// Whether the write is a dry run, which stores nothing.
    pub dry_run: bool,
    old: OldObject<'a>,
    served: &'a ServedKind,
    kinds: &'a ServedKinds,
    warnings: Warnings,
    reinvocation: Reinvocation,
    reservation: Mutex<Option<Reservation>>,
    admitted_namespace: Mutex<Option<AdmittedNamespace>>,
    account: Option<&'a Account>,
    audit: Option<&'a dyn AuditAnnotations>,
    options: Option<Cow<'a, Tree>>,
    form: Option<&'a dyn Form>,
    is_of_collection: bool,
    /// The resourceVersions of the written object and of the stored one.
    versions: (Option<&'a str>, Option<Cow<'a, str>>),
}

/// Another representation of objects: that of a subresource with its own kind.
pub(crate) trait Form: fmt::Debug + Sync {
    /// The group, version and kind of the representation.
    fn kind(&self) -> (&'static str, &'static str, &'static str);

    /// The representation of an object.
    ///
    /// # Errors
    /// 500 if the object has none.
    fn of(&self, object: &Tree) -> Result<Tree, ApiError>;

    /// Applies a changed representation to the object.
    fn take_over(&self, object: &mut Tree, changed: &Tree);
}

/// The stored object before the write.
pub enum OldObject<'a> {
    /// The write has no stored object.
    None,
    /// A decoded object.
    Borrowed(&'a Tree),
    /// An object that is decoded when a plugin reads it for the first time.
    Lazy(&'a (dyn Fn() -> Tree + Sync), OnceLock<Tree>),
}

impl fmt::Debug for OldObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OldObject").field(&!matches!(self, Self::None)).finish()
    }
}

/// Memory that is charged to a request until this is dropped.
#[derive(Debug)]
pub struct ReservedMemory(#[allow(dead_code)] Option<Room>); // it is held

/// The warnings for the client, which it gets whether the write succeeds or not.
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
            reinvocation: Reinvocation::default(),
            reservation: Mutex::default(),
            admitted_namespace: Mutex::default(),
            account: None,
            audit: None,
            options: None,
            form: None,
            is_of_collection: false,
            versions: (None, None),
        }
    }

    /// Whether this object is deleted as part of a whole collection.
    pub fn is_of_collection(&self) -> bool {
        self.is_of_collection
    }

    /// The resourceVersions of the written object, if the client or the server has set one, and of the stored object.
    pub fn resource_versions(&self) -> (Option<&str>, Option<&str>) {
        (self.versions.0, self.versions.1.as_deref())
    }

    /// The group, version and kind of the objects that clients read and write: those of the kind, or those of the
    /// subresource, for example `autoscaling/v1`, `Scale`.
    pub fn shown_kind(&self) -> (&str, &str, &str) {
        let own = (self.group, self.version, self.kind);
        self.form.map_or(own, |form| form.kind())
    }

    /// The representation of an object that clients read: the object itself, or for example its Scale.
    ///
    /// # Errors
    /// 500 if the object has no such representation.
    pub fn shown<'t>(&self, object: &'t Tree) -> Result<Cow<'t, Tree>, AdmissionError> {
        match self.form {
            None => Ok(Cow::Borrowed(object)),
            Some(form) => form.of(object).map(Cow::Owned).map_err(AdmissionError::answer),
        }
    }

    /// Applies a changed representation, as returned by [`shown`](Self::shown), to the object.
    pub fn take_over(&self, object: &mut Tree, changed: Tree) {
        match self.form {
            None => *object = changed,
            Some(form) => form.take_over(object, &changed),
        }
    }

    /// The audit event of the request.
    pub(super) fn audit(&self) -> Option<&'a dyn AuditAnnotations> {
        self.audit
    }

    /// The options of the request as the client has sent them: `CreateOptions`, `UpdateOptions` or `DeleteOptions` of
    /// `meta.k8s.io/v1`. A request for a subresource that is handled by code has none.
    pub fn operation_options(&self) -> Option<Tree> {
        let kind = match self.operation {
            AdmissionOperation::Create => "CreateOptions",
            AdmissionOperation::Update => "UpdateOptions",
            AdmissionOperation::Delete => "DeleteOptions",
            AdmissionOperation::Connect => return None,
        };
        let mut options = self.options.clone().unwrap_or_default().into_owned();
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        Some(options)
    }

    /// Charges this number of bytes to the request, until the result is dropped.
    ///
    /// # Errors
    /// 413 if the request exceeds its memory limit, 429 if other requests use the memory.
    pub fn reserve(&self, bytes: usize) -> Result<ReservedMemory, AdmissionError> {
        let room = self.account.map(|account| account.reserve(bytes)).transpose();
        room.map(ReservedMemory).map_err(AdmissionError::answer)
    }

    /// Parses JSON that another program has returned, for example a webhook, within the limits of an object. The memory
    /// is charged to the request until the second value is dropped.
    ///
    /// # Errors
    /// The reason, if the input is no JSON, or is larger or deeper than an object may be.
    pub fn read_json(&self, json: &[u8]) -> Result<(Value, ReservedMemory), String> {
        let size = quota::of_json(json);
        let room = self.account.map(|account| account.reserve(size)).transpose();
        let room = room.map(ReservedMemory).map_err(|why| why.to_string())?;
        let read = codec::from_json(json, &Account::own()).map_err(|why| why.to_string())?;
        Ok((read.value, room))
    }

    /// Applies a JSON patch (RFC 6902) to an object, with the behaviour of kube-apiserver for patches of webhooks.
    ///
    /// # Errors
    /// The reason, if the patch cannot be applied.
    pub fn patch(&self, object: &Tree, patch: &JsonPatch) -> Result<Tree, String> {
        let own = Account::own();
        let room = self.account.unwrap_or(&own).room(0);
        let mut room = room.map_err(|why| why.to_string())?;
        let patched = patch.apply(Value::Object(object.clone()), &mut room);
        match patched {
            Ok(Value::Object(patched)) => Ok(patched),
            Ok(other) => Err(no_object(&other)),
            Err(why) => {
                let cause = std::error::Error::source(&why).map(ToString::to_string);
                Err(cause.unwrap_or_else(|| why.to_string()))
            }
        }
    }

    /// Whether kube-apiserver regards two objects of the kind as equal. It compares objects of a built-in kind after it
    /// has decoded them into their Go type. An empty list equals a missing list, unknown fields are ignored, and the
    /// quantities `1` and `1000m` are equal. `version` is the version of both.
    ///
    /// # Errors
    /// 429 if there is no memory for the comparison.
    pub fn is_same(&self, one: &Tree, other: &Tree, version: &str) -> Result<bool, AdmissionError> {
        let schema = self.served.kind.version(version).map(|version| &version.schema);
        let schema = schema.filter(|schema| self.form.is_none() && schema.root().go.is_some());
        let Some(schema) = schema.filter(|_| one != other) else { return Ok(one == other) };
        let _room = self.reserve(quota::of_tree(one) + quota::of_tree(other))?;
        let read = |tree: &Tree| {
            let mut tree = tree.clone();
            schema::normalize(schema.root(), &mut tree, Malformed::Refused).map(|_| tree)
        };
        // An object that does not match the type is rejected later.
        Ok(read(one).is_ok_and(|one| read(other) == Ok(one)))
    }

    /// The stored object of an update or a deletion, without its resourceVersion. If the object of a deletion cannot be
    /// converted to the version of the request, it is in the storage version.
    pub fn old_object(&self) -> Option<&Tree> {
        match &self.old {
            OldObject::None => None,
            OldObject::Borrowed(tree) => Some(tree),
            OldObject::Lazy(make, made) => Some(made.get_or_init(make)),
        }
    }

    /// The stored object as a Rust type; `None` also if it does not match the type.
    pub fn old<K: DeserializeOwned>(&self) -> Option<K> {
        go_reader::read_object(self.old_object()?).ok()
    }

    /// Requests a second call of [`mutate`](super::AdmissionPlugin::mutate) of all plugins, because this plugin has
    /// changed the object and the plugins before it must see the change. There is no third call.
    pub fn reinvoke(&self) {
        self.reinvocation.request();
    }

    /// Whether this is the second call of the plugins.
    pub fn is_reinvocation(&self) -> bool {
        self.reinvocation.has_begun()
    }

    /// Starts the second call of the plugins, if a plugin has requested it in the first.
    pub(crate) fn begin_reinvocation(&self) -> bool {
        self.reinvocation.begin()
    }

    /// Stores data of a plugin until its second call. A request stores one value of each type, so each plugin needs its
    /// own type.
    pub fn keep_state<T: Clone + Send + Sync + 'static>(&self, state: T) {
        self.reinvocation.keep(state);
    }

    /// Takes the data of this type that a plugin has stored in its first call.
    pub fn take_state<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.reinvocation.take()
    }

    /// Adds a `Warning` header to the response, which kubectl prints, whether the write succeeds or not. A warning that the
    /// request has already is omitted, and so are further ones after 1,000 warnings or 256 KiB.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = text.len() + warnings.iter().map(String::len).sum::<usize>();
        if warnings.len() < WARNINGS && bytes <= WARNINGS_BYTES && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Takes the warnings.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The served kind.
    pub(super) fn served(&self) -> &'a ServedKind {
        self.served
    }

    /// Stores the quota reservation of the object, until the object is stored or rejected.
    pub(super) fn hold(&self, reservation: Reservation) {
        *self.reservation.lock().unwrap_or_else(PoisonError::into_inner) = Some(reservation);
    }

    /// Takes the quota reservation of the object.
    pub(crate) fn take_reservation(&self) -> Option<Reservation> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Stores the namespace in which the object was admitted, until the commit reads the namespace again.
    pub(super) fn hold_namespace(&self, namespace: AdmittedNamespace) {
        let mut held = self.admitted_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(namespace);
    }

    /// Takes the namespace in which the object was admitted, if admission has checked one.
    pub(crate) fn take_namespace(&self) -> Option<AdmittedNamespace> {
        self.admitted_namespace.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
