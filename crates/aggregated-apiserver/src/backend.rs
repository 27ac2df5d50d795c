//! Virtual kinds: kinds whose objects live elsewhere, in a database, in another API or in another cluster.
//!
//! The code of the user reads and writes the objects ([`Backend`] and its sub-traits). The library does the rest, in the
//! same way as for stored kinds: it validates, defaults, patches, converts and watches the objects.
//!
//! The library learns about the objects in one of two ways:
//! - [`Poll`]: the library lists all objects at an interval, and finds the changes.
//! - [`Watch`]: the backend sends its changes as a stream.
//!
//! Reads and watches of these kinds are answered from the watch cache, so clients get consistent lists, resourceVersions
//! and watches from every backend. A kind is read-only unless the backend also implements [`Create`], [`Update`] or [`Delete`].
//!
//! A [`DirectKind`] has no cache: every read calls the backend ([`Read`]). It cannot be watched. This fits values that
//! change all the time, such as measurements, and objects that differ for each user. Writes use the same traits as those
//! of other kinds, and the library stores no metadata of the objects.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! use aggregated_apiserver::Kinds;
//! use aggregated_apiserver::backend::{
//!     Backend, BackendError, Create, Delete, Item, Listing, Poll, VirtualKind, WriteContext,
//! };
//! use kube::{CustomResource, CustomResourceExt, ResourceExt};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "library.example.com", version = "v1", kind = "Book")]
//! pub struct BookSpec {
//!     pub title: String,
//! }
//!
//! /// The books of a database that other programs change, too.
//! #[derive(Default)]
//! struct Books(Mutex<BTreeMap<String, String>>);
//!
//! impl Backend for Books {
//!     type Object = Book;
//! }
//!
//! impl Poll for Books {
//!     async fn list(&self) -> Result<Listing<Book>, BackendError> {
//!         let books = self.0.lock().map_err(BackendError::internal_from)?;
//!         let book = |(name, title): (&String, &String)| {
//!             Item::new(Book::new(name, BookSpec { title: title.clone() }))
//!         };
//!         Ok(Listing::complete(books.iter().map(book)))
//!     }
//! }
//!
//! impl Create for Books {
//!     async fn create(&self, _: &WriteContext, book: Book) -> Result<Item<Book>, BackendError> {
//!         let mut books = self.0.lock().map_err(BackendError::internal_from)?;
//!         if books.contains_key(&book.name_any()) {
//!             return Err(BackendError::AlreadyExists);
//!         }
//!         books.insert(book.name_any(), book.spec.title.clone());
//!         Ok(Item::new(book))
//!     }
//! }
//!
//! impl Delete for Books {
//!     async fn delete(&self, _: &WriteContext, book: Item<Book>) -> Result<(), BackendError> {
//!         let mut books = self.0.lock().map_err(BackendError::internal_from)?;
//!         books.remove(&book.object.name_any()).map(drop).ok_or(BackendError::NotFound)
//!     }
//! }
//!
//! let books = Arc::new(Books::default());
//! let books = VirtualKind::polled(Book::crd(), books, Duration::from_secs(5));
//! let kinds = Kinds::new().kind(books.create().delete());
//! ```
//!
//! # Rules
//!
//! - A write is visible to all readers before its response is sent.
//! - A poll that began before a write does not undo the write, and neither does an event that is older than the write.
//! - A [partial](Listing::partial) list deletes nothing.
//! - Objects that do not belong to the kind are ignored, and logged: objects without a name, objects with a namespace
//!   that does not fit the scope of the kind, and objects with values of other types than the schema has. Other rules of
//!   the schema are checked when clients write.
//! - While a backend fails, the last known objects are served, responses have a `Warning` header, and `/readyz?verbose`
//!   and the metrics report the error.
//! - Dry runs do not reach the backend, unless it [validates them](VirtualKind::validates_dry_run).
//! - A call of the backend that panics, or that takes longer than [`VirtualKind::timeout`], fails one request, and the
//!   server continues. A call must not block its thread.
//!
//! # Tests
//!
//! [`suite::run`] and [`suite::run_watched`] are the tests that every backend with writes must pass. Run them on yours.
//!
//! # Metadata
//!
//! Most backends have no place for labels, annotations, finalizers, owner references and managed fields. The library
//! stores them in the store of the server (`--data-dir`), for as long as the object exists. If the backend stores the
//! whole `metadata` of its objects, or some fields of it, say so with [`VirtualKind::keeps_metadata`] or
//! [`VirtualKind::keeps_metadata_fields`]. The metadata that a backend returns takes precedence over stored metadata,
//! field by field.
//!
//! Objects without a uid, a creation time or a generation get them from the library. The creation time is the time when
//! the library first saw the object. The generation grows with each change of a client or of another program.

mod calls;
mod direct;
mod erased;
mod error;
mod feed;
mod item;
mod kubernetes;
mod locks;
mod memory;
mod metadata_store;
mod objects;
mod origin;
mod store;
pub mod suite;
mod virtual_kind;
mod write_error;
mod written;

