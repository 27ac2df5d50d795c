//! Reads and writes the status of single ResourceQuotas.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Client;
use kube::api::{Api, PostParams};
use thiserror::Error;

use super::Cluster;

/// A client for the status of ResourceQuotas.
#[derive(Clone)]
pub struct QuotaStatusClient(Client);

/// The reason for which the status of a quota cannot be read or written.
#[derive(Clone, Debug, Error)]
pub enum QuotaStatusError {
    /// The server has refused the request.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The reason, in one word.
        reason: String,
        /// The message for clients.
        message: String,
    },
    /// The request has no response.
    #[error("{0}")]
    Failed(String),
}

impl QuotaStatusError {
    /// Whether the quota was changed after it was read.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// Whether the quota does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }
}

impl From<kube::Error> for QuotaStatusError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let (reason, message) = (status.reason.clone(), status.message.clone());
                Self::Refused { code: status.code, reason, message }
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

impl Cluster {
    /// Returns a client for the status of ResourceQuotas.
    pub fn quota_status_client(&self) -> QuotaStatusClient {
        QuotaStatusClient(self.client.clone())
    }
}

impl QuotaStatusClient {
    /// Replaces the status of a quota, unless another write has changed the quota. Returns the stored quota.
    ///
    /// # Errors
    /// 409 if the quota has changed, 404 if it was deleted, and the other errors of the request.
    pub async fn replace(
        &self,
        quota: &ResourceQuota,
        manager: &str,
    ) -> Result<ResourceQuota, QuotaStatusError> {
        let metadata = &quota.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let field_manager = Some(manager.to_owned());
        let written = PostParams { field_manager, ..PostParams::default() };
        let api = self.api(metadata.namespace.as_deref());
        Ok(api.replace_status(name, &written, quota).await?)
    }

    /// Reads a quota; `None` if it was deleted.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn read(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ResourceQuota>, QuotaStatusError> {
        Ok(self.api(Some(namespace)).get_opt(name).await?)
    }

    fn api(&self, namespace: Option<&str>) -> Api<ResourceQuota> {
        Api::namespaced(self.0.clone(), namespace.unwrap_or_default())
    }
}
