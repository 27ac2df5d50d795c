//! NamespaceLifecycle: rejects creates in a namespace that is missing or being deleted, because the deletion of the
//! namespace would never end otherwise. It also rejects the deletion of the namespaces that a cluster always has.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::error::name;
use super::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use crate::cluster::{ClusterError, NamespaceState, Namespaces};
use crate::error::ApiError;
use crate::object::{Key, Object, Tree, metadata};
use crate::storage::Revision;
use crate::watch_cache::WatchCache;

/// Namespaces that a cluster always has.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The admission plugin NamespaceLifecycle of Kubernetes.
pub struct NamespaceLifecycle(Arc<Namespaces>);

impl NamespaceLifecycle {
    /// Creates the plugin. As long as the namespaces are not watched, it admits objects that the server does not store,
    /// such as reviews, in any namespace.
    pub fn new(namespaces: Namespaces) -> Self {
        Self(Arc::new(namespaces))
    }
}

/// The namespace in which a create was admitted. Admission may take long, so the namespace is read again at the commit.
/// It must still exist, have the same uid, and not be terminating.
pub struct AdmittedNamespace {
    name: String,
    uid: Option<String>,
    namespaces: Arc<Namespaces>,
    /// Whether the informer had the namespace when the create was admitted.
    was_in_view: bool,
    /// The namespace as it was admitted, if this server stores namespaces.
    stored: Option<StoredNamespace>,
}

/// A namespace that this server stores, as it was admitted.
struct StoredNamespace {
    /// The cache of the namespaces. It is newer than an informer.
    cache: Arc<WatchCache>,
    revision: Revision,
    state: NamespaceState,
}

/// The group, the resource and the name of a new object.
type Named<'a> = (&'a str, &'a str, &'a str);

impl AdmittedNamespace {
    /// A namespace that this server stores; `None` if its cache does not have the namespace.
    fn stored(namespaces: &Arc<Namespaces>, name: &str, cache: Arc<WatchCache>) -> Option<Self> {
        let admitted = cache.get(&Key::new(None, name))?;
        Some(Self {
            name: name.to_owned(),
            uid: Some(admitted.object.uid().to_owned()),
            namespaces: Arc::clone(namespaces),
            was_in_view: false,
            stored: Some(StoredNamespace {
                state: state_of(&admitted.object),
                revision: admitted.revision,
                cache,
            }),
        })
    }

    /// A namespace of the cluster.
    fn seen(namespaces: &Arc<Namespaces>, name: &str, uid: Option<String>) -> Self {
        let was_in_view = namespaces.in_view(name).is_some_and(|view| view.uid == uid);
        let namespaces = Arc::clone(namespaces);
        Self { name: name.to_owned(), uid, namespaces, was_in_view, stored: None }
    }

    /// Returns the error if no object may be created in the namespace now, as far as this process knows. A namespace
    /// that this process does not know is not rejected.
    pub fn known_refusal(&self, object: Named<'_>) -> Option<ApiError> {
        refusal(self.known_state()?, &self.name, object)
    }

    /// Rejects an object if none may be created in the namespace now. A namespace that this process does not know is
    /// read from the cluster, on behalf of this user.
    ///
    /// # Errors
    /// The reason for the rejection; 500 if the namespace cannot be read.
    pub async fn check(&self, user: &str, object: Named<'_>) -> Result<(), ApiError> {
        let state = match self.known_state() {
            Some(state) => state,
            None => {
                let live = self.namespaces.live(&self.name, user).await.map_err(unread)?;
                match live.state {
                    _ if live.uid != self.uid => NamespaceState::Missing,
                    state => state,
                }
            }
        };
        refusal(state, &self.name, object).map_or(Ok(()), Err)
    }

