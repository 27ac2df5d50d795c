//! Direct kinds: every read calls the backend, and nothing is stored.

mod kind;
mod pending;
mod session;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::kind::DirectKind;
use self::pending::PendingCreates;
pub(crate) use self::session::DirectSession;
use super::calls::{Writer, Writes};
use super::erased::{BATCH, caught, slot, to_tree};
use super::locks::KeyLocks;
use super::memory::BackendMemory;
use super::objects;
use super::origin::Former;
use super::write_error::WriteError;
use super::{BackendError, Item, Read, ReadContext};
use crate::error::{ApiError, Reason};
use crate::kind::Kind;
use crate::object::names::check_path_segment;
use crate::object::{Key, Object, Tree, metadata};
use crate::storage::Revision;
use crate::user::User;
use crate::watch_cache::Scope;

type Get = Box<
    dyn Fn(ReadContext, Key) -> BoxFuture<'static, Result<Option<Tree>, BackendError>>
        + Send
        + Sync,
>;
type List = Box<
    dyn Fn(ReadContext, Option<String>) -> BoxFuture<'static, Result<Vec<Tree>, BackendError>>
        + Send
        + Sync,
>;

/// A backend that is called for every read, without its type.
pub(crate) struct DirectBackend {
    get: Get,
    list: List,
    /// Limits the reads that run at the same time.
    calls: Semaphore,
    writer: Writer,
}

impl fmt::Debug for DirectBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectBackend").field("writes", &self.writes()).finish_non_exhaustive()
    }
}

/// Reads the objects of a direct kind.
pub(crate) struct DirectReader {
    backend: Arc<DirectBackend>,
    /// The memory that the objects of all responses may use.
    memory: BackendMemory,
    /// Cancelled when the kind is not served any more.
    ended: CancellationToken,
    locks: KeyLocks,
    creates: PendingCreates,
}

/// The objects of one request, and their memory until the response has been sent.
type Fetched = (Vec<Item<Arc<Object>>>, Option<OwnedSemaphorePermit>);

impl DirectReader {
    /// A reader of this backend, whose objects use this memory.
    pub(crate) fn new(backend: Arc<DirectBackend>, memory: BackendMemory) -> Self {
        let (locks, creates) = (KeyLocks::default(), PendingCreates::default());
        Self { backend, memory, ended: CancellationToken::new(), locks, creates }
    }

    /// Ends reads when this token is cancelled. No read calls the backend from then on.
    pub(crate) fn ending_with(self, ended: CancellationToken) -> Self {
        Self { ended, ..self }
    }

    /// The writes that the backend supports.
    pub(crate) fn writes(&self) -> Writes {
        self.backend.writes()
    }

    /// Whether the backend validates dry runs.
    pub(crate) fn validates_dry_run(&self) -> bool {
        self.backend.writer.validates_dry_run
    }

    /// Whether the backend stores a field of the metadata.
    pub(crate) fn keeps(&self, field: &str) -> bool {
        let Writer { keeps_metadata, kept_metadata, .. } = &self.backend.writer;
        *keeps_metadata || kept_metadata.iter().any(|kept| kept == field)
    }

    /// The resourceVersion of an object; `None` if each response has a new one, because the kind cannot be written.
    pub(crate) fn version(&self, item: &Item<Arc<Object>>) -> Option<Revision> {
        (self.writes() != Writes::default()).then(|| version(item))
    }

    /// Reads the objects of a scope for a user. Objects that do not belong to the kind are logged, and the others are
    /// returned.
    ///
    /// # Errors
    /// The key and the error of the backend; 503 if there is not enough memory for the objects.
    pub(crate) async fn read(
        &self,
        kind: &Kind,
        user: &User,
        scope: &Scope,
    ) -> Result<Fetched, (Key, WriteError)> {
        let asked = match scope {
            Scope::All => Key::new(None, ""),
            Scope::Namespace(namespace) => Key::new(Some(namespace), ""),
            Scope::Object(key) => key.clone(),
        };
        if !may_exist(kind, &asked, scope) {
            return Ok((Vec::new(), None));
        }
        let read = async {
            match scope {
                Scope::Object(_) => self.backend.get(user, &asked).await.map(Vec::from_iter),
                _ => self.backend.list(user, asked.namespace()).await,
            }
        };
        let read = self.ended.run_until_cancelled(read).await;
        let read = read.unwrap_or_else(|| {
            let why = "the kind is not served any more";
            Err(BackendError::rejected(Reason::NotFound, why))
        });
        let trees = match read {
            Ok(trees) => trees,
            Err(BackendError::NotFound) => Vec::new(),
            Err(error) => {
                let error = WriteError::of_backend(kind, &asked, error).of_read();
                return Err((asked, error));
            }
        };
        self.objects(kind, trees, scope, &asked).await.map_err(|error| (asked, error))
    }

