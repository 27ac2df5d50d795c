//! Runs a row on two servers and compares what they answer.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::answer::{Answer, Placeholders};
use crate::compare::{Compared, compare};
use crate::protobuf::encode;
use crate::row::{Request, Row, Variables};
use crate::server::{Sent, Server};

/// A request may take at most this long to have its effect.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const BETWEEN: Duration = Duration::from_millis(50);

/// At most this many bytes of a body are printed.
const SHOWN: usize = 4_000;

/// A server of the group, and the cluster that its namespaces are in.
#[derive(Clone)]
pub struct Side {
    pub server: Arc<Server>,
    pub cluster: Arc<Server>,
}

/// One request and its answer.
#[derive(Clone, Debug)]
struct Exchange {
    sent: Sent,
    answer: Answer,
}

/// What became of a row.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What is wrong, for people; empty if nothing is.
    pub report: String,
    /// Whether differences that are known were met.
    pub has_known: bool,
}

impl Side {
    /// Makes a namespace.
    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        let namespace =
            format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
        self.cluster.demand("POST", "/api/v1/namespaces", Some(namespace)).await?;
        Ok(())
    }

    /// All exchanges, or those until one could not be made, and why.
    async fn run(&self, row: &Row, namespace: &str) -> (Vec<Exchange>, Result<()>) {
        let mut exchanges = Vec::new();
        let done = self.exchange(row, namespace, &mut exchanges).await;
        (exchanges, done)
    }

    async fn exchange(
        &self,
        row: &Row,
        namespace: &str,
        exchanges: &mut Vec<Exchange>,
    ) -> Result<()> {
        let mut answers: Vec<Value> = Vec::new();
        let mut going_on = Vec::new();
        for (index, request) in row.requests.iter().enumerate() {
            let at = || format!("{}, request {}", self.server.name(), index + 1);
            let variables = Variables { namespace, answers: &answers };
            let sent = fill(request, &variables).with_context(at)?;
            if let Some(collection) = read_from_any_moment(&sent.path) {
                // A list of now waits for the cache that a read of any moment
                // is answered from, however old that is.
                let list = format!("{collection}?limit=1");
                self.server.demand("GET", &list, None).await.with_context(at)?;
            }
            if let Some(status) = request.until {
                self.wait_for(&sent, status).await.with_context(at)?;
            }
            let open = self.server.send(&sent).await.with_context(at)?;
            let answer = if request.meanwhile {
                going_on.push((index, tokio::spawn(open.read())));
                Answer::default()
            } else {
                open.read().await.with_context(at)?
            };
            answers.push(answer.body.clone());
            exchanges.push(Exchange { sent, answer });
        }
        for (index, reading) in going_on {
            let at = || format!("{}, request {}", self.server.name(), index + 1);
            exchanges[index].answer = reading.await?.with_context(at)?;
        }
        Ok(())
    }

    /// Returns when a request is answered with this status.
    async fn wait_for(&self, sent: &Sent, status: u16) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.server.send(sent).await?.read().await?;
            if answer.status == status {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "still {}: {}", answer.status, answer.body);
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Removes what a row has left.
    async fn clean(&self, row: &Row, namespace: &str) -> Result<()> {
        let group = format!("/apis/{}/v1", crate::row::GROUP);
        let own = format!("{group}/namespaces/{namespace}");
        let collections = [
            (format!("{own}/widgets"), ""),
            (format!("{own}/gizmos"), ""),
            (format!("{own}/gears"), ""),
            (format!("{own}/dials"), ""),
            (format!("{own}/demos"), ""),
            (format!("{own}/verdicts"), ""),
            (format!("{own}/seals"), ""),
            (format!("{group}/gadgets"), namespace),
            (format!("/apis/example.com/v1/namespaces/{namespace}/herds"), ""),
        ];
        // Not every server has herds.
        let is_ours =
            |(path, _): &(String, &str)| row.topic == "conversion" || !path.ends_with("/herds");
        let collections = collections.into_iter().filter(is_ours);
        for (collection, prefix) in collections.filter(|_| !row.is_built_in()) {
            let list = self.server.demand("GET", &collection, None).await?;
            for object in list["items"].as_array().into_iter().flatten() {
                let Some(name) = object["metadata"]["name"].as_str() else { continue };
                if !name.starts_with(prefix) {
                    continue;
                }
                let path = format!("{collection}/{name}");
                // The garbage collector may be faster.
                if object["metadata"]["finalizers"].is_array() {
                    let released = r#"{"metadata":{"finalizers":null}}"#;
                    self.server.demand_or_gone("PATCH", &path, Some(released.to_owned())).await?;
                }
                self.server.demand_or_gone("DELETE", &path, None).await?;
            }
        }
        let namespace = format!("/api/v1/namespaces/{namespace}");
        self.cluster.demand_or_gone("DELETE", &namespace, None).await?;
        Ok(())
    }
}

