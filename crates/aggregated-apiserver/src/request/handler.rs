//! The shared state of all requests, and its construction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

use super::answers::Answers;
use super::authenticate::Authentication;
use super::bounds::Bounds;
use super::deadline::REQUEST_TIMEOUT;
use super::detached::DetachedWrites;
use super::documents::Documents;
use super::encode::SharedForms;
use super::served::{Served, observed};
use super::throttle::Throttle;
use super::update_follower::UpdateFollower;
use crate::admission::{AdmissionChain, AdmissionTime};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::codec::YamlParsers;
use crate::conversion::ConversionWebhooks;
use crate::document;
use crate::openapi::ChangeDocument;
use crate::quota::Quota;
use crate::record::{Admission, Audit, CertificateEnds, Metrics, Registry, Traces};
use crate::served_kind::ServedKinds;
use crate::watch_cache::SourceState;
use crate::write::{CommitLimit, ManagedFields, SlowWrites, UnsettledWrites};

/// The shared state of all requests.
pub struct Handler {
    pub(super) served: Arc<ArcSwap<Served>>,
    pub(super) authentication: Authentication,
    /// Shared with open watches and with handlers of users, because a client for a cluster is large.
    pub(super) cluster: Arc<Cluster>,
    /// The admission plugins.
    pub(super) admission: AdmissionChain,
    pub(super) clock: Clock,
    pub(super) throttle: Throttle,
    /// The memory of responses until they have been sent.
    pub(super) answers: Answers,
    /// Encoded watch events that watches share.
    pub(super) forms: SharedForms,
    /// The memory limit for the bodies of writes and for the objects parsed from them.
    pub(super) quota: Quota,
    pub(super) yaml: YamlParsers,
    pub(super) metrics: Arc<Metrics>,
    pub(super) audit: Option<Arc<Audit>>,
    pub(super) traces: Option<Arc<Traces>>,
    pub(super) documents: Documents,
    pub(super) openapi_turn: Arc<Mutex<()>>,
    /// The change of the OpenAPI documents that the program makes.
    change_openapi: Option<ChangeDocument>,
    /// The queue of slow writes.
    pub(super) turns: SlowWrites,
    /// Limits the commits of `system:masters`, whose requests in flight are not limited.
    pub(super) commits_of_masters: CommitLimit,
    /// The limit of commits that are not settled.
    pub(super) unsettled: UnsettledWrites,
    /// Writes that continue after their requests have ended.
    pub(super) detached: DetachedWrites,
    /// Connections that handlers of users have taken over.
    pub(super) connections: TaskTracker,
    /// Whether objects have `metadata.managedFields`.
    pub(super) managed_fields: ManagedFields,
    /// The longest duration of a request that is not a watch.
    pub(super) request_timeout: Duration,
    /// Callbacks that must finish before an update is answered.
    pub(super) update_follower: UpdateFollower,
}

impl Handler {
    /// Creates a handler that serves these kinds.
    pub fn new(
        kinds: ServedKinds,
        authentication: Authentication,
        cluster: Cluster,
        mut admission: AdmissionChain,
        clock: Clock,
        bounds: &Bounds,
        webhooks: Arc<ConversionWebhooks>,
    ) -> Self {
        let throttle = Throttle::new(bounds.throttle);
        let served = Arc::new(ArcSwap::from_pointee(Served::new(kinds, None, None)));
        let look = {
            let (served, inflight) = (Arc::clone(&served), throttle.inflight());
            Arc::new(move || observed(&served.load(), &webhooks, inflight()))
        };
        let metrics = Arc::new(Metrics::new(look));
        let observer = Arc::clone(&metrics);
        cluster.observe_reviews(Arc::new(move |review| observer.reviewed(review)));
        let observer = Arc::clone(&metrics);
        admission.set_observer(Arc::new(move |time| {
            let AdmissionTime { plugin, operation, validates, rejected, took } = *time;
            let operation = operation.name();
            observer.admitted(Admission { plugin, operation, validates, rejected, took });
        }));
        Self {
            metrics,
            audit: None,
            traces: None,
            served,
            authentication,
            cluster: Arc::new(cluster),
            admission,
            clock,
            throttle,
            answers: Answers::new(bounds.answers),
            forms: SharedForms::new(bounds.forms),
            quota: Quota::of_trees(bounds.trees),
            yaml: YamlParsers::new(bounds.yaml_parsers),
            documents: Documents {
                version: document::Document::json(&serde_json::Value::Null),
                others: HashMap::new(),
            },
            openapi_turn: Arc::default(),
            change_openapi: None,
            turns: SlowWrites::default(),
            commits_of_masters: CommitLimit::new(bounds.commits),
            unsettled: UnsettledWrites::default(),
            detached: DetachedWrites::default(),
            connections: TaskTracker::new(),
            managed_fields: ManagedFields::default(),
            request_timeout: REQUEST_TIMEOUT,
            update_follower: UpdateFollower::default(),
        }
    }

