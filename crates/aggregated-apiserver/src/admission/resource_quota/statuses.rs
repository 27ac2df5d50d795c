//! Writes the status of the ResourceQuotas that this server stores: the usage of writes that admission charges, same as
//! kube-apiserver, and the status that kube-controller-manager computes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use thiserror::Error;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{sleep, timeout};

use super::amounts::Amounts;
use super::limits::{Limit, QuotaLimits};
use super::outdated::{Extent, Outdated};
use super::progress::{Progress, WrittenUsage};
use super::usages::{OfNamespace, QuotaUsages, Reservation, check};
use crate::admission::AdmissionError;
use crate::cluster::{QuotaStatusClient, QuotaStatusError};
use crate::schema::Quantity;

/// The field manager of charges; same as in kube-apiserver.
const ADMISSION: &str = "kube-apiserver";
/// The field manager of computed statuses; that of kube-controller-manager.
const CONTROLLER: &str = "kube-controller-manager";
/// The longest time of a charge, same as in kube-apiserver, and of the update of one status.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of times that a write is repeated after a conflict, same as in kube-apiserver, and the pause before the
/// first repetition. The pause doubles.
const RETRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(10);

/// The status of the ResourceQuotas that a server stores. Clones share everything.
#[derive(Clone)]
pub struct QuotaStatuses(Arc<Shared>);

struct Shared {
    client: QuotaStatusClient,
    limits: QuotaLimits,
    usages: QuotaUsages,
    outdated: Arc<Outdated>,
}

/// The lock of the writes to the quotas of a namespace. The quotas of a namespace are written one at a time, so that a
/// server has no conflicts with itself.
struct NamespaceLock {
    usages: QuotaUsages,
    namespace: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for NamespaceLock {
    fn drop(&mut self) {
        drop(self.guard.take());
        // Removes the entry of a namespace that has no usage.
        self.usages.with(&self.namespace, |_| ());
    }
}

/// A write whose response has not arrived. If this is dropped, the outcome of the write is not known.
struct Attempt<'a> {
    statuses: &'a QuotaStatuses,
    namespace: &'a str,
    name: &'a str,
    is_charge: bool,
    has_outcome: bool,
}

impl Attempt<'_> {
    /// Ends the attempt, with the quota that the response contains; `None` if the write was refused.
    fn end(mut self, quota: Option<ResourceQuota>) {
        self.has_outcome = true;
        match quota {
            Some(quota) => self.statuses.received(self.namespace, quota, Progress::stored),
            None => self.abandon(),
        }
    }

    fn abandon(&self) {
        self.statuses.0.usages.with(self.namespace, |of_namespace| {
            if let Some(progress) = of_namespace.progress.get_mut(self.name) {
                progress.abandon();
            }
        });
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.has_outcome {
            return;
        }
        self.abandon();
        // A failed update is repeated by its caller.
        if self.is_charge {
            self.statuses.mark(self.namespace);
        }
    }
}

/// The reason for a write.
#[derive(Clone, Copy)]
enum Purpose<'a> {
    /// Charges the write of an object before it is stored.
    Charge(&'a Reservation, &'a Amounts),
    /// Updates the status to the usage of the stored objects.
    Update(Extent),
}

/// The next step for the status of a quota.
enum Step {
    /// The status is up to date.
    Done,
    /// The charges of other processes leave too little of the limit for this write.
    Exceeded(String),
    /// The status must be replaced.
    Replace(Box<ResourceQuota>),
}

impl QuotaStatuses {
    /// The statuses of the quotas that this client reads and writes, and the usage that they contain.
    pub(crate) fn new(client: QuotaStatusClient) -> Self {
        let outdated = Arc::new(Outdated::default());
        let limits = QuotaLimits::marking(&outdated);
        let usages = QuotaUsages::with_statuses(limits.clone(), Arc::clone(&outdated));
        Self(Arc::new(Shared { client, limits, usages, outdated }))
    }

