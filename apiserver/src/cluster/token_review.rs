//! TokenReview: whose bearer token is this?

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Api;
use kube::api::PostParams;
use moka::future::Cache;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Cluster, ClusterError, REVIEW_CAPACITY, REVIEW_TIMEOUT, REVIEW_TTL};
use crate::user::User;

/// Answers that still hold. Tokens themselves are not kept: their digests are,
/// salted anew in each process.
pub(super) struct Answers {
    salt: Uuid,
    users: Cache<[u8; 32], Option<User>>,
}

impl Answers {
    pub(super) fn new() -> Self {
        let users = Cache::builder().max_capacity(REVIEW_CAPACITY).time_to_live(REVIEW_TTL).build();
        Self { salt: Uuid::new_v4(), users }
    }

    fn key(&self, token: &str) -> [u8; 32] {
        Sha256::new().chain_update(self.salt).chain_update(token).finalize().into()
    }
}

impl Cluster {
    /// The user whose token this is; `None` if it is nobody's. Answers are
    /// remembered for ten seconds, failures are not.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn user_of_token(&self, token: &str) -> Result<Option<User>, ClusterError> {
        self.token_reviews
            .users
            .try_get_with(self.token_reviews.key(token), Box::pin(self.review(token)))
            .await
            .map_err(|error: Arc<ClusterError>| ClusterError::clone(&error))
    }

    async fn review(&self, token: &str) -> Result<Option<User>, ClusterError> {
        const ASKED: &str = "TokenReview";
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..Default::default() },
            ..Default::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, api.create(&params, &review))
            .await
            .map_err(|_| ClusterError::new(ASKED, "it took longer than ten seconds"))?
            .map_err(|error| ClusterError::new(ASKED, error))?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated.unwrap_or_default());
        Ok(user.map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.filter(|uid| !uid.is_empty()),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }
}
