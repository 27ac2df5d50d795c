//! The namespaces of the cluster and their states.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::time::{sleep, timeout};

use super::{Asker, Cluster, ClusterError, SourceInformer, SourceOptions, Sources};
use crate::object::Key;

/// The longest wait for the namespaces to sync; same as kube-apiserver.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for a new namespace to arrive at the informer; same as kube-apiserver.
const LAG: Duration = Duration::from_millis(50);

/// The consequence of missing namespaces, for the log.
const MISSING: &str = "nothing is made in a namespace";

/// The state of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// The namespace accepts new objects.
    Active,
    /// The namespace is being deleted.
    Terminating,
    /// The namespace does not exist.
    Missing,
    /// The namespaces are not synced yet.
    Unknown,
}

/// The state of a namespace, and its uid if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// The state.
    pub state: NamespaceState,
    /// The uid.
    pub uid: Option<String>,
}

/// The namespaces of the cluster.
pub struct Namespaces {
    /// The informer, once the namespaces are watched.
    informer: OnceLock<Arc<SourceInformer<Namespace>>>,
    cluster: Cluster,
    /// Keeps the watch open. The watch ends when this is dropped.
    sources: Arc<Sources>,
}

impl Namespaces {
    /// The namespaces, which are watched from the first use on.
    pub fn new(sources: Arc<Sources>, cluster: Cluster) -> Self {
        Self { informer: OnceLock::new(), cluster, sources }
    }

    /// Starts watching the namespaces.
    pub fn open(&self) {
        self.informer();
    }

    /// Whether the namespaces are watched.
    pub fn are_open(&self) -> bool {
        self.informer.get().is_some()
    }

    fn informer(&self) -> &SourceInformer<Namespace> {
        self.informer.get_or_init(|| self.sources.open(SourceOptions::ALL, MISSING))
    }

    /// The state of a namespace. A namespace that the informer does not have is read from the cluster for this user.
    ///
    /// # Errors
    /// If the cluster does not respond.
    pub async fn state(&self, name: &str, user: &str) -> Result<NamespaceView, ClusterError> {
        if timeout(SYNC_TIMEOUT, self.informer().synced()).await.is_err() {
            return Ok(NamespaceView::of(NamespaceState::Unknown));
        }
        if let Some(view) = self.in_view(name) {
            return Ok(view);
        }
        sleep(LAG).await;
        match self.in_view(name) {
            Some(view) => Ok(view),
            None => self.live(name, user).await,
        }
    }

    /// The namespace with this name; `None` if it does not exist. A namespace that the informer does not have is read
    /// from the cluster for this user.
    ///
    /// # Errors
    /// If the cluster does not respond.
    pub async fn find(
        &self,
        name: &str,
        user: &str,
    ) -> Result<Option<Arc<Namespace>>, ClusterError> {
        let _ = timeout(SYNC_TIMEOUT, self.informer().settled()).await;
        match self.informer().get(&Key::new(None, name)) {
            Some(namespace) => Ok(Some(namespace)),
            None => Ok(self.cluster.namespace(name, user).await?.map(Arc::new)),
        }
    }

    /// The state of a namespace, read from the cluster.
    ///
    /// # Errors
    /// If the cluster does not respond.
    pub async fn live(&self, name: &str, user: &str) -> Result<NamespaceView, ClusterError> {
        let found = self.cluster.namespace(name, user).await?;
        let missing = || NamespaceView::of(NamespaceState::Missing);
        Ok(found.as_ref().map_or_else(missing, NamespaceView::of_namespace))
    }

    /// The state of a namespace in the informer; `None` if the informer does not have it.
    pub fn in_view(&self, name: &str) -> Option<NamespaceView> {
        let namespace = self.informer.get()?.get(&Key::new(None, name))?;
        Some(NamespaceView::of_namespace(&namespace))
    }

    /// Whether the informer has all namespaces.
    pub fn are_in_view(&self) -> bool {
        self.informer.get().is_some_and(|informer| informer.is_synced())
    }
}

impl NamespaceView {
    fn of(state: NamespaceState) -> Self {
        Self { state, uid: None }
    }

    fn of_namespace(namespace: &Namespace) -> Self {
        let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
        let state = match phase {
            Some("Terminating") => NamespaceState::Terminating,
            _ => NamespaceState::Active,
        };
        Self { state, uid: Some(namespace.metadata.uid.clone().unwrap_or_default()) }
    }
}

impl Cluster {
    /// Reads the namespace with this name from the cluster.
    async fn namespace(&self, name: &str, user: &str) -> Result<Option<Namespace>, ClusterError> {
        const ASKED: &str = "GET of a namespace";
        // An invalid name could change the path of the request.
        if !crate::object::names::check_dns_1123_label(name).is_empty() {
            return Ok(None);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let places = (&self.namespace_places, Asker::User(user));
        Self::within_bounds(ASKED, places, Box::pin(api.get_opt(name))).await
    }
}
