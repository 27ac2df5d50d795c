//! Metrics that are computed when they are read: objects and caches, concurrent requests, sources of computed kinds,
//! and the expiry of certificates.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::super::audit::{Audit, AuditCounts};
use super::super::traces::Traces;

/// The state of a server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The number of concurrent mutating requests, and of concurrent read requests.
    pub inflight: (usize, usize),
    /// The sources of computed kinds.
    pub sources: Vec<SourceInView>,
    /// The kinds with a watch cache.
    pub kinds: Vec<KeptKind>,
    /// The size of the objects in the store and its limit, in bytes, if the store reports them.
    pub store: Option<(usize, usize)>,
    /// The number of revisions that the store has and the caches have not received yet.
    pub behind: u64,
    /// The calls of conversion webhooks, by result.
    pub conversions: Vec<EndedCalls>,
    /// The calls of conversion webhooks, by definition and versions.
    pub converted: Vec<ConvertedCalls>,
}

/// The calls of conversion webhooks with the same result.
#[derive(Clone, Debug)]
pub struct EndedCalls {
    /// `success` or `failure`.
    pub result: &'static str,
    /// The type of the failure, if the calls failed.
    pub failure_type: &'static str,
    /// The durations of the calls.
    pub times: CallTimes,
}

/// The calls of conversion webhooks for the same definition and the same versions.
#[derive(Clone, Debug)]
pub struct ConvertedCalls {
    /// The definition, such as `foos.example.com`.
    pub definition: String,
    /// The version of the objects in the request.
    pub from: String,
    /// The desired version of the objects.
    pub to: String,
    /// Whether all objects were converted.
    pub succeeded: bool,
    /// The durations of the calls.
    pub times: CallTimes,
}

/// The durations of calls.
#[derive(Clone, Debug)]
pub struct CallTimes {
    /// The buckets of a histogram: an upper limit in seconds, and the number of calls up to it that are in no earlier
    /// bucket.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all durations, in seconds.
    pub seconds: f64,
}

impl CallTimes {
    fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// A source of computed kinds.
#[derive(Clone, Debug)]
pub struct SourceInView {
    /// The resource, such as `replicasets.apps`.
    pub resource: String,
    /// Whether the source is synced.
    pub is_in_view: bool,
    /// The time for which the cluster has not served the source.
    pub age: Duration,
}

/// A kind with a watch cache.
#[derive(Clone, Debug)]
pub struct KeptKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// Whether the cache is synced.
    pub is_synced: bool,
    /// The number of objects.
    pub objects: usize,
    /// The size of the objects, in bytes.
    pub bytes: usize,
    /// The newest revision.
    pub revision: u64,
    /// The number of changes in the window of the cache.
    pub window: usize,
    /// The size of these changes, in bytes.
    pub window_bytes: usize,
    /// The age of the oldest of these changes.
    pub window_age: Duration,
}

impl KeptKind {
    /// Whether the kind has objects, or recently had some.
    fn is_used(&self) -> bool {
        self.objects > 0 || self.window > 0
    }
}

/// Returns the state of a server.
pub type Look = Arc<dyn Fn() -> Observed + Send + Sync>;

/// Returns the expiry of each certificate: the purpose of the certificate, and the time in seconds since 1970.
pub type CertificateEnds = Arc<dyn Fn() -> Vec<(&'static str, i64)> + Send + Sync>;

/// The collector of the metrics that are computed when they are read.
pub(super) struct LookedAt {
    pub(super) look: Look,
    pub(super) certificates: Certificates,
    pub(super) audit: AuditLog,
    pub(super) traces: SentTraces,
}

/// The audit log, if it is enabled.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditLog(pub(super) Arc<OnceLock<Arc<Audit>>>);

/// The exporter of spans, if traces are enabled.
#[derive(Clone, Debug, Default)]
pub(super) struct SentTraces(pub(super) Arc<OnceLock<Arc<Traces>>>);

/// The expiry of certificates, once it is set.
#[derive(Clone, Default)]
pub(super) struct Certificates(pub(super) Arc<OnceLock<CertificateEnds>>);

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}

