//! Access to the cluster's API. All requests to the cluster go through the one client that [`Cluster`] holds.

mod access_review;
mod acting_client;
mod api_service;
mod bounded_client;
mod followed_objects;
mod kind_reader;
mod look;
mod namespaces;
mod quota_status;
mod request_header_ca;
mod review_observer;
mod serving_secret;
mod source;
mod stored_objects;
mod token_review;

pub use acting_client::impersonation_headers;
pub use api_service::Registration;
pub use followed_objects::FollowedObjects;
pub use kind_reader::{ClusterResource, KindReader, Wanted};
pub use namespaces::{NamespaceState, Namespaces};
pub use quota_status::{QuotaStatusClient, QuotaStatusError};
pub use request_header_ca::{DelegatedAuthentication, RequestHeader};
pub use review_observer::{Review, ReviewKind, ReviewObserver, ReviewSource};
pub use serving_secret::{KeptCertificates, SecretError};
pub use source::{
    ChangedKeys, KindName, KindSource, KindSources, LARGE_SOURCES, LEAST_SOURCE_MEMORY,
    SOURCE_MEMORY, SourceApi, SourceInformer, SourceObjects, SourceOptions, SourceStatus,
    SourceStreams, SourceType, Sources, resource_name,
};

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::auth::{AuthError, Authorizers, DecisionCache};
use crate::queue;
use crate::quota::{Limiter, Permit, Share};

/// The longest time for a review; same as kube-apiserver.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that the result of a review is cached; same as kube-apiserver.
const REVIEW_TTL: Duration = Duration::from_secs(10);
/// The size of the cache of TokenReviews, in bytes.
const REVIEW_BYTES: u64 = 8 << 20;
/// The largest number of concurrent reviews of one kind for identified callers. Further reviews are queued, round-robin
/// over callers, and each caller may use a quarter of the slots. The limit protects the cluster from a flood of reviews
/// caused by clients.
const REVIEWS: usize = 100;
/// The largest number of queued reviews of one caller.
const WAITING: usize = 250;
/// The limits for unauthenticated clients, whose number is not bounded. They have a separate queue, so that other
/// callers never wait behind them.
const REVIEWS_OF_STRANGERS: usize = 40;
const WAITING_STRANGERS: usize = 100;

/// An error of a request to the cluster, or of an authorizer. The message for clients contains the kind of request and
/// no detail.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct ClusterError {
    message: String,
    /// What ends the error: "until it does".
    until: &'static str,
    why: String,
    is_busy: bool,
}

impl ClusterError {
    fn new(asked: &'static str, why: impl fmt::Display) -> Self {
        let message = format!("the cluster did not respond to a {asked}");
        Self { message, until: "until it does", why: why.to_string(), is_busy: false }
    }

    /// Creates the error for a full queue.
    fn busy(asked: &'static str) -> Self {
        Self { is_busy: true, ..Self::new(asked, "too many of them wait already") }
    }

    /// Whether the request was not sent to the cluster, because the queue was full.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// The end of the error, as part of a message: `until it does`.
    pub fn until(&self) -> &'static str {
        self.until
    }

    /// The cause, for the log.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl From<AuthError> for ClusterError {
    fn from(error: AuthError) -> Self {
        let message = "an authorizer failed".to_owned();
        Self { message, until: "until it decides", why: error.to_string(), is_busy: false }
    }
}

/// The API of a cluster, with one client for all requests.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// The client that sends reviews.
    reviewer: Arc<Client>,
    /// The client without a size limit of responses, for the code of users.
    unbounded: Client,
    source_memory: usize,
    authorizers: Authorizers,
    access_reviews: DecisionCache,
    token_reviews: Arc<token_review::Answers>,
    access_places: Reviews,
    token_places: Reviews,
    namespace_places: Reviews,
    observed: review_observer::Observed,
}

