//! Metrics of requests for served resources: their number by result, their duration and their size.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use http::Method;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::super::Record;
use crate::auth::Attributes;

/// The value of the label `component` in the metrics of kube-apiserver, which dashboards select.
const COMPONENT: &str = "apiserver";
/// The buckets for durations in seconds, same as in kube-apiserver.
const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// The buckets for sizes in bytes, same as in kube-apiserver.
const BYTES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The target of a request, as labels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RequestLabels<'a> {
    dry_run: &'static str,
    verb: &'static str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    subresource: &'a str,
    scope: &'static str,
}

/// The names and values of labels.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The largest number of series with all labels. Clients can create and delete kinds at run time, and choose their
/// names. Further requests are counted by their verb alone. A kind with its subresources has about thirty series, so
/// about three hundred kinds fit.
const SERIES_LIMIT: usize = 10_000;

/// The metrics of requests with the same labels. A request looks up its series once.
#[derive(Debug)]
struct Series {
    dry_run: &'static str,
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    /// A counter for each of the few status codes.
    codes: RwLock<Vec<(u16, Counter)>>,
    duration: Histogram,
    size: Histogram,
    long_running: Gauge,
    /// Whether one of the requests was long.
    was_long_running: AtomicBool,
}

impl Series {
    fn of(labels: &RequestLabels<'_>) -> Self {
        Self {
            dry_run: labels.dry_run,
            verb: labels.verb,
            group: labels.group.to_owned(),
            version: labels.version.to_owned(),
            resource: labels.resource.to_owned(),
            subresource: labels.subresource.to_owned(),
            scope: labels.scope,
            codes: RwLock::default(),
            duration: Histogram::new(SECONDS),
            size: Histogram::new(BYTES),
            long_running: Gauge::default(),
            was_long_running: AtomicBool::new(labels.verb == WATCH),
        }
    }

    fn labels(&self) -> RequestLabels<'_> {
        RequestLabels {
            dry_run: self.dry_run,
            verb: self.verb,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            scope: self.scope,
        }
    }

    /// The labels for the target of the request.
    fn target(&self) -> Labels<'_> {
        vec![
            ("verb", self.verb),
            ("group", &self.group),
            ("version", &self.version),
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("scope", self.scope),
            ("component", COMPONENT),
        ]
    }

    /// The labels for the target of the request, with `dry_run`.
    fn target_and_dry_run(&self) -> Labels<'_> {
        let mut labels = self.target();
        labels.push(("dry_run", self.dry_run));
        labels
    }

    fn count(&self, code: u16) {
        let known = |codes: &[(u16, Counter)]| {
            let counter = codes.iter().find(|(known, _)| *known == code);
            counter.map(|(_, counter)| counter.inc()).is_some()
        };
        if known(&self.codes.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut codes = self.codes.write().unwrap_or_else(PoisonError::into_inner);
        if !known(&codes) {
            let counter = Counter::default();
            counter.inc();
            codes.push((code, counter));
        }
    }
}

/// All series, by the hash of their labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(Arc<RwLock<HashMap<u64, Vec<Arc<Series>>>>>);

impl Requests {
    /// Counts a long request that starts, such as a watch. Returns `None` for other requests and for rejected ones.
    pub(super) fn long_running(&self, record: &Record) -> Option<Running> {
        let series = self.series(record);
        let is_long = series.verb == WATCH || record.is_long_running;
        if !is_long || !(record.code == 101 || (200..300).contains(&record.code)) {
            return None;
        }
        series.was_long_running.store(true, Ordering::Relaxed);
        series.long_running.inc();
        Some(Running(series))
    }

    /// Records a completed request.
    pub(super) fn observe(&self, record: &Record) {
        let series = self.series(record);
        if has_size(series.verb) {
            #[allow(clippy::cast_precision_loss)] // buckets are powers of ten
            series.size.observe(record.bytes as f64);
        }
        series.duration.observe(record.took.as_secs_f64());
        series.count(record.code);
    }