    /// The limits of the quotas.
    pub(crate) fn limits(&self) -> QuotaLimits {
        self.0.limits.clone()
    }

    /// The usage that the statuses contain.
    pub(crate) fn usages(&self) -> QuotaUsages {
        self.0.usages.clone()
    }

    /// Writes the usage of a reservation to the status of the quotas that it is charged to.
    ///
    /// # Errors
    /// 403 if the charges of other processes leave too little of the limit, 409 if the quota was changed before each of
    /// four writes, and 500 if the status is not written within ten seconds.
    pub(super) async fn charge(&self, reservation: &Reservation) -> Result<(), AdmissionError> {
        let charging = async {
            let _lock = self.lock_namespace(&reservation.namespace).await;
            for (name, added) in &reservation.charged {
                let purpose = Purpose::Charge(reservation, added);
                self.write(&reservation.namespace, name, purpose).await?;
            }
            Ok(())
        };
        let charged = timeout(TIMEOUT, charging).await;
        charged.unwrap_or_else(|_| {
            Err(AdmissionError::internal("resource quota evaluation timed out"))
        })
    }

    /// Waits until the quotas of a namespace may have an outdated status, and writes their status. Returns the namespace.
    ///
    /// # Errors
    /// The namespace, and the reason for which a status is not written. [`mark`](Self::mark) queues the namespace again.
    pub async fn write_next(&self) -> Result<String, (String, String)> {
        let next = self.0.outdated.take().await;
        let lock = self.lock_namespace(&next.namespace).await;
        let names = self.0.limits.names(&next.namespace);
        self.0.usages.with(&next.namespace, |of_namespace| {
            of_namespace.progress.retain(|name, _| names.contains(name));
        });
        let mut failed = None;
        for name in names {
            let writing = self.write(&next.namespace, &name, Purpose::Update(next.extent));
            let written = timeout(TIMEOUT, writing).await.unwrap_or_else(|_| {
                let why = format!("the status of {name} was not written within {TIMEOUT:?}");
                Err(QuotaStatusError::Failed(why).into())
            });
            failed = failed.or(written.err());
        }
        drop(lock);
        let namespace = next.namespace.clone();
        next.done();
        match failed {
            None => Ok(namespace),
            Some(error) => Err((namespace, error.to_string())),
        }
    }

    /// Marks the status of the quotas of a namespace as outdated.
    pub fn mark(&self, namespace: &str) {
        self.0.outdated.mark(namespace, Extent::Full);
    }

    /// Marks the status of all quotas as outdated.
    pub fn mark_all(&self) {
        self.0.limits.namespaces().iter().for_each(|namespace| self.mark(namespace));
    }

    /// Waits until no other task writes the quotas of a namespace.
    async fn lock_namespace(&self, namespace: &str) -> NamespaceLock {
        let (usages, namespace) = (self.usages(), namespace.to_owned());
        let writes = usages.with(&namespace, |of_namespace| Arc::clone(&of_namespace.writes));
        let mut lock = NamespaceLock { usages, namespace, guard: None };
        lock.guard = Some(writes.lock_owned().await);
        lock
    }

