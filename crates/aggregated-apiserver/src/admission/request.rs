//! AdmissionRequest: what a plugin is told about a write.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::reinvocation::Reinvocation;
use super::{AdmissionError, AdmittedNamespace, AuditAnnotations, Reservation};
use crate::codec;
use crate::conversion::known;
use crate::error::{ApiError, no_object};
use crate::kind::{RuleContext, Version, go_reader};
use crate::object::json_patch::JsonPatch;
use crate::object::{Key, Object, Tree, metadata};
use crate::quota::{self, Account, Room};
use crate::schema::{self, Malformed};
use crate::served_kind::{ServedKind, ServedKinds};
use crate::user::User;
use crate::watch_cache::{Scope, WatchCache};

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
    reinvocation: Reinvocation,
    reservation: Mutex<Option<Reservation>>,
    admitted_namespace: Mutex<Option<AdmittedNamespace>>,
    account: Option<&'a Account>,
    audit: Option<&'a dyn AuditAnnotations>,
    options: Option<Cow<'a, Tree>>,
    form: Option<&'a dyn Form>,
    is_of_collection: bool,
    /// The resourceVersions of the object that is written and of the one that is there.
    versions: (Option<&'a str>, Option<Cow<'a, str>>),
}

/// Another form of objects: that of a subresource which has a kind of its own.
pub(crate) trait Form: fmt::Debug + Sync {
    /// Its group, version and kind.
    fn kind(&self) -> (&'static str, &'static str, &'static str);

    /// An object in this form.
    ///
    /// # Errors
    /// 500 when it has none.
    fn of(&self, object: &Tree) -> Result<Tree, ApiError>;

    /// Takes over what can be changed in this form.
    fn take_over(&self, object: &mut Tree, changed: &Tree);
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

/// Memory that is counted as that of a request, until this is dropped.
#[derive(Debug)]
pub struct ReservedMemory(#[allow(dead_code)] Option<Room>); // it is held

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

    /// The same request, which shows objects in another form.
    #[must_use]
    pub(crate) fn in_form(mut self, form: Option<&'a dyn Form>) -> Self {
        self.form = form;
        self
    }

    /// The same request about objects of these resourceVersions: the one that is written, and the one that is there.
    #[must_use]
    pub(crate) fn at(mut self, new: Option<&'a str>, old: Option<Cow<'a, str>>) -> Self {
        self.versions = (new.filter(|new| !new.is_empty()), old);
        self
    }

    /// The same request, which may be one of a whole collection.
    #[must_use]
    pub(crate) fn of_collection(mut self, is_of_collection: bool) -> Self {
        self.is_of_collection = is_of_collection;
        self
    }

    /// Whether a whole collection is deleted, of which this is one object.
    pub fn is_of_collection(&self) -> bool {
        self.is_of_collection
    }

    /// The resourceVersions of the object that is written, as far as its client or the server has said one, and of the one
    /// that is there.
    pub fn resource_versions(&self) -> (Option<&str>, Option<&str>) {
        (self.versions.0, self.versions.1.as_deref())
    }

    /// The group, version and kind of what clients read and write of the objects: those of the kind, or of its subresource, as
    /// `autoscaling/v1`, `Scale`.
    pub fn shown_kind(&self) -> (&str, &str, &str) {
        let own = (self.group, self.version, self.kind);
        self.form.map_or(own, |form| form.kind())
    }

    /// An object as its clients read it: itself, or for example its Scale.
    ///
    /// # Errors
    /// 500 when it has none.
    pub fn shown<'t>(&self, object: &'t Tree) -> Result<Cow<'t, Tree>, AdmissionError> {
        match self.form {
            None => Ok(Cow::Borrowed(object)),
            Some(form) => form.of(object).map(Cow::Owned).map_err(AdmissionError::answer),
        }
    }

