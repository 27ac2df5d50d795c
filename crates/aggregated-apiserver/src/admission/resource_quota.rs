//! ResourceQuota: rejects creates beyond the limits that the ResourceQuotas of the namespace set.
//!
//! kube-apiserver is not called for kinds that another server serves, and the controller that counts their objects
//! rejects nothing. The limits are those of `spec.hard`. The usage is counted here, so a new limit applies at once, and
//! needs no controller. If this server stores the quotas, admission also writes the usage to their status before the
//! object is stored.

mod amounts;
mod limits;
mod outdated;
mod progress;
mod statuses;
mod usages;

pub use limits::QuotaLimits;
pub use statuses::QuotaStatuses;
pub use usages::{QuotaUsages, Reservation};

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest};
use crate::kind::QuotaUsage;
use crate::object::{Tree, metadata};
use amounts::{Amounts, CoveredResources, Usage};
use limits::Limit;
use usages::Requested;

/// The name of the plugin.
const PLUGIN: &str = "ResourceQuota";

/// The admission plugin ResourceQuota of Kubernetes.
pub struct ResourceQuota {
    limits: QuotaLimits,
    usages: QuotaUsages,
    /// The statuses of the quotas, if this server stores them.
    statuses: Option<QuotaStatuses>,
}

impl ResourceQuota {
    /// Creates the plugin for quotas that another server stores.
    pub fn new(limits: QuotaLimits, usages: QuotaUsages) -> Self {
        Self { limits, usages, statuses: None }
    }

    /// Creates the plugin for quotas that this server stores.
    pub fn of_stored(statuses: QuotaStatuses) -> Self {
        let (limits, usages) = (statuses.limits(), statuses.usages());
        Self { limits, usages, statuses: Some(statuses) }
    }

    async fn check(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Tree,
    ) -> Result<(), AdmissionError> {
        let Some(namespace) = request.namespace else { return Ok(()) };
        let limits = self.limits.of(namespace).await?;
        if limits.is_empty() {
            return Ok(());
        }
        let requested = requested(request, object)?;
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
        check_specified(request, object, (&requested.after, &limits))?;
        let uid = metadata::text(object, "uid");
        let uid = (!request.dry_run).then_some(uid);
        let reserved = self.usages.reserve(namespace, uid, requested, &limits);
        if let Some(reservation) = reserved.map_err(AdmissionError::forbidden)? {
            if let Some(statuses) = &self.statuses {
                Box::pin(statuses.charge(&reservation)).await?;
            }
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
            AdmissionOperation::Update => matches!(usage, QuotaUsage::Evaluated(_)),
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
                Some(object) if is_charged(request, object) => self.check(request, object).await,
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// Whether a create or an update is charged.
fn is_charged(request: &AdmissionRequest<'_>, object: &Tree) -> bool {
    match (request.served().kind.strategy.quota_usage, request.old_object()) {
        (QuotaUsage::Evaluated(evaluator), Some(old)) => evaluator.charges_update(old, object),
        _ => true,
    }
}

/// Rejects an object that does not specify the resources that a quota limits.
fn check_specified(
    request: &AdmissionRequest<'_>,
    object: &Tree,
    (usage, limits): (&Usage, &[Arc<Limit>]),
) -> Result<(), AdmissionError> {
    let kind = &request.served().kind;
    let QuotaUsage::Evaluated(evaluator) = kind.strategy.quota_usage else { return Ok(()) };
    let covered = CoveredResources::of(kind);
    for limit in limits.iter().filter(|limit| limit.applies_to(&usage.scopes)) {
        let limited = covered.among(&limit.hard);
        if let Some(why) = evaluator.missing(object, &limited) {
            let name = &limit.name;
            return Err(AdmissionError::forbidden(format!("failed quota: {name}: {why}")));
        }
    }
    Ok(())
}

/// The usage of the object of a write, and of the stored object.
///
/// # Errors
/// 500 if the usage of the new object cannot be computed.
fn requested(request: &AdmissionRequest<'_>, object: &Tree) -> Result<Requested, AdmissionError> {
    let kind = &request.served().kind;
    let (collection, usage) = (kind.collection(), kind.strategy.quota_usage);
    let json = |tree: &Tree| match usage {
        QuotaUsage::Evaluated(_) => serde_json::to_vec(tree).unwrap_or_default(),
        _ => Vec::new(),
    };
    let after = Usage::of(&collection, usage, &json(object)).map_err(|error| {
        AdmissionError::internal(format!("cannot compute the quota usage of the object: {error}"))
    })?;
    let old = request.old_object();
    let before = old.map(|old| Usage::of_stored(&collection, usage, &json(old)));
    Ok(Requested { after, before })
}
