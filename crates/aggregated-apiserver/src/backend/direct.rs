//! Direct kinds: every read calls the backend, and nothing is stored.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::erased::{BATCH, caught, to_tree};
use super::objects::{self, Omitted};
use super::write_error::WriteError;
use super::{BackendError, Read, ReadContext};
use crate::kind::Kind;
use crate::object::{Key, Object, Tree};
use crate::storage::StoreError;
use crate::user::User;

/// The default timeout of a call of a backend.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest number of reads that one backend processes at the same time. Further reads wait.
const CALLS: usize = 64;

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

impl DirectBackend {
    /// Reads an object for a user.
    ///
    /// # Errors
    /// The error of the backend, for the client.
    pub(crate) async fn get(
        &self,
        kind: &Kind,
        user: &User,
        key: &Key,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let tree = match self.call(user, |context| (self.get)(context, key.clone())).await {
            Ok(Some(tree)) => tree,
            Ok(None) | Err(BackendError::NotFound) => return Ok(None),
            Err(error) => return Err(WriteError::of_backend(kind, key, error)),
        };
        let object =
            object(kind, tree, key).map_err(|why| WriteError::unusable(kind, key, &why))?;
        match *object.key() == *key {
            true => Ok(Some(Arc::new(object))),
            false => Err(WriteError::unusable(kind, key, "it has returned another object")),
        }
    }

    /// Reads the objects of a namespace, or of all namespaces, for a user. Objects that do not belong to the kind are
    /// logged, and the others are returned.
    ///
    /// # Errors
    /// The error of the backend, for the client.
    pub(crate) async fn list(
        &self,
        kind: &Kind,
        user: &User,
        namespace: Option<&str>,
    ) -> Result<Vec<Arc<Object>>, WriteError> {
        let asked = Key::new(namespace, "");
        let listed = self.call(user, |context| (self.list)(context, namespace.map(str::to_owned)));
        let listed = listed.await.map_err(|error| WriteError::of_backend(kind, &asked, error))?;
        let mut objects = Vec::with_capacity(listed.len());
        for (index, tree) in listed.into_iter().enumerate() {
            if index % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            let key = objects::key(&tree);
            match object(kind, tree, &asked) {
                Ok(object) if namespace.is_none_or(|one| object.key().namespace() == Some(one)) => {
                    objects.push(Arc::new(object));
                }
                Ok(_) => {}
                Err(why) => objects::log_unfit(kind, &key, &why),
            }
        }
        Ok(objects)
    }

    async fn call<T>(
        &self,
        user: &User,
        call: impl FnOnce(ReadContext) -> BoxFuture<'static, Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let Ok(permit) = timeout(self.timeout, self.calls.acquire()).await else {
            return Err(BackendError::Unavailable("too many calls are running".to_owned()));
        };
        let _permit = permit.map_err(BackendError::internal_from)?;
        let context = ReadContext { user: user.clone(), timeout: self.timeout };
        caught(self.timeout, || call(context)).await
    }
}

impl WriteError {
    /// The error of a read: an unknown outcome is no outcome.
    pub(crate) fn of_read(self) -> Self {
        match self {
            Self::Store(StoreError::Unknown) => Self::Store(StoreError::Unavailable),
            other => other,
        }
    }
}

/// An object of the kind. The namespace is that of the request if the backend omits it.
fn object(kind: &Kind, mut tree: Tree, asked: &Key) -> Result<Object, String> {
    objects::fill_key(&mut tree, asked);
    objects::to_object(kind, tree, Omitted::Nothing, &[])
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
