//! ResourceQuota: rejects creates beyond the limits that the ResourceQuotas of the namespace set.
//!
//! kube-apiserver is not called for kinds that another server serves, and the controller that counts their objects
//! rejects nothing. The limits are those of `spec.hard`. The usage is counted here, so a new limit applies at once, and
//! needs no controller.

mod limits;
mod usages;

pub use limits::QuotaLimits;
pub use usages::{QuotaUsages, Reservation};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest};
use crate::kind::QuotaUsage;
use crate::object::{Tree, metadata};
use usages::Amounts;

/// The admission plugin ResourceQuota of Kubernetes.
pub struct ResourceQuota {
    limits: QuotaLimits,
    usages: QuotaUsages,
}

impl ResourceQuota {
    /// Creates the plugin.
    pub fn new(limits: QuotaLimits, usages: QuotaUsages) -> Self {
        Self { limits, usages }
    }

    async fn check(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Tree,
    ) -> Result<(), AdmissionError> {
        let Some(namespace) = request.namespace else { return Ok(()) };
        let limits = self.limits.of(namespace).await;
        if limits.is_empty() {
            return Ok(());
        }
        let requested = requested(request, object);
        if let Some(session) = request.served().direct_session() {
            if !usages::is_limited(&requested, &limits) {
                return Ok(());
            }
            let kind = &request.served().kind;
            let name = metadata::name(object);
            let counted = session.count(namespace, name, request.dry_run).await;
            let counted = counted.map_err(|error| {
                let why = format!("the objects of {} cannot be counted", kind.qualified());
                AdmissionError::unavailable(error.message_after(&why))
            })?;
            let used = Amounts::counted(&kind.collection(), counted);
            return usages::check_all(&limits, &used, &requested)
                .map_err(AdmissionError::forbidden);
        }
        let uid = metadata::text(object, "uid");
        let uid = (!request.dry_run).then_some(uid);
        let reserved = self.usages.reserve(namespace, uid, requested, &limits);
        if let Some(reservation) = reserved.map_err(AdmissionError::forbidden)? {
            request.hold(reservation);
        }
        Ok(())
    }
}

impl AdmissionPlugin for ResourceQuota {
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        let served = request.served();
        let usage = served.kind.strategy.quota_usage;
        let is_charged = match request.operation {
            AdmissionOperation::Create => !matches!(usage, QuotaUsage::Exempt),
            AdmissionOperation::Update => matches!(usage, QuotaUsage::Computed(_)),
            AdmissionOperation::Delete | AdmissionOperation::Connect => false,
        };
        is_charged && request.subresource.is_empty() && served.store().is_some()
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        async move {
            match object {
                Some(object) => self.check(request, object).await,
                None => Ok(()),
            }
        }
        .boxed()
    }
}

/// The usage that a write adds to that of the stored object.
fn requested(request: &AdmissionRequest<'_>, object: &Tree) -> Amounts {
    let kind = &request.served().kind;
    let of = |tree: &Tree| {
        let json = match kind.strategy.quota_usage {
            QuotaUsage::Computed(_) => serde_json::to_vec(tree).unwrap_or_default(),
            _ => Vec::new(),
        };
        Amounts::of(&kind.collection(), kind.strategy.quota_usage, &json)
    };
    let after = of(object);
    match request.old_object() {
        Some(old) => after.beyond(&of(old)),
        None => after,
    }
}