    /// The objects of the kind among those that the backend has returned.
    async fn objects(
        &self,
        kind: &Kind,
        trees: Vec<Tree>,
        scope: &Scope,
        asked: &Key,
    ) -> Result<Fetched, WriteError> {
        let (mut memory, mut bytes) = (None, 0);
        let mut objects: HashMap<Key, Item<Arc<Object>>> = HashMap::new();
        for (index, tree) in trees.into_iter().enumerate() {
            if index % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            let key = objects::key(&tree);
            let item = match item(kind, tree, asked) {
                Ok(item) if scope.contains(item.object.key()) => item,
                Ok(_) if matches!(scope, Scope::Object(_)) => {
                    return Err(WriteError::unusable(
                        kind,
                        asked,
                        "it has returned another object",
                    ));
                }
                // An object of another namespace.
                Ok(_) => continue,
                Err(why) if matches!(scope, Scope::Object(_)) => {
                    return Err(WriteError::unusable(kind, asked, &why));
                }
                Err(why) => {
                    objects::log_unfit(kind, &key, &why);
                    continue;
                }
            };
            bytes += item.object.size();
            self.take_memory(kind, bytes, &mut memory)?;
            let key = item.object.key().clone();
            if objects.insert(key.clone(), item).is_some() {
                objects::log_unfit(kind, &key, "the backend has listed it twice");
            }
        }
        Ok((objects.into_values().collect(), memory))
    }

    fn take_memory(
        &self,
        kind: &Kind,
        bytes: usize,
        memory: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(), WriteError> {
        if self.memory.hold(memory, bytes) {
            return Ok(());
        }
        let why = "there is not enough memory for the objects; please try again later";
        let message = format!("{} cannot be read: {why}", kind.qualified());
        Err(WriteError::Refused(ApiError::new(Reason::ServiceUnavailable, message)))
    }
}

/// Whether the kind may have objects in a scope. Names in selectors are not validated elsewhere.
fn may_exist(kind: &Kind, asked: &Key, scope: &Scope) -> bool {
    let is_named =
        !matches!(scope, Scope::Object(_)) || check_path_segment(asked.name()).is_empty();
    match asked.namespace() {
        Some(namespace) => {
            is_named && kind.is_namespaced() && check_path_segment(namespace).is_empty()
        }
        None => is_named,
    }
}

impl DirectBackend {
    /// The writes that the backend supports.
    pub(crate) fn writes(&self) -> Writes {
        self.writer.writes()
    }

    async fn get(&self, user: &User, key: &Key) -> Result<Option<Tree>, BackendError> {
        self.call(user, |context| (self.get)(context, key.clone())).await
    }

    async fn list(&self, user: &User, namespace: Option<&str>) -> Result<Vec<Tree>, BackendError> {
        self.call(user, |context| (self.list)(context, namespace.map(str::to_owned))).await
    }

    async fn call<T>(
        &self,
        user: &User,
        call: impl FnOnce(ReadContext) -> BoxFuture<'static, Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let begun = Instant::now();
        let timeout = self.writer.timeout;
        let Some(_slot) = slot(&self.calls, timeout).await else {
            return Err(BackendError::rejected(
                Reason::ServiceUnavailable,
                "too many reads of this kind are running; please try again later",
            ));
        };
        let remaining = timeout.saturating_sub(begun.elapsed());
        let context = ReadContext { user: user.clone(), timeout: remaining };
        caught(remaining, || call(context)).await
    }
}

/// An object of the kind, with its etag. The namespace is that of the request if the backend omits it.
fn item(kind: &Kind, mut tree: Tree, asked: &Key) -> Result<Item<Arc<Object>>, String> {
    objects::fill_key(&mut tree, asked);
    let etag = Some(metadata::text(&tree, "resourceVersion")).filter(|etag| !etag.is_empty());
    let etag = etag.map(str::to_owned);
    let object = Arc::new(objects::to_object(kind, tree, Former::UNKNOWN, &[])?);
    Ok(Item { object, etag })
}

/// The resourceVersion of an object: a hash of its etag, or of its content if it has no etag. So it is the same in every
/// process, and a client that sends it back changes the state that it has read.
fn version(Item { object, etag }: &Item<Arc<Object>>) -> Revision {
    let hash = match etag {
        Some(etag) => Uuid::new_v5(&Uuid::NAMESPACE_OID, etag.as_bytes()),
        None => Uuid::new_v5(&Uuid::NAMESPACE_URL, &object.json()),
    };
    Revision::new((hash.as_u64_pair().0 >> 1).max(1))
}

fn get<B: Read>(backend: &Arc<B>) -> Get {
    let backend = Arc::clone(backend);
    Box::new(move |context, key| {
        let backend = Arc::clone(&backend);
        async move {
            let read = backend.get(&context, key.namespace(), key.name()).await?;
            read.map(to_tree).transpose()
        }
        .boxed()
    })
}

fn list<B: Read>(backend: &Arc<B>) -> List {
    let backend = Arc::clone(backend);
    Box::new(move |context, namespace| {
        let backend = Arc::clone(&backend);
        async move {
            let mut trees = Vec::new();
            for object in backend.list(&context, namespace.as_deref()).await? {
                trees.push(to_tree(object)?);
                if trees.len().is_multiple_of(BATCH) {
                    tokio::task::yield_now().await;
                }
            }
            Ok(trees)
        }
        .boxed()
    })
}