/// The collection that is read, if its state of any moment will do.
fn read_from_any_moment(path: &str) -> Option<String> {
    let (path, query) = path.split_once('?')?;
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|parameter| parameter.split_once('='));
        pairs.find(|(called, _)| *called == name).map(|(_, value)| value)
    };
    let any_moment = match value("resourceVersion") {
        Some(version) => version.trim_end_matches('0').is_empty(),
        // A watch that names no version begins with what the cache holds.
        None => value("watch").is_some() && value("sendInitialEvents").is_none(),
    };
    if !any_moment {
        return None;
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| *segment != "watch").collect();
    let plurals =
        ["widgets", "gizmos", "gears", "dials", "demos", "verdicts", "seals", "gadgets", "herds"];
    let end = segments.iter().position(|segment| plurals.contains(segment))?;
    Some(segments[..=end].join("/"))
}

fn fill(request: &Request, variables: &Variables<'_>) -> Result<Sent> {
    let headers = request.headers.iter();
    let headers = headers.map(|(name, value)| Ok((name.clone(), variables.fill(value)?)));
    let mut headers = headers.collect::<Result<Vec<_>>>()?;
    let body = request.body.as_ref().map(|body| variables.fill(body)).transpose()?;
    let mut protobuf = None;
    if request.protobuf {
        let media_type = "application/vnd.kubernetes.protobuf";
        headers.push(("Content-Type".to_owned(), media_type.to_owned()));
        protobuf = Some(encode(body.as_deref().context("@protobuf needs a body")?)?.protobuf);
    }
    Ok(Sent {
        method: request.method.clone(),
        path: variables.fill(&request.path)?,
        headers,
        body,
        protobuf,
        user: request.user.clone(),
        events: request.events,
    })
}

/// Runs a row on both sides, in a namespace of this name on each.
pub async fn run(row: &Row, reference: &Side, other: &Side, namespace: &str) -> Result<Outcome> {
    tokio::try_join!(reference.make_namespace(namespace), other.make_namespace(namespace))?;
    // Both are cleaned whatever happens.
    let (there, here) = tokio::join!(reference.run(row, namespace), other.run(row, namespace));
    tokio::try_join!(reference.clean(row, namespace), other.clean(row, namespace))?;
    let ((there, there_done), (here, here_done)) = (there, here);
    let mut placeholders = (Placeholders::new(namespace), Placeholders::new(namespace));
    let mut outcome = Outcome::default();
    for ((request, there), here) in row.requests.iter().zip(&there).zip(&here) {
        let before = placeholders.clone();
        let normal = (
            placeholders.0.normalize(&there.sent, &there.answer),
            placeholders.1.normalize(&here.sent, &here.answer),
        );
        if request.known_differences.iter().any(|known| known.path.is_empty()) {
            // What only one of them has shown would be counted by one alone.
            placeholders = before;
        }
        let Compared { difference, outdated } =
            compare(normal.0, normal.1, &request.known_differences)?;
        outcome.has_known |= !request.known_differences.is_empty();
        let statuses = request.known_differences.iter().filter_map(|known| known.status);
        for status in statuses.filter(|status| *status != here.answer.status) {
            let _ = writeln!(
                outcome.report,
                "{}\n{}\nis known to differ with {status}",
                here.sent.to_text(),
                here.answer.to_text(other.server.name())
            );
        }
        for known in outdated {
            let path = if known.path.is_empty() { "everything" } else { &known.path };
            let _ = writeln!(
                outcome.report,
                "{} {}\nis marked as differing in {path} ({}), but both agree: remove the mark",
                there.sent.method, there.sent.path, known.reason
            );
        }
        if let Some(difference) = difference {
            let names = (reference.server.name(), other.server.name());
            let _ = writeln!(
                outcome.report,
                "{}\n{}\n{}\n{}",
                there.sent.to_text(),
                there.answer.to_text(names.0),
                here.answer.to_text(names.1),
                difference.to_text(names.0, names.1)
            );
            // What comes after it may only follow from it.
            break;
        }
    }
    // What could not be asked may follow from a difference before it, too.
    if outcome.report.is_empty() {
        there_done?;
        here_done?;
    }
    Ok(outcome)
}

impl Sent {
    fn to_text(&self) -> String {
        let mut text = format!("{} {}\n", self.method, self.path);
        if let Some(user) = &self.user {
            let _ = writeln!(text, "as {user}");
        }
        for (name, value) in &self.headers {
            let _ = writeln!(text, "{name}: {value}");
        }
        if let Some(body) = &self.body {
            let _ = writeln!(text, "{}", shortened(body));
        }
        text
    }
}

impl Answer {
    fn to_text(&self, name: &str) -> String {
        let mut text = format!("--- {name}: {} {}\n", self.status, self.content_type);
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        if let Some(seconds) = &self.retry_after {
            let _ = writeln!(text, "retry-after: {seconds}");
        }
        match &self.body {
            Value::Array(events) => {
                for event in events {
                    let _ = writeln!(text, "{}", shortened(&event.to_string()));
                }
            }
            body => {
                let _ = writeln!(text, "{}", shortened(&body.to_string()));
            }
        }
        text
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} … ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