    /// Makes of an object what was made of what is [`shown`](Self::shown) of it.
    pub fn take_over(&self, object: &mut Tree, changed: Tree) {
        match self.form {
            None => *object = changed,
            Some(form) => form.take_over(object, &changed),
        }
    }

    /// The same request, which takes its memory from here, with what the client has said of its options.
    #[must_use]
    pub(crate) fn with(mut self, account: &'a Account, options: Option<&'a Tree>) -> Self {
        self.account = Some(account);
        self.options = options.map(Cow::Borrowed);
        self
    }

    /// The same request, whose audit event is this one, if it has any.
    #[must_use]
    pub(crate) fn audited(mut self, audit: Option<&'a dyn AuditAnnotations>) -> Self {
        self.audit = audit;
        self
    }

    /// The audit event of the request.
    pub(super) fn audit(&self) -> Option<&'a dyn AuditAnnotations> {
        self.audit
    }

    /// The same request with these options.
    #[must_use]
    pub(crate) fn with_options(mut self, options: Tree) -> Self {
        self.options = Some(Cow::Owned(options));
        self
    }

    /// The same request about this object.
    #[must_use]
    pub(crate) fn about(mut self, old: OldObject<'a>) -> Self {
        self.old = old;
        self
    }

    /// The options of the request, as the client has said them: `CreateOptions`, `UpdateOptions` or `DeleteOptions` of
    /// `meta.k8s.io/v1`.
    pub fn operation_options(&self) -> Tree {
        let kind = match self.operation {
            AdmissionOperation::Create => "CreateOptions",
            AdmissionOperation::Update => "UpdateOptions",
            AdmissionOperation::Delete => "DeleteOptions",
        };
        let mut options = self.options.clone().unwrap_or_default().into_owned();
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        options
    }

    /// The versions in which the kind is served, but that of the request.
    pub fn other_versions(&self) -> impl Iterator<Item = &str> {
        let names = self.served.kind.versions.iter().map(|version| version.name.as_str());
        names.filter(|name| *name != self.version)
    }

    /// An object of the request in another version in which the kind is served; a conversion webhook may be asked.
    ///
    /// # Errors
    /// 500 when it cannot be converted, 413 and 429 when there is no room for it.
    pub async fn in_version(&self, tree: &Tree, version: &str) -> Result<Tree, AdmissionError> {
        let kind = &self.served.kind;
        let wanted = kind.api_version(version);
        let own = Account::own();
        let account = self.account.unwrap_or(&own);
        let convert = || kind.convert_tree(tree, &wanted).map(Cow::into_owned);
        let converted = known(kind, account, convert).await.map_err(AdmissionError::answer)?;
        let mut converted = converted.map_err(|why| {
            let why = why.to_string();
            AdmissionError::answer(kind.unconvertible(metadata::name(tree), version, why).into())
        })?;
        // Where nothing converts, versions differ in their names.
        converted.insert("apiVersion".to_owned(), wanted.into());
        Ok(converted)
    }

    /// Takes so many bytes of the memory of the request, as long as they are held.
    ///
    /// # Errors
    /// 413 when the request takes too much, 429 when others take the room.
    pub fn reserve(&self, bytes: usize) -> Result<ReservedMemory, AdmissionError> {
        let room = self.account.map(|account| account.reserve(bytes)).transpose();
        room.map(ReservedMemory).map_err(AdmissionError::answer)
    }

    /// Reads JSON that another program has answered, as a webhook, within the limits of an object. The memory that it takes is the request's as
    /// long as the second value is held.
    ///
    /// # Errors
    /// When it is no JSON, or is larger or deeper than an object may be: why.
    pub fn read_json(&self, json: &[u8]) -> Result<(Value, ReservedMemory), String> {
        let size = quota::of_json(json);
        let room = self.account.map(|account| account.reserve(size)).transpose();
        let room = room.map(ReservedMemory).map_err(|why| why.to_string())?;
        let read = codec::from_json(json, &Account::own()).map_err(|why| why.to_string())?;
        Ok((read.value, room))
    }

    /// Applies a JSON patch (RFC 6902) to an object, as kube-apiserver applies those of webhooks.
    ///
    /// # Errors
    /// When it cannot be applied: why.
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

    /// Whether two objects of the kind are the same for kube-apiserver. It compares objects of a built-in kind as their Go type
    /// reads them: an empty list is the same as no list, unknown fields do not count, and the quantities `1` and `1000m` are the
    /// same. `version` is the version of both.
    ///
    /// # Errors
    /// 429 when there is no memory for the comparison.
    pub fn is_same(&self, one: &Tree, other: &Tree, version: &str) -> Result<bool, AdmissionError> {
        let schema = self.served.kind.version(version).map(|version| &version.schema);
        let schema = schema.filter(|schema| self.form.is_none() && schema.root().go.is_some());
        let Some(schema) = schema.filter(|_| one != other) else { return Ok(one == other) };
        let _room = self.reserve(quota::of_tree(one) + quota::of_tree(other))?;
        let read = |tree: &Tree| {
            let mut tree = tree.clone();
            schema::normalize(schema.root(), &mut tree, Malformed::Refused).map(|_| tree)
        };
        // What does not fit the type is refused afterwards.
        Ok(read(one).is_ok_and(|one| read(other) == Ok(one)))
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
        go_reader::read_object(self.old_object()?).ok()
    }

    /// Asks for a second call of [`mutate`](super::AdmissionPlugin::mutate) of all plugins, because this one has changed the
    /// object and the plugins before it have to see the change. There is no third call.
    pub fn reinvoke(&self) {
        self.reinvocation.request();
    }

    /// Whether plugins are called for the second time.
    pub fn is_reinvocation(&self) -> bool {
        self.reinvocation.has_begun()
    }

    /// Begins the second call of the plugins, if one has asked for it in the first.
    pub(crate) fn begin_reinvocation(&self) -> bool {
        self.reinvocation.begin()
    }

    /// Stores data of a plugin until its second call. A request stores one value of each type, so a plugin needs a type of
    /// its own.
    pub fn keep_state<T: Clone + Send + Sync + 'static>(&self, state: T) {
        self.reinvocation.keep(state);
    }

    /// Takes the data of this type that a plugin has stored in its first call.
    pub fn take_state<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.reinvocation.take()
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

    /// Holds the namespace in which the object may be created, until the commit reads it again.
    pub(super) fn hold_namespace(&self, namespace: AdmittedNamespace) {
        let mut held = self.admitted_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(namespace);
    }

    /// The namespace in which the object may be created, if that was asked.
    pub(crate) fn take_namespace(&self) -> Option<AdmittedNamespace> {
        self.admitted_namespace.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The cache of the namespaces that this server stores, if it does.
    pub(super) fn stored_namespaces(&self) -> Option<Arc<WatchCache>> {
        let (served, _) = self.kinds.find("", "v1", "namespaces")?;
        served.store().is_some().then(|| Arc::clone(&served.cache))
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

    /// Looks up the first objects of a kind, at most this many, with the number of all; as [`find_all`](Self::find_all)
    /// otherwise.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_first<K: DeserializeOwned>(
        &self,
        api_version: &str,
        resource: &str,
        namespace: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<K>, u64), AdmissionError> {
        let (served, version) = self.looked_up(api_version, resource)?;
        let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
        let objects = served.cache.snapshot();
        let first = objects.from(&scope, None).take(limit);
        let first = first.map(|found| read_as(served, version, &found.object));
        Ok((first.collect::<Result<_, _>>()?, objects.count(&scope)))
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
    go_reader::read_object(&tree).map_err(|error| {
        let resource = &served.kind.names.plural;
        let api_version = served.kind.api_version(&version.name);
        unknown(format!("{resource} {name:?} of {api_version} does not fit its type: {error}"))
    })
}
