//! Compares metrics: their names, labels and buckets must be those of kube-apiserver. It may have additional ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use test_cluster::Programs;

use crate::server::{Sent, Server};

/// The labels and the bucket bounds of each metric, by name.
type Series = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

/// Metrics that kube-apiserver only exports after the event has happened, or if the feature is configured.
const RARE: [&str; 2] = ["apiserver_request_terminations_total", "apiserver_audit_error_total"];

/// Metrics that kube-apiserver does not export. Some are those of other Kubernetes servers, the rest are our own.
const OWN: [&str; 12] = [
    "apiserver_delegated_authn_request_total",
    "apiserver_delegated_authn_request_duration_seconds",
    "apiserver_delegated_authz_request_total",
    "apiserver_delegated_authz_request_duration_seconds",
    "apiserver_delegated_authz_cache_request_total",
    "apiserver_rejected_requests_total",
    "apiserver_computed_source_in_view",
    "apiserver_computed_source_age_seconds",
    "apiserver_certificate_expiration_timestamp_seconds",
    "apiserver_storage_limit_bytes",
    "apiserver_storage_feed_lag_revisions",
    "apiserver_watch_cache_synced",
];
/// The name prefix of our metrics about the watch cache window of each kind.
const WINDOW: &str = "apiserver_watch_cache_window_";

/// Compares the metrics of both servers. Returns the differences as text.
///
/// # Errors
/// When a server has no metrics.
pub async fn compare(reference: &Server, other: &Server) -> Result<String> {
    // Metrics have series only after the first request.
    for server in [reference, other] {
        for path in ["/api/v1/pods", "/api/v1/pods?watch=true&timeoutSeconds=1", "/api/v1/none"] {
            ask(server, path).await?;
        }
    }
    let ours = ask(other, "/metrics").await?;
    let (there, here) = (read(&ask(reference, "/metrics").await?), read(&ours));
    ensure!(here.contains_key("apiserver_request_total"), "no metrics: {here:?}");
    let mut report = lint(&ours)?;
    for (name, (labels, bounds)) in &here {
        match there.get(name) {
            None if is_own(name) || RARE.contains(&name.as_str()) => {}
            None => drop(writeln!(report, "kube-apiserver has no {name}")),
            Some((known, _)) if known != labels => {
                let _ = writeln!(report, "{name}: labels {known:?}, we have {labels:?}");
            }
            Some((_, known)) if known != bounds => {
                let _ = writeln!(report, "{name}: buckets {known:?}, we have {bounds:?}");
            }
            Some(_) => {}
        }
    }
    Ok(report)
}

/// Returns the findings of the Prometheus parser and linter, except for names that kube-apiserver uses too.
fn lint(text: &str) -> Result<String> {
    let mut linter = Command::new(Programs::promlint()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    linter.stdin.take().context("it reads")?.write_all(text.as_bytes())?;
    let output = linter.wait_with_output()?;
    let (said, refused) = (output.stdout, String::from_utf8(output.stderr)?);
    ensure!(output.status.success(), "Prometheus cannot read the metrics: {refused}");
    let said = String::from_utf8(said)?;
    let of_us = said.lines().filter(|line| !NAMED_AS_THERE.iter().any(|one| line.starts_with(one)));
    Ok(of_us.map(|line| format!("{line}\n")).collect())
}

fn is_own(name: &str) -> bool {
    // A histogram has three names.
    let of = |own: &str| {
        name.strip_prefix(own).is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
    };
    OWN.iter().any(|own| of(own)) || name.starts_with(WINDOW)
}

async fn ask(server: &Server, path: &str) -> Result<String> {
    let (method, path) = ("GET".to_owned(), path.to_owned());
    let answer = server.ask(&Sent { method, path, ..Sent::default() }).await?;
    Ok(answer.body.as_str().unwrap_or_default().to_owned())
}

/// Names that the linter rejects and kube-apiserver uses.
const NAMED_AS_THERE: [&str; 1] = ["authentication_attempts "];

/// The name prefixes of the compared metrics.
const NAMES: [&str; 3] = ["apiserver_", "authentication_", "authorization_"];

fn read(text: &str) -> Series {
    let mut series = Series::new();
    for line in text.lines().filter(|line| NAMES.iter().any(|name| line.starts_with(name))) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((labels, _)) = rest.rsplit_once('}') else { continue };
        let (names, bounds) = series.entry(name.to_owned()).or_default();
        for label in labels.split("\",") {
            let Some((label, value)) = label.split_once("=\"") else { continue };
            names.insert(label.to_owned());
            if label == "le" {
                let value = value.trim_end_matches('"');
                bounds.insert(value.parse::<f64>().map_or(value.to_owned(), |n| n.to_string()));
            }
        }
    }
    series
}
