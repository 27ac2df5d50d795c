//! Runs a row on two servers and compares their responses.

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

/// The largest time until a request has its effect.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const BETWEEN: Duration = Duration::from_millis(50);

/// The largest number of characters of a body that are printed.
const SHOWN: usize = 4_000;

/// A server of the API group, and the API server that has its namespaces.
#[derive(Clone)]
pub struct Side {
    pub server: Arc<Server>,
    pub cluster: Arc<Server>,
}

/// A request and its response.
#[derive(Clone, Debug)]
struct Exchange {
    sent: Sent,
    answer: Answer,
}

/// The result of a row.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The differences as text; empty without differences.
    pub report: String,
    /// Whether the row has known differences.
    pub has_known: bool,
}

impl Side {
    /// Creates a namespace.
    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        let namespace =
            format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
        self.cluster.demand("POST", "/api/v1/namespaces", Some(namespace)).await?;
        Ok(())
    }

    /// Runs the requests. Returns the completed exchanges, and the error of the request that could not be sent.
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
                // A consistent list request waits until the cache is current. A read of any version is answered from
                // that cache, however old it is.
                let list = format!("{collection}?limit=1");
                self.server.demand("GET", &list, None).await.with_context(at)?;
            }
            if let Some(status) = request.until {
                self.wait_for(&sent, status).await.with_context(at)?;
            }
            let open = self.receiver(&sent.path).send(&sent).await.with_context(at)?;
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

    /// The server that a path is sent to. The cluster has the namespaces and the configurations of webhooks.
    fn receiver(&self, path: &str) -> &Server {
        let is_namespace =
            path.strip_prefix("/api/v1/namespaces/").is_some_and(|name| !name.contains('/'));
        match is_namespace || path.starts_with("/apis/admissionregistration.k8s.io/") {
            true => &self.cluster,
            false => &self.server,
        }
    }

    /// Repeats a request until its response has this status.
    async fn wait_for(&self, sent: &Sent, status: u16) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.receiver(&sent.path).send(sent).await?.read().await?;
            if answer.status == status {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "still {}: {}", answer.status, answer.body);
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Deletes the objects that a row has created.
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
        // Some servers do not serve herds.
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
                // The garbage collector may have deleted the object already.
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

/// Returns the collection that is read, if the request accepts any version of it.
fn read_from_any_moment(path: &str) -> Option<String> {
    let (path, query) = path.split_once('?')?;
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|parameter| parameter.split_once('='));
        pairs.find(|(called, _)| *called == name).map(|(_, value)| value)
    };
    let any_moment = match value("resourceVersion") {
        Some(version) => version.trim_end_matches('0').is_empty(),
        // A watch without a version begins with the state of the cache.
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

/// Runs a row on both sides, each in a namespace of this name.
pub async fn run(row: &Row, reference: &Side, other: &Side, namespace: &str) -> Result<Outcome> {
    tokio::try_join!(reference.make_namespace(namespace), other.make_namespace(namespace))?;
    // Both sides are cleaned up, even after an error.
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
            // Values that only one server has returned would shift the numbers of its placeholders.
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
            // Later differences may be consequences of this one.
            break;
        }
    }
    // A failed request may be a consequence of an earlier difference, too.
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