    /// Writes the status of a quota, unless it is up to date.
    async fn write(
        &self,
        namespace: &str,
        name: &str,
        purpose: Purpose<'_>,
    ) -> Result<(), WriteError> {
        let manager = match purpose {
            Purpose::Charge(..) => ADMISSION,
            Purpose::Update(_) => CONTROLLER,
        };
        let mut retries = 0;
        loop {
            let quota = match self.next_step(namespace, name, purpose) {
                Step::Done => return Ok(()),
                Step::Exceeded(why) => return Err(WriteError::Exceeded(why)),
                Step::Replace(quota) => quota,
            };
            let attempt = Attempt {
                statuses: self,
                namespace,
                name,
                is_charge: matches!(purpose, Purpose::Charge(..)),
                has_outcome: false,
            };
            // Boxed: the future of a write reserves memory for everything that it may await.
            let replaced = Box::pin(self.0.client.replace(&quota, manager)).await;
            let error = match replaced {
                Ok(quota) => {
                    attempt.end(Some(quota));
                    match purpose {
                        // The next step is to charge, if this write has only released the usage of deleted objects.
                        Purpose::Charge(..) => continue,
                        Purpose::Update(_) => return Ok(()),
                    }
                }
                Err(error) => error,
            };
            if is_refusal(&error) {
                attempt.end(None);
            } else {
                drop(attempt);
            }
            if error.is_missing() {
                return Ok(());
            }
            if !error.is_conflict() || retries == RETRIES {
                return Err(error.into());
            }
            sleep(PAUSE * 2_u32.pow(retries)).await;
            retries += 1;
            match Box::pin(self.0.client.read(namespace, name)).await? {
                Some(quota) => self.received(namespace, quota, Progress::received),
                None => return Ok(()),
            }
        }
    }

    /// Computes the status of a quota.
    fn next_step(&self, namespace: &str, name: &str, purpose: Purpose<'_>) -> Step {
        let Some(limit) = self.0.limits.get(namespace, name) else { return Step::Done };
        let covered = self.0.usages.covered(&limit.hard);
        self.0.usages.with(namespace, |of_namespace| {
            let progress = of_namespace.progress.remove(name).filter(|one| one.is_of(&limit));
            let progress = progress.unwrap_or_else(|| Progress::of(&limit));
            of_namespace.progress.insert(name.to_owned(), progress);
            step(of_namespace, &limit, &covered, purpose)
        })
    }

    /// Records the version of a quota that a request has returned.
    fn received(
        &self,
        namespace: &str,
        quota: ResourceQuota,
        record: impl FnOnce(&mut Progress, Limit),
    ) {
        let version = quota.metadata.resource_version.as_deref();
        let revision = version.and_then(|version| version.parse().ok());
        let name = quota.metadata.name.clone().unwrap_or_default();
        let limit = revision.map(|revision| Limit::of(Arc::new(quota), revision));
        self.0.usages.with(namespace, |of_namespace| {
            let Some(progress) = of_namespace.progress.get_mut(&name) else { return };
            match limit.filter(|limit| progress.is_of(limit)) {
                Some(limit) => record(progress, limit),
                // The quota was replaced by another one of the same name.
                None => progress.abandon(),
            }
        });
    }
}

/// Whether a write with this error was certainly not stored.
fn is_refusal(error: &QuotaStatusError) -> bool {
    // 408 is a timeout.
    matches!(error, QuotaStatusError::Refused { code: 400..=407 | 409..=499, .. })
}

