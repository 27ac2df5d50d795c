//! Which namespaces there are, and which of them are going.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::time::{sleep, timeout};

use super::{Asker, Cluster, ClusterError, SourceInformer, SourceOptions, Sources};
use crate::object::Key;

/// How long the first view of them may take to come; as kube-apiserver.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a namespace that was just made may take to come into view; as
/// kube-apiserver.
const LAG: Duration = Duration::from_millis(50);

/// What the log says while there is no view of them.
const MISSING: &str = "nothing is made in a namespace";

/// How a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// Objects can be made in it.
    Active,
    /// It is being deleted.
    Terminating,
    /// There is none.
    Missing,
    /// Nothing is known of any namespace yet.
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
    informer: Arc<SourceInformer<Namespace>>,
    cluster: Cluster,
    /// Their watch ends with it.
    _sources: Arc<Sources>,
}

impl Namespaces {
    /// Begins to watch them.
    pub fn new(sources: Arc<Sources>, cluster: Cluster) -> Self {
        Self { informer: sources.open(SourceOptions::ALL, MISSING), cluster, _sources: sources }
    }

    /// The state of a namespace. A namespace that the informer does not have is read from the cluster for this user.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn state(&self, name: &str, user: &str) -> Result<NamespaceView, ClusterError> {
        if timeout(SYNC_TIMEOUT, self.informer.synced()).await.is_err() {
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

    /// The state of a namespace in the cluster.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn live(&self, name: &str, user: &str) -> Result<NamespaceView, ClusterError> {
        let found = self.cluster.namespace(name, user).await?;
        let missing = || NamespaceView::of(NamespaceState::Missing);
        Ok(found.as_ref().map_or_else(missing, NamespaceView::of_namespace))
    }

    /// The state of a namespace in the informer; `None` if the informer does not have it.
    pub fn in_view(&self, name: &str) -> Option<NamespaceView> {
        let namespace = self.informer.get(&Key::new(None, name))?;
        Some(NamespaceView::of_namespace(&namespace))
    }

    /// Whether the informer has all namespaces.
    pub fn are_in_view(&self) -> bool {
        self.informer.is_synced()
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
    /// The namespace of this name.
    async fn namespace(&self, name: &str, user: &str) -> Result<Option<Namespace>, ClusterError> {
        const ASKED: &str = "GET of a namespace";
        // A name that is none would be another path.
        if !crate::object::names::check_dns_1123_label(name).is_empty() {
            return Ok(None);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let places = (&self.namespace_places, Asker::User(user));
        Self::within_bounds(ASKED, places, Box::pin(api.get_opt(name))).await
    }
}
