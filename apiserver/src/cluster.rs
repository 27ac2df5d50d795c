//! The cluster behind one client: nobody else holds it.

mod access_review;
mod api_service;
mod request_header_ca;
mod serving_secret;
mod source;
mod token_review;

pub use access_review::Attributes;
pub use request_header_ca::{DelegatedAuthentication, RequestHeader};
pub use serving_secret::{KeptCertificates, SecretError};
pub use source::{Changed, SourceFeed, Sources};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use thiserror::Error;

/// How long a review may take; as kube-apiserver.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer of a review holds; as kube-apiserver.
const REVIEW_TTL: Duration = Duration::from_secs(10);
/// How many answers are remembered; as kube-apiserver.
const REVIEW_CAPACITY: u64 = 8_192;

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
}

impl Cluster {
    /// The cluster that this client speaks to.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            access_reviews: access_review::answers(),
            token_reviews: Arc::new(token_review::Answers::new()),
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