    /// Returns the series of a request. A request for a resource that is not served is counted by its method alone.
    fn series(&self, record: &Record) -> Arc<Series> {
        let of_method = match record.method {
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "unknown",
        };
        let unknown = RequestLabels {
            dry_run: if record.is_dry_run { "All" } else { "" },
            verb: of_method,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            scope: "",
        };
        match record.attributes.as_deref().filter(|_| record.is_served) {
            Some(Attributes::Resource {
                verb,
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
            }) => {
                let verb = match verb.as_ref() {
                    _ if record.is_connection => "CONNECT",
                    "create" => "POST",
                    "delete" => "DELETE",
                    "deletecollection" => "DELETECOLLECTION",
                    "get" => "GET",
                    "list" => "LIST",
                    "patch" => "PATCH",
                    "update" => "PUT",
                    "watch" => WATCH,
                    _ => of_method,
                };
                let scope = match () {
                    () if !name.is_empty() || verb == "POST" => "resource",
                    () if !namespace.is_empty() => "namespace",
                    () => "cluster",
                };
                let written = (resource.as_str(), subresource.as_str());
                let (resource, subresource) = record.labels.unwrap_or(written);
                let labels =
                    RequestLabels { verb, group, version, resource, subresource, scope, ..unknown };
                self.of_labels(&labels, &RequestLabels { verb, ..unknown })
            }
            Some(Attributes::Path { path, .. }) => {
                // Leading and trailing slashes do not matter.
                let path = format!("/{}", path.trim_matches('/'));
                self.of_labels(&RequestLabels { subresource: &path, ..unknown }, &unknown)
            }
            None => self.of_labels(&unknown, &unknown),
        }
    }

    /// Returns the series with these labels, or with the less exact labels if there are too many series.
    fn of_labels(&self, labels: &RequestLabels<'_>, less_exact: &RequestLabels<'_>) -> Arc<Series> {
        let mut hasher = DefaultHasher::new();
        labels.hash(&mut hasher);
        let hash = hasher.finish();
        let find = |all: &HashMap<u64, Vec<Arc<Series>>>| {
            all.get(&hash)?.iter().find(|series| series.labels() == *labels).map(Arc::clone)
        };
        if let Some(known) = find(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return known;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = find(&all) {
            return known;
        }
        if all.len() >= SERIES_LIMIT && labels != less_exact {
            drop(all);
            return self.of_labels(less_exact, less_exact);
        }
        let series = Arc::new(Series::of(labels));
        all.entry(hash).or_default().push(Arc::clone(&series));
        series
    }
}

/// Counts a running watch until it is dropped.
pub(in super::super) struct Running(Arc<Series>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.long_running.dec();
    }
}

impl Collector for Requests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all: Vec<Arc<Series>> = {
            let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
            all.values().flatten().map(Arc::clone).collect()
        };
        let codes =
            |series: &Series| series.codes.read().unwrap_or_else(PoisonError::into_inner).clone();
        let help = "Requests that were answered, by verb, resource and code";
        let mut family = encoder.encode_descriptor("request", help, None, MetricType::Counter)?;
        for series in &all {
            for (code, counter) in codes(series) {
                let (mut labels, code) = (series.target_and_dry_run(), code.to_string());
                labels.push(("code", &code));
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Requests that were refused or ended because there was no room or no time";
        let name = "request_terminations";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for series in all.iter().filter(|series| series.dry_run.is_empty()) {
            let ended = codes(series).into_iter().filter(|(code, _)| TERMINATIONS.contains(code));
            for (code, counter) in ended {
                let (mut labels, code) = (series.target(), code.to_string());
                labels.push(("code", &code));
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Time from the head of a request to the end of its answer";
        let name = "request_duration_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for series in all.iter().filter(|series| !codes(series).is_empty()) {
            series.duration.encode(family.encode_family(&series.target_and_dry_run())?)?;
        }
        let help = "Bytes of answers to GET and LIST";
        let name = "response_sizes";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for series in all.iter().filter(|series| has_size(series.verb) && !codes(series).is_empty())
        {
            series.size.encode(family.encode_family(&series.target())?)?;
        }
        let help = "Watches and other long requests that are open";
        let name = "longrunning_requests";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for series in all.iter().filter(|series| series.was_long_running.load(Ordering::Relaxed)) {
            series.long_running.encode(family.encode_family(&series.target())?)?;
        }
        Ok(())
    }
}

/// The verb of long-running requests.
const WATCH: &str = "WATCH";
/// The status codes of requests that exceeded a limit or timed out.
const TERMINATIONS: [u16; 2] = [429, 504];

fn has_size(verb: &str) -> bool {
    verb == "GET" || verb == "LIST"
}