use std::future::Future;

use futures::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::error::Reason;
pub(crate) use calls::Writes;
pub use direct::DirectKind;
pub(crate) use direct::{DirectBackend, DirectReader, DirectSession};
pub(crate) use erased::ErasedBackend;
pub use error::BackendError;
pub(crate) use feed::run;
pub use item::{Change, Item, Listing, ReadContext, WriteContext};
pub use kubernetes::watcher_changes;
pub(crate) use memory::BackendMemory;
pub(crate) use metadata_store::MetadataStore;
pub(crate) use store::{BackendStore, WrittenObject};
pub use virtual_kind::VirtualKind;
pub(crate) use write_error::WriteError;

/// Objects that live elsewhere. A backend also implements [`Poll`], [`Watch`] or [`Read`]. The [module](self) has an
/// example.
pub trait Backend: Send + Sync + 'static {
    /// The type of the objects: a type with `#[derive(CustomResource)]`, or `kube::core::DynamicObject`.
    type Object: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// A backend that the library polls for all of its objects. The [module](self) has an example.
pub trait Poll: Backend {
    /// Lists all objects, in the storage version of the kind.
    ///
    /// # Errors
    /// If the objects cannot be listed. The last known objects are served, and the call is repeated.
    fn list(&self) -> impl Future<Output = Result<Listing<Self::Object>, BackendError>> + Send;
}

/// A backend that sends its changes.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use aggregated_apiserver::Kinds;
/// use aggregated_apiserver::backend::{Backend, BackendError, Change, Item, Listing, VirtualKind, Watch};
/// use futures::{Stream, stream};
/// use kube::{CustomResource, CustomResourceExt};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use tokio::sync::watch;
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Lamp")]
/// pub struct LampSpec {
///     pub is_on: bool,
/// }
///
/// /// The lamps of a house, and whether they are on.
/// type State = BTreeMap<String, bool>;
///
/// /// A task publishes the state of the lamps here.
/// struct House(watch::Receiver<State>);
///
/// fn lamp(name: &str, is_on: bool) -> Item<Lamp> {
///     Item::new(Lamp::new(name, LampSpec { is_on }))
/// }
///
/// impl Backend for House {
///     type Object = Lamp;
/// }
///
/// impl Watch for House {
///     fn watch(&self) -> impl Stream<Item = Result<Change<Lamp>, BackendError>> + Send {
///         let mut state = self.0.clone();
///         state.mark_changed();
///         stream::unfold(state, async |mut state| {
///             state.changed().await.ok()?;
///             let lamps = state.borrow_and_update().clone();
///             let lamps = lamps.iter().map(|(name, is_on)| lamp(name, *is_on));
///             Some((Ok(Change::Restarted(Listing::complete(lamps))), state))
///         })
///     }
///
///     async fn get(&self, _: Option<&str>, name: &str) -> Result<Option<Item<Lamp>>, BackendError> {
///         Ok(self.0.borrow().get(name).map(|is_on| lamp(name, *is_on)))
///     }
/// }
///
/// let (publish, state) = watch::channel(State::new());
/// let kinds = Kinds::new().kind(VirtualKind::watched(Lamp::crd(), Arc::new(House(state))));
/// publish.send_modify(|lamps| drop(lamps.insert("kitchen".to_owned(), true)));
/// ```
///
/// A backend that knows each change sends [`Change::Applied`] and [`Change::Deleted`] instead of all objects.
pub trait Watch: Backend {
    /// Streams the changes of all objects. The first change must be [`Change::Restarted`] with all objects. If the
    /// stream ends or fails, the library calls this method again, after a pause of up to 30 seconds.
    ///
    /// A stream whose connection was lost without an error looks like a stream without changes, so the backend should
    /// check its connection.
    fn watch(&self) -> impl Stream<Item = Result<Change<Self::Object>, BackendError>> + Send;

