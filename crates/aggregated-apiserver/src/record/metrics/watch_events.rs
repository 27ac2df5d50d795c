//! Metrics of watches: the number and the sizes of the events that were sent, and the time that reads waited.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::per_resource::PerResource;

/// Counts the events of watches on one resource.
#[derive(Clone, Debug)]
pub struct WatchEventCounter(Arc<Series>);

#[derive(Debug)]
struct Series {
    count: Counter,
    sizes: Histogram,
}

impl WatchEventCounter {
    fn new() -> Self {
        // Buckets from 1 KiB to 128 KiB, same as in kube-apiserver.
        let sizes = Histogram::new(exponential_buckets(1_024.0, 2.0, 8));
        Self(Arc::new(Series { count: Counter::default(), sizes }))
    }

    /// Records an event of this number of bytes.
    pub fn count(&self, bytes: usize) {
        self.0.count.inc();
        #[allow(clippy::cast_precision_loss)] // no event has 2^52 bytes
        self.0.sizes.observe(bytes as f64);
    }
}

/// The events of all watches.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchEvents(Arc<PerResource<3, WatchEventCounter>>);

impl WatchEvents {
    /// Returns the counter for a group, version and resource.
    pub(super) fn of(&self, resource: [&str; 3]) -> WatchEventCounter {
        self.0.of(resource, WatchEventCounter::new)
    }
}

impl Collector for WatchEvents {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut all = self.0.all();
        // Watches that have not sent an event yet are omitted.
        all.retain(|_, events| events.0.count.get() > 0);
        let labels = |[group, version, resource]: &[String; 3]| {
            [("group", group.clone()), ("version", version.clone()), ("resource", resource.clone())]
        };
        let help = "Events that were sent to watches";
        let mut family =
            encoder.encode_descriptor("watch_events", help, None, MetricType::Counter)?;
        for (resource, events) in &all {
            events.0.count.encode(family.encode_family(&labels(resource))?)?;
        }
        let help = "Bytes of events that were sent to watches";
        let name = "watch_events_sizes";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (resource, events) in &all {
            events.0.sizes.encode(family.encode_family(&labels(resource))?)?;
        }
        Ok(())
    }
}

/// The time that reads waited until the cache had reached the requested revision. It is the lag of the feed of the
/// cache.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadWaits(Arc<PerResource<2, Histogram>>);

/// Buckets in seconds, same as in kube-apiserver.
const READ_WAIT: [f64; 13] =
    [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0];

impl ReadWaits {
    /// Records the wait of a read of a group and resource.
    pub(super) fn observe(&self, resource: [&str; 2], seconds: f64) {
        self.0.of(resource, || Histogram::new(READ_WAIT)).observe(seconds);
    }
}

impl Collector for ReadWaits {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Time that reads waited until the cache was as new as they asked for";
        let name = "watch_cache_read_wait_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for ([group, resource], waits) in &self.0.all() {
            let labels = [("group", group.clone()), ("resource", resource.clone())];
            waits.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