/// The caller on whose behalf a review is requested.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'a> {
    /// An authenticated user, by name.
    User(&'a str),
    /// A client that is not authenticated yet, by its address.
    Newcomer(&'a str),
    /// An unauthenticated client: one without credentials, or one with rejected credentials.
    Stranger,
}

/// The limits of concurrent reviews of one kind, or of concurrent calls of authenticators.
#[derive(Clone)]
pub struct Reviews {
    of_users: Limiter,
    of_strangers: Limiter,
}

impl Reviews {
    /// The limits, without a review in progress.
    pub fn new() -> Self {
        let of_strangers = Limiter::new(REVIEWS_OF_STRANGERS, Share::All);
        Self {
            of_users: Limiter::new(REVIEWS, Share::Part(4)).with_waiting_of_user(WAITING),
            of_strangers: of_strangers.with_waiting_of_user(WAITING_STRANGERS),
        }
    }

    /// Waits for a slot for a review of this caller. Returns `None` if no slot becomes free in time.
    pub async fn place(&self, asker: Asker<'_>) -> Option<Permit> {
        let (limiter, name) = match asker {
            Asker::User(name) | Asker::Newcomer(name) => (&self.of_users, name),
            Asker::Stranger => (&self.of_strangers, ""),
        };
        queue::acquire(limiter, name, "reviews").await.ok()
    }
}

impl Cluster {
    /// Creates a cluster that uses this client.
    pub fn new(client: Client) -> Self {
        Self {
            client: bounded_client::bounded(client.clone()),
            reviewer: Arc::new(bounded_client::bounded(client.clone())),
            unbounded: client,
            source_memory: SOURCE_MEMORY,
            authorizers: Authorizers::default(),
            access_reviews: DecisionCache::new(REVIEW_TTL),
            token_reviews: Arc::new(token_review::Answers::new()),
            access_places: Reviews::new(),
            token_places: Reviews::new(),
            namespace_places: Reviews::new(),
            observed: review_observer::Observed::default(),
        }
    }

    /// Sends reviews with this client.
    #[must_use]
    pub fn with_reviewer(self, reviewer: Client) -> Self {
        Self { reviewer: Arc::new(bounded_client::bounded(reviewer)), ..self }
    }

    /// Sets the memory limit for the objects of each source type, in bytes.
    #[must_use]
    pub fn with_source_memory(self, source_memory: usize) -> Self {
        Self { source_memory, ..self }
    }

    /// Sets the chain of authorizers. The built-in one of the chain sends SubjectAccessReviews.
    #[must_use]
    pub fn with_authorizers(self, authorizers: Authorizers) -> Self {
        Self { authorizers, ..self }
    }

    /// Reports every later review to this observer. Copies of the cluster report their reviews, too.
    pub fn observe_reviews(&self, observer: ReviewObserver) {
        self.observed.by(observer);
    }

    /// Sends a review to the cluster, within the time limit and the limits of concurrent reviews.
    async fn review<K>(
        &self,
        asked: &'static str,
        kind: ReviewKind,
        asker: Asker<'_>,
        review: &K,
    ) -> Result<K, ClusterError>
    where
        K: Resource<DynamicType = ()> + Clone + fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::all(Client::clone(&self.reviewer));
        // Boxed: the future of a request reserves memory for everything that it may await, and it seldom awaits a
        // review.
        let answered = Box::pin(async {
            // Also reports a review that times out or whose caller has disconnected.
            let mut waits = self.observed.asks(kind);
            let answer = api.create(&PostParams::default(), review).await;
            match &answer {
                Ok(_) => waits.code = Some(201),
                Err(kube::Error::Api(status)) => waits.code = Some(status.code),
                Err(_) => {}
            }
            drop(waits);
            answer.map_err(|error| {
                format!("{error} (a ClusterRoleBinding to system:auth-delegator allows it)")
            })
        });
        let places = match kind {
            ReviewKind::Token => &self.token_places,
            ReviewKind::Access => &self.access_places,
        };
        Self::within_bounds(asked, (places, asker), answered).await
    }

    /// Waits for a response of the cluster, within the time limit and the limits of concurrent reviews.
    async fn within_bounds<T, E: fmt::Display>(
        asked: &'static str,
        (places, asker): (&Reviews, Asker<'_>),
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ClusterError> {
        let Some(_place) = places.place(asker).await else {
            return Err(ClusterError::busy(asked));
        };
        match tokio::time::timeout(REVIEW_TIMEOUT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(ClusterError::new(asked, error)),
            Err(_) => Err(ClusterError::new(asked, "it took longer than ten seconds")),
        }
    }

    /// Returns the sources of computed kinds. Each source is watched once for all kinds; some types are read from
    /// streams.
    pub fn sources(&self, streams: SourceStreams) -> Sources {
        Sources::new(self.client.clone(), self.source_memory, streams)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}