    /// The state of the namespace, if this process knows it.
    fn known_state(&self) -> Option<NamespaceState> {
        if let Some(admitted) = &self.stored {
            let is_other = |uid: &str| self.uid.as_ref().is_some_and(|admitted| admitted != uid);
            return Some(match admitted.cache.get(&Key::new(None, &self.name)) {
                Some(now) if now.revision == admitted.revision => admitted.state,
                Some(now) if is_other(now.object.uid()) => NamespaceState::Missing,
                Some(now) => state_of(&now.object),
                None => NamespaceState::Missing,
            });
        }
        match self.namespaces.in_view(&self.name) {
            Some(view) if view.uid == self.uid => Some(view.state),
            // The informer had the namespace, which was deleted or replaced since.
            _ if self.was_in_view && self.namespaces.are_in_view() => Some(NamespaceState::Missing),
            // The informer may lag behind the namespace that was admitted, or may not be synced.
            _ => None,
        }
    }
}

impl std::fmt::Debug for AdmittedNamespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmittedNamespace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AdmissionPlugin for NamespaceLifecycle {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        match request.operation {
            AdmissionOperation::Create => {
                let is_stored = request.served().store().is_some();
                request.namespace.is_some() && (is_stored || self.0.are_open())
            }
            AdmissionOperation::Delete => is_namespace(request),
            AdmissionOperation::Update | AdmissionOperation::Connect => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let Some(namespace) = request.namespace else { return ready(Ok(())).boxed() };
        check(&self.0, namespace, request, object).boxed()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let is_deleted = object.is_none() && is_namespace(request);
        let judged = if is_deleted && IMMORTAL.contains(&request.name) {
            Err(AdmissionError::forbidden("this namespace may not be deleted"))
        } else {
            Ok(())
        };
        ready(judged).boxed()
    }
}

fn is_namespace(request: &AdmissionRequest<'_>) -> bool {
    request.group.is_empty() && request.resource == "namespaces"
}

/// Rejects an object whose namespace accepts no new objects.
async fn check(
    namespaces: &Arc<Namespaces>,
    namespace: &str,
    request: &AdmissionRequest<'_>,
    object: &AdmissionObject<'_>,
) -> Result<(), AdmissionError> {
    let of = (request.group, request.resource, &*name(request, object));
    let cache = request.stored_namespaces();
    let is_stored = cache.is_some();
    let stored = cache.and_then(|cache| AdmittedNamespace::stored(namespaces, namespace, cache));
    let admitted = match stored {
        Some(admitted) => admitted,
        None => {
            let user = &request.user.name;
            // An informer of namespaces that this server stores knows no more than the cache.
            let seen = match is_stored {
                true => namespaces.live(namespace, user).await,
                false => namespaces.state(namespace, user).await,
            };
            let seen = seen.map_err(|error| AdmissionError::answer(unread(error)))?;
            if let Some(refused) = refusal(seen.state, namespace, of) {
                return Err(AdmissionError::answer(refused));
            }
            AdmittedNamespace::seen(namespaces, namespace, seen.uid)
        }
    };
    match admitted.known_refusal(of) {
        Some(refused) => Err(AdmissionError::answer(refused)),
        None => {
            request.hold_namespace(admitted);
            Ok(())
        }
    }
}

/// The state of a namespace that this server stores.
fn state_of(namespace: &Object) -> NamespaceState {
    match metadata::is_being_deleted(&namespace.to_tree()) {
        true => NamespaceState::Terminating,
        false => NamespaceState::Active,
    }
}

/// The error for a namespace that cannot be read.
pub(super) fn unread(error: ClusterError) -> ApiError {
    ApiError::internal(&error).caused_by(error.why())
}

/// Returns the error if this object may not be created in a namespace of this state.
fn refusal(
    state: NamespaceState,
    namespace: &str,
    (group, resource, name): Named<'_>,
) -> Option<ApiError> {
    let forbidden = |why: &str| ApiError::forbidden(group, resource, name, why);
    Some(match state {
        NamespaceState::Active => return None,
        NamespaceState::Unknown => forbidden("not yet ready to handle request"),
        NamespaceState::Missing => ApiError::not_found("", "namespaces", namespace),
        NamespaceState::Terminating => forbidden(&format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ))
        .with_cause(
            "NamespaceTerminating",
            &format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        ),
    })
}