    /// Sets the longest duration of requests that are not watches.
    #[must_use]
    pub fn with_request_timeout(self, request_timeout: Duration) -> Self {
        Self { request_timeout, ..self }
    }

    /// Sets whether objects have `metadata.managedFields`.
    #[must_use]
    pub fn with_managed_fields(self, managed_fields: ManagedFields) -> Self {
        Self { managed_fields, ..self }
    }

    /// Sets the audit log, if there is one.
    #[must_use]
    pub fn with_audit(self, audit: Option<Arc<Audit>>) -> Self {
        if let Some(audit) = &audit {
            self.metrics.set_audit(Arc::clone(audit));
        }
        Self { audit, ..self }
    }

    /// Sets the exporter of traces, if there is one.
    #[must_use]
    pub fn with_traces(self, traces: Option<Arc<Traces>>) -> Self {
        if let Some(traces) = &traces {
            self.metrics.set_traces(Arc::clone(traces));
        }
        Self { traces, ..self }
    }

    /// Waits until the connections that handlers have taken over are closed. The server has told them to end, and closes
    /// them after a grace period.
    pub async fn close_connections(&self) {
        self.connections.close();
        self.connections.wait().await;
    }

    /// Waits until writes whose requests have ended are committed, the audit log is written, and the spans are sent; at
    /// most for this time.
    pub async fn flush(&self, longest: Duration) {
        let began = Instant::now();
        // One fifth of the time is reserved for the audit events and the spans of the last writes.
        let _ = tokio::time::timeout(longest * 4 / 5, self.detached.ended()).await;
        let longest = longest.saturating_sub(began.elapsed());
        let traces = async {
            if let Some(traces) = &self.traces {
                traces.flush(longest).await;
            }
        };
        let audit = async {
            if let Some(audit) = self.audit.clone() {
                // The flush blocks. The task fails only if the process does.
                let _ = tokio::task::spawn_blocking(move || audit.flush(longest)).await;
            }
        };
        tokio::join!(traces, audit);
    }

    /// Whether objects have `metadata.managedFields`.
    pub fn managed_fields(&self) -> ManagedFields {
        self.managed_fields
    }

    /// Sets the documents.
    #[must_use]
    pub fn with_documents(self, documents: Documents) -> Self {
        Self { documents, ..self }
    }

    /// Sets the change of the OpenAPI documents, and adds metrics of the program.
    #[must_use]
    pub fn with_additions(self, openapi: Option<ChangeDocument>, metrics: Registry) -> Self {
        self.metrics.set_added(metrics);
        let handler = Self { change_openapi: openapi, ..self };
        if handler.change_openapi.is_some() {
            handler.serve(handler.kinds());
        }
        handler
    }

    /// Adds the expiry times of certificates to the metrics.
    pub fn set_certificate_ends(&self, ends: CertificateEnds) {
        self.metrics.set_certificate_ends(ends);
    }

    /// Registers a callback for the updates of a kind, given by its qualified name (`foos.example.com`). The callback
    /// receives the name of the updated object, and the update is answered when the callback has finished.
    pub fn follow_updates(
        &self,
        qualified: &str,
        follow: impl Fn(&str) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        self.update_follower.set(qualified, Box::new(follow));
    }

    /// The queue of slow writes.
    pub fn turns(&self) -> &SlowWrites {
        &self.turns
    }

    /// The kinds that are currently served.
    pub fn kinds(&self) -> ServedKinds {
        self.served.load().kinds.clone()
    }

    /// The state of the sources of computed kinds and of admission plugins, one entry per source. If only a part of a
    /// source is synced, the entry has the worst state.
    pub fn sources(&self) -> Vec<SourceState> {
        let of_kinds = self.served.load().sources();
        SourceState::each_once(of_kinds.into_iter().chain(self.admission.sources()))
    }

    /// Replaces the kinds that are served.
    pub fn serve(&self, kinds: ServedKinds) {
        let (change, former) = (self.change_openapi.clone(), self.served.load().known_discovery());
        self.served.store(Arc::new(Served::new(kinds, change, Some(&former))));
    }

    /// The responses that have not been sent yet.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }
}

/// A handler that many connections share.
pub type SharedHandler = Arc<Handler>;
