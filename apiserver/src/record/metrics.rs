//! Metrics of requests, called as those of kube-apiserver are.
//!
//! What stands in a label is one of what this server serves, or of a few words: clients
//! cannot make new time series.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Record;
use crate::cluster::Attributes;

/// The component that kube-apiserver calls itself in its metrics; dashboards ask for it.
const COMPONENT: &str = "apiserver";
/// Seconds, as kube-apiserver.
const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Bytes, as kube-apiserver.
const BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// What a request was for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Target {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    component: &'static str,
}

/// What a request was for, and whether it was meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    dry_run: &'static str,
    #[prometheus(flatten)]
    target: Target,
}

/// What a request was for, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    code: u16,
    #[prometheus(flatten)]
    asked: Asked,
}

/// What a request was for that was ended to protect the server, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Terminated {
    code: u16,
    #[prometheus(flatten)]
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resource {
    group: String,
    version: String,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestKind {
    request_kind: &'static str,
}

/// Events of watches on one resource.
pub type WatchEvents = Counter;

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Requests in flight: those that change something, and those that do not.
pub type Inflight = Arc<dyn Fn() -> (usize, usize) + Send + Sync>;

/// The metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Histograms<Asked>,
    sizes: Histograms<Target>,
    long_running: Family<Target, Gauge>,
    terminations: Family<Terminated, Counter>,
    watch_events: Family<Resource, WatchEvents>,
}

/// A request that lasts, as long as it does.
pub(super) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Metrics of which nothing is known yet; `inflight` is asked when they are read.
    pub fn new(inflight: Inflight) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("apiserver"),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            sizes: Family::new_with_constructor(|| Histogram::new(BYTES)),
            long_running: Family::default(),
            terminations: Family::default(),
            watch_events: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register(
            "request",
            "Requests that were answered, by verb, resource and code",
            metrics.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time from the head of a request to the end of its answer",
            metrics.durations.clone(),
        );
        registry.register(
            "response_sizes",
            "Bytes of answers to GET and LIST",
            metrics.sizes.clone(),
        );
        registry.register(
            "longrunning_requests",
            "Watches that are open",
            metrics.long_running.clone(),
        );
        registry.register(
            "request_terminations",
            "Requests that were refused or ended because there was no room or no time",
            metrics.terminations.clone(),
        );
        registry.register(
            "watch_events",
            "Events that were sent to watches",
            metrics.watch_events.clone(),
        );
        registry.register_collector(Box::new(InflightRequests(inflight)));
        metrics
    }

    /// All of them, in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Texts and numbers always encode.
        let _ = text::encode(&mut text, &self.registry);
        text
    }

    /// The events of watches on a resource.
    pub fn watch_events(&self, group: &str, version: &str, resource: &str) -> WatchEvents {
        let resource = Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        };
        self.watch_events.get_or_create_owned(&resource)
    }

    /// Takes note of a watch that begins.
    pub(super) fn long_running(&self, record: &Record) -> Option<Running> {
        let target = target(record);
        if target.verb != "WATCH" || !record.code.is_success() {
            return None;
        }
        let gauge = self.long_running.get_or_create_owned(&target);
        gauge.inc();
        Some(Running(gauge))
    }

    /// Takes note of a request that is over.
    pub(super) fn observe(&self, record: &Record) {
        let target = target(record);
        let code = record.code.as_u16();
        if code == 429 || code == 504 {
            let terminated = Terminated { code, target: target.clone() };
            self.terminations.get_or_create(&terminated).inc();
        }
        if target.verb == "GET" || target.verb == "LIST" {
            #[allow(clippy::cast_precision_loss)] // buckets are powers of ten
            self.sizes.get_or_create(&target).observe(record.bytes as f64);
        }
        let dry_run = if record.is_dry_run { "All" } else { "" };
        let asked = Asked { dry_run, target };
        let seconds = record.received.elapsed().as_secs_f64();
        self.durations.get_or_create(&asked).observe(seconds);
        self.requests.get_or_create(&Answered { code, asked }).inc();
    }
}

/// What a request was for. Of what is not served here only the method is said.
fn target(record: &Record) -> Target {
    let of_method = match record.method.as_str() {
        "GET" | "HEAD" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "unknown",
    };
    let unknown = Target { verb: of_method, component: COMPONENT, ..Target::default() };
    match record.attributes.as_ref().filter(|_| record.is_served) {
        Some(Attributes::Resource {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        }) => Target {
            verb: match *verb {
                "create" => "POST",
                "delete" => "DELETE",
                "deletecollection" => "DELETECOLLECTION",
                "get" => "GET",
                "list" => "LIST",
                "patch" => "PATCH",
                "update" => "PUT",
                "watch" => "WATCH",
                _ => of_method,
            },
            group: group.clone(),
            version: version.clone(),
            resource: resource.clone(),
            subresource: subresource.clone(),
            scope: match () {
                () if !name.is_empty() || *verb == "create" => "resource",
                () if !namespace.is_empty() => "namespace",
                () => "cluster",
            },
            component: COMPONENT,
        },
        Some(Attributes::Path { path, .. }) => {
            // However many slashes there are.
            Target { subresource: format!("/{}", path.trim_matches('/')), ..unknown }
        }
        None => unknown,
    }
}

/// Counted when it is asked for.
struct InflightRequests(Inflight);

impl std::fmt::Debug for InflightRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InflightRequests")
    }
}

impl Collector for InflightRequests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (mutating, read_only) = (self.0)();
        let counts = [("mutating", mutating), ("readOnly", read_only)];
        let gauge = ConstGauge::new(0_i64);
        let help = "Requests in flight that count against a limit";
        let mut metrics = encoder.encode_descriptor(
            "current_inflight_requests",
            help,
            None,
            gauge.metric_type(),
        )?;
        for (request_kind, count) in counts {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(metrics.encode_family(&RequestKind { request_kind })?)?;
        }
        Ok(())
    }
}