/// Computes the status of a quota from the usage of its namespace.
fn step(
    of_namespace: &mut OfNamespace,
    limit: &Limit,
    covered: &[String],
    purpose: Purpose<'_>,
) -> Step {
    let Some(progress) = of_namespace.progress.get(&limit.name) else { return Step::Done };
    let newest = progress.newest(limit);
    let elsewhere = of_namespace.charged_elsewhere(limit);
    let mut written = WrittenUsage {
        used: newest.status_used.clone().unwrap_or_default(),
        charged: of_namespace.reservations,
        elsewhere,
    };
    // Admission does not change the limits in the status.
    let hard = match purpose {
        Purpose::Charge(..) if !newest.status_hard.is_empty() => &newest.status_hard,
        _ => &newest.hard,
    };
    let before = newest.status_used.clone().unwrap_or_default();
    let is_current = |used: &Amounts| before == *used && newest.status_hard == *hard;
    match purpose {
        Purpose::Charge(reservation, _) if progress.charged() >= reservation.number => {
            return Step::Done;
        }
        Purpose::Charge(reservation, added) => {
            if !written.elsewhere.is_empty() {
                written.charged = reservation.number;
            }
            let mut used = of_namespace.total_until(limit, written.charged);
            used.add(&written.elsewhere);
            let mut others = used.clone();
            others.subtract(added);
            if let Err(why) = check(limit, &others, added) {
                return Step::Exceeded(why);
            }
            overlay(&mut written.used, covered, hard, |name, _| used.get(name));
            // If deleted objects have left as much in the status as this charge adds, a write of the same status would
            // conflict with no charge of another process. So the status without this charge is written first.
            if is_current(&written.used) {
                let charged = reservation.number.saturating_sub(1);
                let mut used = of_namespace.total_until(limit, charged);
                used.add(&written.elsewhere);
                let mut released = before.clone();
                overlay(&mut released, covered, hard, |name, _| used.get(name));
                if released != before {
                    (written.used, written.charged) = (released, charged);
                }
            }
        }
        Purpose::Update(Extent::Full) => {
            written.elsewhere = Amounts::default();
            let used = of_namespace.total(limit);
            written.used = written.used.masked(hard);
            overlay(&mut written.used, covered, hard, |name, _| used.get(name));
            if is_current(&written.used) {
                // Part of the status can be the charge of another process instead of a reservation.
                written.charged = progress.charged();
            }
        }
        Purpose::Update(Extent::Increases) => {
            written.charged = progress.charged();
            let used = of_namespace.total_until(limit, written.charged);
            written.used = written.used.masked(hard);
            overlay(&mut written.used, covered, hard, |name, before| {
                let used = used.get(name);
                if before.nanos() > used.nanos() { before } else { used }
            });
        }
    }
    let revision = newest.revision;
    let replacement =
        (!is_current(&written.used)).then(|| with_status(newest, hard, &written.used));
    let Some(progress) = of_namespace.progress.get_mut(&limit.name) else { return Step::Done };
    match replacement {
        Some(quota) => {
            progress.begin(revision, written);
            Step::Replace(Box::new(quota))
        }
        None => {
            progress.confirm(revision, written);
            Step::Done
        }
    }
}

/// Sets the amounts of the resources that objects of served kinds can use.
fn overlay(
    used: &mut Amounts,
    covered: &[String],
    hard: &Amounts,
    of: impl Fn(&str, Quantity) -> Quantity,
) {
    for name in covered.iter().filter(|name| hard.contains(name)) {
        let before = used.get(name);
        let after = of(name, before);
        // A sum has the notation of the first amount.
        let after = match after.nanos() >= before.nanos() {
            true => before.plus(after.less(before)),
            false => before.less(before.less(after)),
        };
        used.set(name, after);
    }
}

/// A quota with another status.
fn with_status(limit: &Limit, hard: &Amounts, used: &Amounts) -> ResourceQuota {
    let mut quota = ResourceQuota::clone(&limit.quota);
    let amounts = |amounts: &Amounts| {
        let amounts = amounts.iter();
        Some(amounts.map(|(name, amount)| (name.to_owned(), Amount(amount.to_string()))).collect())
    };
    quota.metadata.resource_version = Some(limit.revision.to_string());
    quota.status = Some(ResourceQuotaStatus { hard: amounts(hard), used: amounts(used) });
    quota
}

/// The reason for which a status is not written.
#[derive(Debug, Error)]
enum WriteError {
    /// The charges of other processes leave too little of the limit.
    #[error("{0}")]
    Exceeded(String),
    /// The request has failed.
    #[error(transparent)]
    Request(#[from] QuotaStatusError),
}

impl From<WriteError> for AdmissionError {
    /// The error for the client of the charged request.
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Exceeded(why) => Self::forbidden(why),
            WriteError::Request(QuotaStatusError::Refused { code, reason, message }) => {
                Self::status(code, reason, message, None)
            }
            WriteError::Request(QuotaStatusError::Failed(why)) => Self::internal(why),
        }
    }
}
