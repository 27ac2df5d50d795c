//! What is looked at when metrics are read: what is kept, what is in flight, what kinds are
//! computed from, and how long certificates are good.

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

/// What a server looks like at a moment.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Requests in flight that change something, and those that do not.
    pub inflight: (usize, usize),
    /// What kinds are computed from.
    pub sources: Vec<SourceInView>,
    /// The kinds whose objects are here.
    pub kinds: Vec<KeptKind>,
    /// Bytes in the store, and how many it takes, if it says so.
    pub store: Option<(usize, usize)>,
    /// Revisions that the store has come to, and that are not seen here yet.
    pub behind: u64,
    /// Calls of conversion webhooks.
    pub conversions: Vec<EndedCalls>,
    /// The same calls, by what they converted.
    pub converted: Vec<ConvertedCalls>,
}

/// Calls of conversion webhooks that ended in the same way.
#[derive(Clone, Debug)]
pub struct EndedCalls {
    /// `success` or `failure`.
    pub result: &'static str,
    /// Why, if it is a failure.
    pub failure_type: &'static str,
    /// How long they took.
    pub times: CallTimes,
}

/// Calls of conversion webhooks that converted the same.
#[derive(Clone, Debug)]
pub struct ConvertedCalls {
    /// The definition: `foos.example.com`.
    pub definition: String,
    /// The version that was sent.
    pub from: String,
    /// The version that was asked for.
    pub to: String,
    /// Whether all objects were converted.
    pub succeeded: bool,
    /// How long they took.
    pub times: CallTimes,
}

/// How long calls took.
#[derive(Clone, Debug)]
pub struct CallTimes {
    /// How many took no longer than so many seconds, and longer than the bucket before.
    pub buckets: Vec<(f64, u64)>,
    /// Seconds that they took together.
    pub seconds: f64,
}

impl CallTimes {
    fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// Something that kinds are computed from.
#[derive(Clone, Debug)]
pub struct SourceInView {
    /// What it is: `replicasets.apps`.
    pub resource: String,
    /// Whether it is in view.
    pub is_in_view: bool,
    /// How long the cluster has not shown it.
    pub age: Duration,
}

/// A kind whose objects are here.
#[derive(Clone, Debug)]
pub struct KeptKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// Whether all of its objects are known.
    pub is_synced: bool,
    /// How many there are.
    pub objects: usize,
    /// Bytes that they take.
    pub bytes: usize,
    /// The newest revision.
    pub revision: u64,
    /// Changes of the recent past.
    pub window: usize,
    /// Bytes that they take.
    pub window_bytes: usize,
    /// How old the oldest of them is.
    pub window_age: Duration,
}

impl KeptKind {
    /// Whether it has objects, or had some in the recent past.
    fn is_used(&self) -> bool {
        self.objects > 0 || self.window > 0
    }
}

/// Looks at a server.
pub type Look = Arc<dyn Fn() -> Observed + Send + Sync>;

/// Where certificates end: what they are for, and the second since 1970.
pub type CertificateEnds = Arc<dyn Fn() -> Vec<(&'static str, i64)> + Send + Sync>;

/// Looked at when metrics are read.
pub(super) struct LookedAt {
    pub(super) look: Look,
    pub(super) certificates: Certificates,
    pub(super) audit: AuditLog,
    pub(super) traces: SentTraces,
}

/// The audit log, if there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditLog(pub(super) Arc<OnceLock<Arc<Audit>>>);

/// Where the spans of requests go, if they go anywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct SentTraces(pub(super) Arc<OnceLock<Arc<Traces>>>);

/// Where certificates end, once that is said.
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

/// Labels and values of gauges.
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

#[allow(clippy::cast_precision_loss)] // as all numbers of Prometheus
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
            // Of a kind that nobody uses two lines are enough: there may be thousands of them.
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

/// What is said of kinds that nobody uses, too.
const OF_ALL_KINDS: [&str; 2] = ["resource_objects", "watch_cache_synced"];

/// What is said of a kind: a name, words, and the value.
type OfKind = (&'static str, &'static str, fn(&KeptKind) -> f64);

#[allow(clippy::cast_precision_loss)] // as all numbers of Prometheus
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
