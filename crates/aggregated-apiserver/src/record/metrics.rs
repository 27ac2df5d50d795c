//! Metrics, with the names of kube-apiserver where it has the same metric.
//!
//! The values of labels are names of served resources, or come from short fixed lists. Clients can therefore not create
//! an unlimited number of time series.

mod added;
mod observed;
mod per_resource;
mod process;
mod requests;
mod steps;
mod text;
mod watch_events;

pub use prometheus_client;
pub use prometheus_client::registry::Registry;

pub use observed::{
    CallTimes, CertificateEnds, ConvertedCalls, EndedCalls, KeptKind, Look, Observed, SourceInView,
};
pub(super) use requests::Running;
pub use steps::Admission;
pub use watch_events::WatchEventCounter;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::text as open_metrics;

use super::Record;
use super::audit::Audit;
use super::traces::Traces;
use crate::cluster::Review;
use observed::{AuditLog, Certificates, LookedAt, SentTraces};
use process::Process;
use requests::Requests;
use steps::Steps;
use watch_events::{ReadWaits, WatchEvents};

/// The metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Requests,
    watch_events: WatchEvents,
    read_waits: ReadWaits,
    steps: Steps,
    certificates: Certificates,
    audit: AuditLog,
    traces: SentTraces,
    /// The metrics of the program.
    added: OnceLock<Registry>,
}

impl Metrics {
    /// Creates metrics without observations. `look` returns the state of the server whenever metrics are read.
    pub fn new(look: Look) -> Self {
        let mut registry = Registry::default();
        let steps = Steps::new(&mut registry);
        registry.register_collector(Box::new(Process::new()));
        let (requests, watch_events) = (Requests::default(), WatchEvents::default());
        let certificates = Certificates::default();
        let of_server = registry.sub_registry_with_prefix("apiserver");
        of_server.register_collector(Box::new(requests.clone()));
        of_server.register_collector(Box::new(watch_events.clone()));
        let read_waits = ReadWaits::default();
        of_server.register_collector(Box::new(read_waits.clone()));
        let audit = AuditLog::default();
        let traces = SentTraces::default();
        let looked_at = LookedAt {
            look,
            certificates: certificates.clone(),
            audit: audit.clone(),
            traces: traces.clone(),
        };
        of_server.register_collector(Box::new(looked_at));
        let added = OnceLock::new();
        Self {
            registry,
            requests,
            watch_events,
            read_waits,
            steps,
            certificates,
            audit,
            traces,
            added,
        }
    }

    /// All metrics in version 0.0.4 of the text format of Prometheus, same as kube-apiserver.
    pub fn text(&self) -> String {
        let mut all = String::new();
        // Encoding strings and numbers cannot fail.
        let _ = open_metrics::encode(&mut all, &self.registry);
        let mut all = text::as_0_0_4(&all);
        if let Some(added) = self.added.get() {
            added::append(&mut all, added);
        }
        all
    }

    /// Adds metrics of the program. Only the first call has an effect.
    pub fn set_added(&self, registry: Registry) {
        let _ = self.added.set(registry);
    }

    /// Sets the source of the expiry times of certificates. Only the first call has an effect.
    pub fn set_certificate_ends(&self, ends: CertificateEnds) {
        let _ = self.certificates.0.set(ends);
    }

    /// Sets the audit log whose events are counted. Only the first call has an effect.
    pub fn set_audit(&self, audit: Arc<Audit>) {
        let _ = self.audit.0.set(audit);
    }

    /// Sets the traces whose spans are counted. Only the first call has an effect.
    pub fn set_traces(&self, traces: Arc<Traces>) {
        let _ = self.traces.0.set(traces);
    }

    /// The counter for the events of watches on a resource.
    pub fn watch_events(&self, group: &str, version: &str, resource: &str) -> WatchEventCounter {
        self.watch_events.of([group, version, resource])
    }

    /// Records a review.
    pub fn reviewed(&self, review: &Review) {
        self.steps.reviewed(review);
    }

    /// Records the admission of a write.
    pub fn admitted(&self, admission: Admission<'_>) {
        self.steps.admitted(admission);
    }

    /// Records an authentication with its result: `success`, `failure` without credentials, or `error`.
    pub(super) fn authenticated(&self, result: &'static str, took: Duration) {
        self.steps.authenticated(result, took);
    }

    /// Records an authorization with its result: `allowed`, `no-opinion` or `error`.
    pub(super) fn authorized(&self, result: &'static str, took: Duration) {
        self.steps.authorized(result, took);
    }

    /// Records the time that a read of a group and resource has waited for newer data.
    pub fn waited(&self, group: &str, resource: &str, took: Duration) {
        self.read_waits.observe([group, resource], took.as_secs_f64());
    }

    /// Records a request that was rejected because of a limit.
    pub(super) fn rejected(&self, bound: &'static str) {
        self.steps.rejected(bound);
    }

    /// Counts a write that ended after its response.
    pub(super) fn ended_after_answer(&self, status: &'static str, source: &'static str) {
        self.steps.ended_after_answer(status, source);
    }

    /// Records the start of a request. Returns a guard if the request is a watch.
    pub(super) fn long_running(&self, record: &Record) -> Option<Running> {
        self.requests.long_running(record)
    }

    /// Records a completed request.
    pub(super) fn observe(&self, record: &Record) {
        self.requests.observe(record);
    }
}
