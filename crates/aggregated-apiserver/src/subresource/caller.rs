//! The user of a request, with its permissions.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;

use super::Error;
use crate::auth::Attributes;
use crate::cluster::{Cluster, impersonation_headers};
use crate::error::{ApiError, Reason};
use crate::user::User;

/// The user of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    user: Arc<User>,
    cluster: Arc<Cluster>,
}

impl Caller {
    pub(crate) fn new(user: Arc<User>, cluster: Arc<Cluster>) -> Self {
        Self { user, cluster }
    }

    /// The user.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Whether the user has this permission. The server asks its authorizers. The answer of the cluster is cached for ten
    /// seconds.
    ///
    /// # Errors
    /// 500 if the cluster or another authorizer does not answer, and 429 if too many requests wait for an answer. The
    /// action must be rejected then.
    pub async fn may(&self, permission: &ResourceAttributes) -> Result<bool, Error> {
        self.has(&permission.into()).await
    }

    async fn has(&self, permission: &Attributes) -> Result<bool, Error> {
        if self.user.is_master() {
            return Ok(true);
        }
        let decision = self.cluster.authorize(&self.user, permission).await.map_err(|error| {
            match error.is_busy() {
                true => ApiError::too_many_requests().bounded_by("reviews"),
                false => ApiError::internal(&error).caused_by(error.why()),
            }
        });
        decision.map(|decision| decision.is_allowed()).map_err(Error::of)
    }

    /// The headers with which a request to another API server acts as the user: `Impersonate-User` and its siblings.
    /// They are only as good as the trust between the servers: a user or a group of the same name may be another one
    /// there. Names that begin with `system:` have permissions in every cluster.
    ///
    /// # Errors
    /// 403 if the user has no name, or has parts that no header can contain.
    pub fn impersonation(&self) -> Result<HeaderMap, Error> {
        let headers = impersonation_headers(&self.user).ok_or_else(|| {
            Error::new(Reason::Forbidden, "the user cannot be impersonated: its name is no header")
        });
        let mut map = HeaderMap::new();
        map.extend(headers?);
        Ok(map)
    }

    /// A client of the cluster with the permissions of the server. Check with [`may`](Self::may) whether the user has
    /// the permission, too. Manifests grant the permissions of [`server_rule`](super::Subresource::server_rule).
    pub fn server_client(&self) -> Client {
        self.cluster.unbounded_client()
    }

    /// Rejects the request if the user does not have this permission.
    ///
    /// # Errors
    /// 403 if the user does not have the permission, and the errors of [`may`](Self::may).
    pub async fn demand(&self, permission: &ResourceAttributes) -> Result<(), Error> {
        let permission = Attributes::from(permission);
        match self.has(&permission).await? {
            true => Ok(()),
            false => Err(Error::of(permission.forbidden(&permission.denied_to(&self.user)))),
        }
    }

    /// A client of the cluster whose requests act as the user, by impersonation. The ServiceAccount of the server needs
    /// the permission `impersonate` on `users`, `groups` and `serviceaccounts`, and on `uids` and `userextras/KEY` of
    /// `authentication.k8s.io`, with an entry for each key. These permissions allow everything, so check first
    /// whether [`server_client`](Self::server_client) is enough. Without a cluster, the client calls the server
    /// itself.
    pub fn client(&self) -> Client {
        self.cluster.client_as(&self.user)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Error;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Error> {
        let caller = head.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Error::internal("the request is no request of a subresource"))
    }
}
