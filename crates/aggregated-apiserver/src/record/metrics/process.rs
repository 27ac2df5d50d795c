//! Metrics of the process, with the names that all Prometheus clients use.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The collector of process metrics. On systems other than Linux, only the start time is known.
#[derive(Debug)]
pub(super) struct Process {
    started: f64,
}

impl Process {
    /// Creates the collector of this process, which has just started.
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: now.as_secs_f64() }
    }
}

/// The clock ticks per second in which Linux reports CPU time to programs.
const TICKS: f64 = 100.0;

/// The CPU time of the process in seconds, if it is known.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, can contain blanks.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

/// The resident memory of the process in bytes, if it is known.
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1_024.0)
}

/// The number of open files, if it is known.
#[allow(clippy::cast_precision_loss)] // the number is small
fn open_files() -> Option<f64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

/// The largest number of open files, if it is known.
fn most_files() -> Option<f64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let help = "Seconds that processors have worked for the process";
            let counter = ConstCounter::new(seconds);
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        let gauges = [
            ("process_resident_memory_bytes", "Bytes of memory of the process", resident_bytes()),
            ("process_open_fds", "Files and connections that are open", open_files()),
            ("process_max_fds", "Files and connections that may be open", most_files()),
            ("process_start_time_seconds", "When the process started", Some(self.started)),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        Ok(())
    }
}
