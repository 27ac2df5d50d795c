//! Authentication of bearer tokens with TokenReviews.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use moka::future::Cache;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Asker, Cluster, ClusterError, REVIEW_BYTES, REVIEW_TTL, ReviewKind, ReviewSource};
use crate::user::User;

/// The memory of a cached result in addition to the groups of its user, in bytes.
const ENTRY: usize = 500;

/// The cache of results. Its keys are digests of tokens with a salt that each process generates; tokens themselves are
/// not stored.
pub(super) struct Answers {
    salt: Uuid,
    users: Cache<[u8; 32], Option<User>>,
}

impl Answers {
    pub(super) fn new() -> Self {
        let weigh = |_: &[u8; 32], user: &Option<User>| {
            let groups = user.iter().flat_map(|user| &user.groups).map(String::len).sum::<usize>();
            u32::try_from(ENTRY + groups).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().weigher(weigh).max_capacity(REVIEW_BYTES);
        let users = cache.time_to_live(REVIEW_TTL).build();
        Self { salt: Uuid::new_v4(), users }
    }

    fn key(&self, token: &str) -> [u8; 32] {
        Sha256::new().chain_update(self.salt).chain_update(token).finalize().into()
    }
}

impl Cluster {
    /// Returns the user of a token; `None` if the token is invalid. Results are cached for ten seconds; errors are not
    /// cached. Clients that have sent an invalid token before wait in the queue of unauthenticated clients
    /// ([`Asker::Stranger`]).
    ///
    /// # Errors
    /// If the cluster does not respond.
    pub async fn user_of_token(
        &self,
        token: &str,
        asker: Asker<'_>,
    ) -> Result<Option<User>, ClusterError> {
        let is_own = AtomicBool::new(false);
        let own = async {
            is_own.store(true, Ordering::Relaxed);
            self.ask_for_user(token, asker).await
        };
        let users = &self.token_reviews.users;
        let answer = users.entry(self.token_reviews.key(token)).or_try_insert_with(Box::pin(own));
        let answer = answer.await;
        // Another caller shared this request and found its queue full. The queue of this caller may have a slot.
        let is_refused = answer.as_ref().is_err_and(|error| error.is_busy());
        if is_refused && !is_own.load(Ordering::Relaxed) {
            self.observed.tell(ReviewKind::Token, ReviewSource::Cache { hit: false });
            return Box::pin(self.ask_for_user(token, asker)).await;
        }
        let hit = answer.as_ref().is_ok_and(|entry| !entry.is_fresh());
        self.observed.tell(ReviewKind::Token, ReviewSource::Cache { hit });
        answer
            .map(moka::Entry::into_value)
            .map_err(|error: Arc<ClusterError>| ClusterError::clone(&error))
    }

    async fn ask_for_user(
        &self,
        token: &str,
        asker: Asker<'_>,
    ) -> Result<Option<User>, ClusterError> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..Default::default() },
            ..Default::default()
        };
        let answer = self.review("TokenReview", ReviewKind::Token, asker, &review).await?;
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::future::join;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::cluster::REVIEWS_OF_STRANGERS;

    #[tokio::test(start_paused = true)]
    async fn a_request_rejected_as_busy_does_not_fail_others_with_the_same_token() {
        let service = tower::service_fn(async |_: Request<Body>| {
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {},
                "status": {"authenticated": true, "user": {"username": "jane"}},
            });
            let body = Body::from(review.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(201).body(body).unwrap())
        });
        let cluster = Cluster::new(Client::new(service, "default"));
        let strangers = &cluster.token_places.of_strangers;
        let _held = strangers.try_acquire("", REVIEWS_OF_STRANGERS).unwrap();
        let (stranger, newcomer) = join(
            cluster.user_of_token("a token", Asker::Stranger),
            cluster.user_of_token("a token", Asker::Newcomer("192.0.2.1")),
        )
        .await;
        assert!(stranger.unwrap_err().is_busy());
        assert_eq!(newcomer.unwrap().unwrap().name, "jane");
    }
}
