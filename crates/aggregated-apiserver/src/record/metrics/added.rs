//! Metrics that the program adds.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;

use prometheus_client::encoding::text as open_metrics;
use prometheus_client::registry::Registry;

use super::text;
use crate::log_throttle::LogThrottle;

/// Limits the log lines about metrics of the program, because each read of the metrics causes them.
static UNUSABLE: LogThrottle = LogThrottle::at_most(1);

/// Appends the metrics of the program to those of the server. Metrics with a name that the server uses are left out.
pub(super) fn append(own: &mut String, added: &Registry) {
    let mut text = String::new();
    let encoded = AssertUnwindSafe(|| open_metrics::encode(&mut text, added));
    if !matches!(std::panic::catch_unwind(encoded), Ok(Ok(()))) {
        let log =
            |suppressed| tracing::error!(suppressed, "cannot encode the metrics of the program");
        UNUSABLE.log(log);
        return;
    }
    let text = text::as_0_0_4(&text);
    let names: HashSet<String> = own.lines().filter_map(name).map(str::to_owned).collect();
    let mut is_taken = false;
    for line in text.lines() {
        // The lines of a metric follow the line with its name.
        if let Some(name) = name(line) {
            is_taken = names.contains(name);
            if is_taken {
                UNUSABLE.log(|suppressed| {
                    tracing::error!(
                        suppressed,
                        name,
                        "a metric of the program has a name of the server"
                    );
                });
            }
        }
        if !is_taken {
            own.push_str(line);
            own.push('\n');
        }
    }
}

/// The name of the metric that a line of help describes: the first line of each metric.
fn name(line: &str) -> Option<&str> {
    line.strip_prefix("# HELP ")?.split(' ').next()
}
