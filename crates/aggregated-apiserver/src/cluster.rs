//! The cluster behind one client: nobody else holds it.

mod access_review;
mod api_service;
mod bounded_client;
mod look;
mod namespaces;
mod request_header_ca;
mod resource_quotas;
mod review_observer;
mod serving_secret;
mod source;
mod stored_objects;
mod token_review;

pub use access_review::{Attributes, Authorizer};
pub use api_service::Registration;
pub use namespaces::{NamespaceState, NamespaceView, Namespaces};
pub use request_header_ca::{DelegatedAuthentication, RequestHeader};
pub use resource_quotas::ResourceQuotas;
pub use review_observer::{Review, ReviewKind, ReviewObserver, ReviewSource};
pub use serving_secret::{KeptCertificates, SecretError};
pub use source::{
    Changed, KindName, KindSource, KindSources, LARGE_SOURCES, LEAST_SOURCE_MEMORY, SOURCE_MEMORY,
    SourceApi, SourceInformer, SourceObjects, SourceOptions, SourceStreams, SourceType, Sources,
    Standing, resource_name,
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

use crate::queue::{Busy, Queue, QueuePlace};

/// How long a review may take; as kube-apiserver.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer of a review holds; as kube-apiserver.
const REVIEW_TTL: Duration = Duration::from_secs(10);
/// Bytes of questions whose answers are remembered, for each kind of review:
/// about as many as kube-apiserver remembers, whoever asks how long questions.
const REVIEW_BYTES: u64 = 8 << 20;
/// Reviews of one sort in flight; more wait, users in turns, of whom each has a quarter: what callers
/// ask of us must not become a flood of questions to the cluster.
const REVIEWS: usize = 100;
/// Those of one user that wait.
const WAITING: usize = 250;
/// The same of strangers, of whom there may be any number: nobody waits behind them.
const REVIEWS_OF_STRANGERS: usize = 40;
const WAITING_STRANGERS: usize = 100;

/// The cluster did not answer. Clients may see what it was asked, not more.
#[derive(Clone, Debug, Error)]
#[error("the cluster did not answer a {asked}")]
pub struct ClusterError {
    asked: &'static str,
    why: String,
    is_busy: bool,
}

impl ClusterError {
    fn new(asked: &'static str, why: impl fmt::Display) -> Self {
        Self { asked, why: why.to_string(), is_busy: false }
    }

    /// Too many wait already.
    fn busy(asked: &'static str) -> Self {
        Self { is_busy: true, ..Self::new(asked, "too many of them wait already") }
    }

    /// Whether the cluster was not asked, because too many wait already.
    pub fn is_busy(&self) -> bool {
        self.is_busy
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
    source_memory: usize,
    authorizer: Option<Authorizer>,
    access_reviews: access_review::Answers,
    token_reviews: Arc<token_review::Answers>,
    access_places: Reviews,
    token_places: Reviews,
    namespace_places: Reviews,
    observed: review_observer::Observed,
}

/// Who wants to know.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'a> {
    /// A user.
    User(&'a str),
    /// Whoever is not known yet, and where they come from.
    Newcomer(&'a str),
    /// Nobody that is known: without credentials, or with some that did not hold.
    Stranger,
}

/// Bounds the reviews of one sort.
#[derive(Clone)]
struct Reviews {
    of_users: Queue,
    of_strangers: Queue,
}

impl Reviews {
    fn new() -> Self {
        let of_strangers = Queue::undivided(REVIEWS_OF_STRANGERS);
        Self {
            of_users: Queue::new(REVIEWS).with_waiting_of_user(WAITING),
            of_strangers: of_strangers.with_waiting_of_user(WAITING_STRANGERS),
        }
    }

    /// A place for a review of this asker.
    async fn place(&self, asker: Asker<'_>) -> Result<QueuePlace, Busy> {
        let (queue, name) = match asker {
            Asker::User(name) | Asker::Newcomer(name) => (&self.of_users, name),
            Asker::Stranger => (&self.of_strangers, ""),
        };
        queue.take(name).await.map(|(place, _)| place)
    }
}

impl Cluster {
    /// The cluster that this client speaks to.
    pub fn new(client: Client) -> Self {
        Self {
            client: bounded_client::bounded(client),
            source_memory: SOURCE_MEMORY,
            authorizer: None,
            access_reviews: access_review::answers(),
            token_reviews: Arc::new(token_review::Answers::new()),
            access_places: Reviews::new(),
            token_places: Reviews::new(),
            namespace_places: Reviews::new(),
            observed: review_observer::Observed::default(),
        }
    }

    /// The same cluster, of whose objects each type that kinds are computed from may take so many
    /// bytes.
    #[must_use]
    pub fn with_source_memory(self, source_memory: usize) -> Self {
        Self { source_memory, ..self }
    }

    /// The same cluster. If there is an authorizer, it decides which requests are allowed, and no SubjectAccessReview is sent.
    #[must_use]
    pub fn with_authorizer(self, authorizer: Option<Authorizer>) -> Self {
        Self { authorizer, ..self }
    }

    /// Tells this observer of every review from now on, also of those that copies ask for.
    pub fn observe_reviews(&self, observer: ReviewObserver) {
        self.observed.by(observer);
    }

    /// Asks the cluster to answer a review, within its time and its bounds.
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
        let api: Api<K> = Api::all(self.client.clone());
        // Boxed: a request has room for all that it may wait for, and seldom waits for this.
        let answered = Box::pin(async {
            // Told also when it takes too long, or its asker is gone.
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

    /// Waits for an answer of the cluster, within its time and its bounds.
    async fn within_bounds<T, E: fmt::Display>(
        asked: &'static str,
        (places, asker): (&Reviews, Asker<'_>),
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ClusterError> {
        let Ok(_place) = places.place(asker).await else {
            return Err(ClusterError::busy(asked));
        };
        match tokio::time::timeout(REVIEW_TIMEOUT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(ClusterError::new(asked, error)),
            Err(_) => Err(ClusterError::new(asked, "it took longer than ten seconds")),
        }
    }

    /// What kinds are computed from, watched once for all of them; some types come from streams.
    pub fn sources(&self, streams: SourceStreams) -> Sources {
        Sources::new(self.client.clone(), self.source_memory, streams)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}