    /// Reads one object. The library calls this method after its own writes: a change of the stream that arrives then
    /// may be older than the write, and the object is not.
    ///
    /// # Errors
    /// If the object cannot be read. The stream restarts.
    fn get(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> impl Future<Output = Result<Option<Item<Self::Object>>, BackendError>> + Send;
}

/// A backend that is called for every read.
///
/// If the backend has versions of its objects, such as row versions, the `metadata.resourceVersion` of an object that it
/// returns is the [etag](Item::etag) of the object. Clients do not see it: they receive a resourceVersion that is computed
/// from it. An object that a write returns needs the same etag as the next read, in its metadata or in the [`Item`].
///
/// ```
/// use std::sync::Arc;
///
/// use aggregated_apiserver::Kinds;
/// use aggregated_apiserver::backend::{Backend, BackendError, DirectKind, Read, ReadContext};
/// use kube::{CustomResource, CustomResourceExt};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Load")]
/// pub struct LoadSpec {
///     pub average: String,
/// }
///
/// /// The load of this machine.
/// struct Machine;
///
/// impl Backend for Machine {
///     type Object = Load;
/// }
///
/// impl Read for Machine {
///     async fn get(
///         &self,
///         context: &ReadContext,
///         namespace: Option<&str>,
///         name: &str,
///     ) -> Result<Option<Load>, BackendError> {
///         let loads = self.list(context, namespace).await?;
///         Ok(loads.into_iter().find(|load| load.metadata.name.as_deref() == Some(name)))
///     }
///
///     async fn list(&self, _: &ReadContext, _: Option<&str>) -> Result<Vec<Load>, BackendError> {
///         let text = tokio::fs::read_to_string("/proc/loadavg").await;
///         let text = text.map_err(BackendError::internal_from)?;
///         let names = ["one-minute", "five-minutes", "fifteen-minutes"];
///         let averages = names.into_iter().zip(text.split(' '));
///         let load = |(name, average): (&str, &str)| {
///             Load::new(name, LoadSpec { average: average.to_owned() })
///         };
///         Ok(averages.map(load).collect())
///     }
/// }
///
/// let kinds = Kinds::new().kind(DirectKind::new(Load::crd(), Arc::new(Machine)));
/// ```
pub trait Read: Backend {
    /// Reads one object.
    ///
    /// # Errors
    /// If the object cannot be read. The client receives the error.
    fn get(
        &self,
        context: &ReadContext,
        namespace: Option<&str>,
        name: &str,
    ) -> impl Future<Output = Result<Option<Self::Object>, BackendError>> + Send;

    /// Reads the objects of a namespace, or of all namespaces. The library applies label and field selectors. The call
    /// ends when the client closes its connection.
    ///
    /// # Errors
    /// If the objects cannot be read. The client receives the error.
    fn list(
        &self,
        context: &ReadContext,
        namespace: Option<&str>,
    ) -> impl Future<Output = Result<Vec<Self::Object>, BackendError>> + Send;
}

/// A backend that creates objects. The [module](self) has an example.
pub trait Create: Backend {
    /// Creates an object, and returns it as it is now.
    ///
    /// # Errors
    /// [`BackendError::AlreadyExists`] if an object of this name exists.
    fn create(
        &self,
        context: &WriteContext,
        object: Self::Object,
    ) -> impl Future<Output = Result<Item<Self::Object>, BackendError>> + Send;
}

/// A backend that changes objects.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// use aggregated_apiserver::Kinds;
/// use aggregated_apiserver::backend::{
///     Backend, BackendError, Item, Listing, Poll, Update, VirtualKind, WriteContext,
/// };
/// use kube::{CustomResource, CustomResourceExt, ResourceExt};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Setting")]
/// pub struct SettingSpec {
///     pub value: String,
/// }
///
/// /// The values of settings, with a version that grows with each change.
/// #[derive(Default)]
/// struct Settings(Mutex<BTreeMap<String, (String, u64)>>);
///
/// fn setting(name: &str, value: &str, version: u64) -> Item<Setting> {
///     let spec = SettingSpec { value: value.to_owned() };
///     Item::new(Setting::new(name, spec)).with_etag(version.to_string())
/// }
///
/// impl Backend for Settings {
///     type Object = Setting;
/// }
///
/// impl Poll for Settings {
///     async fn list(&self) -> Result<Listing<Setting>, BackendError> {
///         let settings = self.0.lock().map_err(BackendError::internal_from)?;
///         let settings = settings.iter().map(|(name, (value, version))| setting(name, value, *version));
///         Ok(Listing::complete(settings))
///     }
/// }
///
/// impl Update for Settings {
///     async fn update(
///         &self,
///         _: &WriteContext,
///         old: Item<Setting>,
///         new: Setting,
///     ) -> Result<Item<Setting>, BackendError> {
///         let mut settings = self.0.lock().map_err(BackendError::internal_from)?;
///         let (value, version) = settings.get_mut(&new.name_any()).ok_or(BackendError::NotFound)?;
///         if old.etag != Some(version.to_string()) {
///             return Err(BackendError::Conflict);
///         }
///         *version += 1;
///         value.clone_from(&new.spec.value);
///         Ok(setting(&new.name_any(), value, *version))
///     }
/// }
///
/// let settings = Arc::new(Settings::default());
/// let settings = VirtualKind::polled(Setting::crd(), settings, Duration::from_secs(5));
/// let kinds = Kinds::new().kind(settings.update());
/// ```
pub trait Update: Backend {
    /// Replaces an object, and returns it as it is now. `old` is the object that the change was made for, with its
    /// [etag](Item::etag).
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if the object differs from `old`, and [`BackendError::NotFound`] if it was deleted.
    fn update(
        &self,
        context: &WriteContext,
        old: Item<Self::Object>,
        object: Self::Object,
    ) -> impl Future<Output = Result<Item<Self::Object>, BackendError>> + Send;
}

/// A backend that deletes objects. The [module](self) has an example.
pub trait Delete: Backend {
    /// Deletes an object.
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if the object differs from `old`, and [`BackendError::NotFound`] if it was deleted
    /// before.
    fn delete(
        &self,
        context: &WriteContext,
        old: Item<Self::Object>,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;
}
