//! Direct kinds: every read calls the backend, and nothing is stored.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::erased::{BATCH, CALLS, TIMEOUT, caught, slot, to_tree};
use super::objects;
use super::origin::Former;
use super::write_error::WriteError;
use super::{BackendError, Read, ReadContext};
use crate::error::{ApiError, Reason};
use crate::kind::Kind;
use crate::object::names::check_path_segment;
use crate::object::{Key, Object, Tree};
use crate::storage::StoreError;
use crate::user::User;
use crate::watch_cache::Scope;

/// The unit of the memory of objects, in bytes.
const UNIT: usize = 1 << 10;

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

/// A kind whose backend is called for every read. It has the verbs `get` and `list`. `Kinds::kind` takes it.
#[must_use]
pub struct DirectKind {
    pub(crate) definition: CustomResourceDefinition,
    pub(crate) backend: DirectBackend,
}

impl DirectKind {
    /// A kind with this backend. The definition has the names, the schema and the columns of the kind.
    pub fn new<B: Read>(definition: CustomResourceDefinition, backend: Arc<B>) -> Self {
        let (get, list) = (get(&backend), list(&backend));
        let calls = Semaphore::new(CALLS);
        Self { definition, backend: DirectBackend { get, list, calls, timeout: TIMEOUT } }
    }

    /// Sets the timeout of each call of the backend; the default is 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.backend.timeout = timeout;
        self
    }
}

impl fmt::Debug for DirectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectKind").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// A backend that is called for every read, without its type.
pub(crate) struct DirectBackend {
    get: Get,
    list: List,
    /// Limits the reads that run at the same time.
    calls: Semaphore,
    timeout: Duration,
}

impl fmt::Debug for DirectBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectBackend").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Reads the objects of a direct kind.
pub(crate) struct DirectReader {
    backend: Arc<DirectBackend>,
    /// The memory that the objects of all responses may use, in units of [`UNIT`].
    memory: Arc<Semaphore>,
    /// Cancelled when the kind is not served any more.
    ended: CancellationToken,
}

/// The objects of one request, and their memory until the response has been sent.
type Fetched = (Vec<Arc<Object>>, Option<OwnedSemaphorePermit>);

impl DirectReader {
    /// A reader of this backend, whose objects use at most this number of bytes.
    pub(crate) fn new(backend: Arc<DirectBackend>, limit: usize) -> Self {
        let memory = Arc::new(Semaphore::new(limit / UNIT));
        Self { backend, memory, ended: CancellationToken::new() }
    }

    /// Ends reads when this token is cancelled. No read calls the backend from then on.
    pub(crate) fn ending_with(self, ended: CancellationToken) -> Self {
        Self { ended, ..self }
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
        let mut memory = None;
        let mut objects: HashMap<Key, Arc<Object>> = HashMap::new();
        for (index, tree) in trees.into_iter().enumerate() {
            if index % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            let key = objects::key(&tree);
            let object = match object(kind, tree, asked) {
                Ok(object) if scope.contains(object.key()) => object,
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
            self.take_memory(kind, object.size(), &mut memory)?;
            let key = object.key().clone();
            if objects.insert(key.clone(), Arc::new(object)).is_some() {
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
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.memory).try_acquire_many_owned(units) else {
            let why = "there is not enough memory for the objects; please try again later";
            let message = format!("{} cannot be read: {why}", kind.qualified());
            return Err(WriteError::Refused(ApiError::new(Reason::ServiceUnavailable, message)));
        };
        match memory {
            Some(memory) => memory.merge(more),
            None => *memory = Some(more),
        }
        Ok(())
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
        let Some(_slot) = slot(&self.calls, self.timeout).await else {
            return Err(BackendError::rejected(
                Reason::ServiceUnavailable,
                "too many reads of this kind are running; please try again later",
            ));
        };
        let remaining = self.timeout.saturating_sub(begun.elapsed());
        let context = ReadContext { user: user.clone(), timeout: remaining };
        caught(remaining, || call(context)).await
    }
}

impl WriteError {
    /// A read that timed out has changed nothing, so the client may retry: 503 instead of 504.
    fn of_read(self) -> Self {
        match self {
            Self::Store(StoreError::Unknown) => Self::Store(StoreError::Unavailable),
            other => other,
        }
    }
}

/// An object of the kind. The namespace is that of the request if the backend omits it.
fn object(kind: &Kind, mut tree: Tree, asked: &Key) -> Result<Object, String> {
    objects::fill_key(&mut tree, asked);
    objects::to_object(kind, tree, Former::UNKNOWN, &[])
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
