//! The cluster behind one client: nobody else holds it.

mod access_review;
mod api_service;
mod namespaces;
mod request_header_ca;
mod serving_secret;
mod source;
mod stored_objects;
mod token_review;

pub use access_review::Attributes;
pub use api_service::Registration;
pub use namespaces::{NamespaceState, Namespaces};
pub use request_header_ca::{DelegatedAuthentication, RequestHeader};
pub use serving_secret::{KeptCertificates, SecretError};
pub use source::{Changed, SourceInformer, Sources, resource_name};

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::Semaphore;

/// How long a review may take; as kube-apiserver.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer of a review holds; as kube-apiserver.
const REVIEW_TTL: Duration = Duration::from_secs(10);
/// Bytes of questions whose answers are remembered, for each kind of review:
/// about as many as kube-apiserver remembers, whoever asks how long questions.
const REVIEW_BYTES: u64 = 8 << 20;
/// Reviews of one sort in flight, and those that wait: what callers ask of us
/// must not become a flood of questions to the cluster.
const REVIEWS: usize = 100;
const WAITING: usize = 1_000;

/// The cluster did not answer. Clients may see what it was asked, not more.
#[derive(Clone, Debug, Error)]
#[error("the cluster did not answer a {asked}")]
pub struct ClusterError {
    asked: &'static str,
    why: String,
}

impl ClusterError {
    fn new(asked: &'static str, why: impl fmt::Display) -> Self {
        Self { asked, why: why.to_string() }
    }

    /// Why not, for the log.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// The cluster behind one client.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    access_reviews: access_review::Answers,
    token_reviews: Arc<token_review::Answers>,
    access_places: Places,
    token_places: Places,
    namespace_places: Places,
}

/// Bounds the reviews of one sort.
#[derive(Clone)]
struct Places {
    in_flight: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Places {
    fn new() -> Self {
        Self {
            in_flight: Arc::new(Semaphore::new(REVIEWS)),
            waiting: Arc::new(Semaphore::new(WAITING)),
        }
    }
}

impl Cluster {
    /// The cluster that this client speaks to.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            access_reviews: access_review::answers(),
            token_reviews: Arc::new(token_review::Answers::new()),
            access_places: Places::new(),
            token_places: Places::new(),
            namespace_places: Places::new(),
        }
    }

    /// Asks the cluster to answer a review, within its time and its bounds.
    async fn review<K>(
        &self,
        asked: &'static str,
        places: &Places,
        review: &K,
    ) -> Result<K, ClusterError>
    where
        K: Resource<DynamicType = ()> + Clone + fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let answered = async {
            api.create(&PostParams::default(), review).await.map_err(|error| {
                format!("{error} (a ClusterRoleBinding to system:auth-delegator allows it)")
            })
        };
        Self::within_bounds(asked, places, answered).await
    }

    /// Waits for an answer of the cluster, within its time and its bounds.
    async fn within_bounds<T, E: fmt::Display>(
        asked: &'static str,
        places: &Places,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ClusterError> {
        let Ok(_waiting) = places.waiting.try_acquire() else {
            return Err(ClusterError::new(asked, "too many of them wait already"));
        };
        let answered = tokio::time::timeout(REVIEW_TIMEOUT, async {
            let _place = places.in_flight.acquire().await;
            answer.await
        });
        match answered.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(ClusterError::new(asked, error)),
            Err(_) => Err(ClusterError::new(asked, "it took longer than ten seconds")),
        }
    }

    /// What kinds are computed from, watched once for all of them.
    pub fn sources(&self) -> Sources {
        Sources::new(self.client.clone())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}