impl fmt::Debug for LookedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LookedAt")
    }
}

/// An encoder for gauges and other metrics with labels.
struct Gauges<'a>(DescriptorEncoder<'a>);

impl Gauges<'_> {
    fn write<'b, const N: usize>(
        &mut self,
        (name, help): (&str, &str),
        gauges: impl Iterator<Item = ([(&'static str, &'b str); N], f64)>,
    ) -> Result<(), fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in gauges {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counter<'b>(
        &'b mut self,
        name: &'b str,
        help: &str,
    ) -> Result<MetricEncoder<'b>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Counter)
    }

    fn audit(&mut self, counts: &AuditCounts) -> Result<(), fmt::Error> {
        let help = "Audit events that were made";
        ConstCounter::new(counts.events).encode(self.counter("audit_event", help)?)?;
        let help = "Requests, by the level that the audit policy has for them";
        let mut family = self.counter("audit_level", help)?;
        for (level, count) in counts.levels {
            ConstCounter::new(count).encode(family.encode_family(&[("level", level)])?)?;
        }
        let help = "Audit events that were dropped (buffered), or could not be written (log)";
        let mut family = self.counter("audit_error", help)?;
        for (plugin, count) in [("buffered", counts.dropped), ("log", counts.failed)] {
            ConstCounter::new(count).encode(family.encode_family(&[("plugin", plugin)])?)?;
        }
        Ok(())
    }

    fn conversions(&mut self, all: &[EndedCalls]) -> Result<(), fmt::Error> {
        let labels =
            |calls: &EndedCalls| [("result", calls.result), ("failure_type", calls.failure_type)];
        let help = "Calls of conversion webhooks, by how they ended";
        let mut family = self.counter("conversion_webhook_request", help)?;
        for calls in all {
            let counter = ConstCounter::new(calls.times.count());
            counter.encode(family.encode_family(&labels(calls))?)?;
        }
        let name = ("conversion_webhook_duration_seconds", "Time that these calls took");
        self.times(name, all.iter().map(|calls| (labels(calls), &calls.times)))
    }

    fn converted(&mut self, all: &[ConvertedCalls]) -> Result<(), fmt::Error> {
        let help = "Time that calls of conversion webhooks took, by definition and versions";
        let of_calls = |calls: &'_ ConvertedCalls| {
            let succeeded = if calls.succeeded { "true" } else { "false" };
            [
                ("crd_name", calls.definition.clone()),
                ("from_version", calls.from.clone()),
                ("to_version", calls.to.clone()),
                ("succeeded", succeeded.to_owned()),
            ]
        };
        let all = all.iter().map(|calls| (of_calls(calls), &calls.times));
        self.times(("crd_conversion_webhook_duration_seconds", help), all)
    }

    fn times<'a, L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        all: impl Iterator<Item = (L, &'a CallTimes)>,
    ) -> Result<(), fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, times) in all {
            let mut of_labels = family.encode_family(&labels)?;
            of_labels.encode_histogram::<NoLabelSet>(
                times.seconds,
                times.count(),
                &times.buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn write_one(&mut self, (name, help): (&str, &str), value: f64) -> Result<(), fmt::Error> {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }
}

#[allow(clippy::cast_precision_loss)] // all numbers of Prometheus are floats
impl Collector for LookedAt {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Observed { inflight, sources, kinds, store, behind, conversions, converted } =
            (self.look)();
        let mut gauges = Gauges(encoder);
        if !conversions.is_empty() {
            gauges.conversions(&conversions)?;
            gauges.converted(&converted)?;
        }
        let help = "Requests in flight that count against a limit";
        let counts = [("mutating", inflight.0), ("readOnly", inflight.1)];
        let counts = counts.map(|(kind, count)| ([("request_kind", kind)], count as f64));
        gauges.write(("current_inflight_requests", help), counts.into_iter())?;
        let of_sources = |value: fn(&SourceInView) -> f64| {
            sources
                .iter()
                .map(move |source| ([("source", source.resource.as_str())], value(source)))
        };
        let help = "Whether what kinds are computed from is in view (1), or is not (0)";
        let in_view = |source: &SourceInView| f64::from(u8::from(source.is_in_view));
        gauges.write(("computed_source_in_view", help), of_sources(in_view))?;
        let help = "How old the view of it is, while the cluster does not show it";
        let age = |source: &SourceInView| source.age.as_secs_f64();
        gauges.write(("computed_source_age_seconds", help), of_sources(age))?;
        for (name, help, value) in OF_KINDS {
            // An unused kind has only two time series, because there can be thousands of kinds.
            let is_said = |kind: &&KeptKind| kind.is_used() || OF_ALL_KINDS.contains(&name);
            let values = kinds.iter().filter(is_said).map(|kind| {
                let labels = [("group", kind.group.as_str()), ("resource", kind.resource.as_str())];
                (labels, value(kind))
            });
            gauges.write((name, help), values)?;
        }
        if let Some((bytes, limit)) = store {
            let help = "Bytes of objects in the store, as they count against its limit";
            let size = ([("storage_cluster_id", "store")], bytes as f64);
            gauges.write(("storage_size_bytes", help), [size].into_iter())?;
            let help = "Bytes of objects that the store takes";
            gauges.write_one(("storage_limit_bytes", help), limit as f64)?;
            let help = "Revisions that the store has come to, and that are not seen here yet";
            gauges.write_one(("storage_feed_lag_revisions", help), behind as f64)?;
        }
        if let Some(audit) = self.audit.0.get() {
            gauges.audit(&audit.counts())?;
        }
        if let Some(traces) = self.traces.0.get() {
            let help = "Spans of requests, by what became of them: exported, dropped because too many waited, or failed because the collector did not take them";
            let mut family = gauges.counter("tracing_spans", help)?;
            for (result, count) in traces.counts() {
                ConstCounter::new(count).encode(family.encode_family(&[("result", result)])?)?;
            }
        }
        let ends = self.certificates.0.get().map(|ends| ends()).unwrap_or_default();
        let help = "When a certificate of the server ends: seconds since 1970";
        let ends = ends.iter().map(|(what, end)| ([("certificate", *what)], *end as f64));
        gauges.write(("certificate_expiration_timestamp_seconds", help), ends)
    }
}

/// The metrics that unused kinds have too.
const OF_ALL_KINDS: [&str; 2] = ["resource_objects", "watch_cache_synced"];

/// A metric of a kind: its name, its help text and its value.
type OfKind = (&'static str, &'static str, fn(&KeptKind) -> f64);

#[allow(clippy::cast_precision_loss)] // all numbers of Prometheus are floats
const OF_KINDS: [OfKind; 7] = [
    ("resource_objects", "Objects of a kind", |kind| kind.objects as f64),
    ("resource_size_estimate_bytes", "Bytes of all objects of a kind", |kind| kind.bytes as f64),
    ("watch_cache_resource_version", "The newest revision of a kind", |kind| kind.revision as f64),
    ("watch_cache_synced", "Whether all objects of a kind are known (1), or not (0)", |kind| {
        f64::from(u8::from(kind.is_synced))
    }),
    (
        "watch_cache_window_events",
        "Changes of the recent past, which watches can go on from",
        |kind| kind.window as f64,
    ),
    ("watch_cache_window_bytes", "Bytes of these changes", |kind| kind.window_bytes as f64),
    ("watch_cache_window_age_seconds", "How old the oldest of these changes is", |kind| {
        kind.window_age.as_secs_f64()
    }),
];
