//! Metrics: what we call them, their labels and their buckets must be those of
//! kube-apiserver. That it has more is no fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, ensure};

use crate::server::{Sent, Server};

/// By name: the labels that series have, and the bounds of buckets.
type Series = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

/// What kube-apiserver says only when it has happened.
const RARE: &str = "apiserver_request_terminations_total";

/// Compares what both say of requests; answers with what differs, for people.
///
/// # Errors
/// When there are no metrics.
pub async fn compare(reference: &Server, other: &Server) -> Result<String> {
    // Something has to be counted first.
    for server in [reference, other] {
        for path in ["/api/v1/pods", "/api/v1/pods?watch=true&timeoutSeconds=1", "/api/v1/none"] {
            ask(server, path).await?;
        }
    }
    let (there, here) =
        (read(&ask(reference, "/metrics").await?), read(&ask(other, "/metrics").await?));
    ensure!(here.contains_key("apiserver_request_total"), "no metrics: {here:?}");
    let mut report = String::new();
    for (name, (labels, bounds)) in &here {
        match there.get(name) {
            None if name == RARE => {}
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

async fn ask(server: &Server, path: &str) -> Result<String> {
    let (method, path) = ("GET".to_owned(), path.to_owned());
    let answer = server.ask(&Sent { method, path, ..Sent::default() }).await?;
    Ok(answer.body.as_str().unwrap_or_default().to_owned())
}

fn read(text: &str) -> Series {
    let mut series = Series::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_")) {
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
