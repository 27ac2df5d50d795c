//! Rows: sequences of requests, which the files in `rows/` contain. `docs/explanation/comparison.md` describes the file format.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The largest size of the result of `$repeat`, in bytes.
const REPEAT_LIMIT: usize = 8 << 20;

/// The distance of `$later(VERSION)` from its argument. It is a multiple of the version step of every server, and
/// larger than the number of versions that a run creates.
const LATER: u64 = 4096 * 1_000_000;

/// A sequence of requests in a namespace of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name of the file, without its extension.
    pub topic: String,
    pub title: String,
    /// Whether no other row may run at the same time, because this row reads beyond its namespace (`@alone`).
    pub alone: bool,
    /// Whether the row is compared a second time, through kube-aggregator (`@aggregated`).
    pub aggregated: bool,
    /// Whether the row is also compared with our server without a cluster.
    pub standalone: bool,
    pub requests: Vec<Request>,
}

/// One request of a row, with its variables not yet replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    /// The user that sends the request; an administrator if `None`.
    pub user: Option<String>,
    /// The number of watch events after which reading ends.
    pub events: Option<usize>,
    /// Whether the next requests are sent before this one has ended.
    pub meanwhile: bool,
    /// Whether the body is sent in protobuf, in the encoding of Go.
    pub protobuf: bool,
    /// The request is repeated until the response has this status, because the effect of an earlier request may be
    /// delayed.
    pub until: Option<u16>,
    pub known_differences: Vec<KnownDifference>,
}

/// A known difference, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDifference {
    /// The path, for example `body.items[0].spec`; empty for the whole response. `[*]` is any element.
    pub path: String,
    /// A heading of `docs/reference/differences.md`.
    pub reason: String,
    /// The status of our response, if the whole response may differ.
    pub status: Option<u16>,
}

/// Parses a file of rows.
pub fn parse(topic: &str, text: &str) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut blocks: Vec<(usize, Vec<&str>)> = vec![(1, Vec::new())];
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            blocks.push((index + 2, Vec::new()));
        } else if let Some((_, lines)) = blocks.last_mut() {
            lines.push(line);
        }
    }
    for (number, mut lines) in blocks {
        while lines.first().is_some_and(|line| line.starts_with('#')) {
            lines.remove(0);
        }
        let Some(first) = lines.first() else { continue };
        let at = || format!("{topic}, line {number}");
        if let Some(title) = first.strip_prefix("== ") {
            rows.push(header(topic, title, &lines[1..]).with_context(at)?);
        } else {
            let row = rows.last_mut().with_context(|| format!("{}: no row yet", at()))?;
            let request = request(&lines).with_context(at)?;
            // On that server only the administrator has permissions.
            row.standalone &= request.user.is_none();
            row.requests.push(request);
        }
    }
    let mut titles = BTreeSet::new();
    for row in &rows {
        ensure!(!row.requests.is_empty(), "{topic}: {:?} has no requests", row.title);
        ensure!(titles.insert(&row.title), "{topic}: {:?} is there twice", row.title);
    }
    Ok(rows)
}

fn header(topic: &str, title: &str, directives: &[&str]) -> Result<Row> {
    let mut row = Row {
        topic: topic.to_owned(),
        title: title.trim().to_owned(),
        alone: false,
        aggregated: false,
        standalone: true,
        requests: Vec::new(),
    };
    for directive in directives {
        match directive.trim() {
            "@alone" => row.alone = true,
            "@aggregated" => row.aggregated = true,
            "@cluster" => row.standalone = false,
            other => bail!("{other:?} says nothing about a row"),
        }
    }
    Ok(row)
}

fn request(lines: &[&str]) -> Result<Request> {
    let mut request = Request::default();
    let mut lines = lines.iter().copied().peekable();
    while let Some(directive) = lines.next_if(|line| line.starts_with('@')) {
        let (name, value) = directive.split_once(' ').unwrap_or((directive, ""));
        match name {
            "@as" => request.user = Some(value.to_owned()),
            "@events" => request.events = Some(value.parse()?),
            "@meanwhile" => request.meanwhile = true,
            "@protobuf" => request.protobuf = true,
            "@until" => request.until = Some(value.parse()?),
            "@differs" => {
                let (path, reason) = value.split_once(": ").context("@differs PATH: REASON")?;
                for path in path.split(',').map(str::trim) {
                    ensure!(!path.is_empty(), "@differs PATH: REASON");
                    let reason = reason.to_owned();
                    let (path, status) = match path.split_once('=') {
                        Some(("everything", status)) => ("", Some(status.parse()?)),
                        None if path == "everything" => bail!("@differs everything=STATUS: REASON"),
                        _ => (path, None),
                    };
                    let path = path.to_owned();
                    request.known_differences.push(KnownDifference { path, reason, status });
                }
            }
            other => bail!("{other:?} says nothing about a request"),
        }
    }
    let line = lines.next().context("a request needs a line METHOD PATH")?;
    let (method, path) = line.split_once(' ').context("a request needs a line METHOD PATH")?;
    request.method = method.to_owned();
    request.path = path.to_owned();
    let is_header = |line: &&str| {
        line.split_once(':').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
        })
    };
    while let Some(header) = lines.next_if(is_header) {
        let (name, value) = header.split_once(':').context("a header needs a colon")?;
        request.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    // Dashes separate a body whose first line looks like a header.
    lines.next_if_eq(&"---");
    let body: Vec<&str> = lines.collect();
    if !body.is_empty() {
        request.body = Some(body.join("\n"));
    }
    Ok(request)
}

/// The values of variables while a row runs.
pub struct Variables<'a> {
    pub namespace: &'a str,
    /// The response bodies so far, in order: `$1.metadata.uid` is a field of the first one.
    pub answers: &'a [Value],
}

/// The directory of rows about built-in kinds. They are compared only with our server without a cluster.
pub const BUILT_IN: &str = "built_in";

/// The API group that both servers serve.
pub const GROUP: &str = "oracle.example.com";
/// The URL of the admission webhooks and their CA bundle, set once they run.
pub static HOOKS: OnceLock<(String, String)> = OnceLock::new();

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const META: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

impl Variables<'_> {
    /// Replaces the variables in a string.
    pub fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            let (name, behind) = after.split_at(end);
            rest = behind;
            if let Some(behind) = after.strip_prefix('$') {
                filled.push('$');
                rest = behind;
                continue;
            }
            if let Ok(number) = name.parse::<usize>() {
                let end = behind
                    .find(|c: char| !(c.is_ascii_alphanumeric() || ".-_".contains(c)))
                    .unwrap_or(behind.len());
                // A dot at the end does not belong to the path.
                let path = behind[..end].trim_end_matches('.');
                filled.push_str(&self.answered(number, path.trim_start_matches('.'))?);
                rest = &behind[path.len()..];
            } else if name == "last" {
                let end = behind
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
                    .unwrap_or(behind.len());
                let path = behind[..end].trim_end_matches('.');
                let found = self.answered(self.answers.len(), path.trim_start_matches('.'));
                filled.push_str(&found.unwrap_or_default());
                rest = &behind[path.len()..];
            } else if name == "later" {
                let (inside, behind) = behind
                    .strip_prefix('(')
                    .and_then(|inside| inside.split_once(')'))
                    .context("$later(VERSION)")?;
                let version: u64 = self.fill(inside)?.parse().context("$later(VERSION)")?;
                filled.push_str(&(version + LATER).to_string());
                rest = behind;
            } else if name == "repeat" {
                let (arguments, behind) = behind
                    .strip_prefix('(')
                    .and_then(|inside| inside.split_once(')'))
                    .context("$repeat(TIMES,TEXT)")?;
                let (times, what) = arguments.split_once(',').context("$repeat(TIMES,TEXT)")?;
                let times: usize = times.parse()?;
                ensure!(times * what.len() <= REPEAT_LIMIT, "$repeat({arguments}) is too much");
                filled.push_str(&what.repeat(times));
                rest = behind;
            } else {
                self.named(name, &mut filled)?;
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn named(&self, name: &str, filled: &mut String) -> Result<()> {
        let Self { namespace, .. } = self;
        let collection = |plural: &str| format!("/apis/{GROUP}/v1/namespaces/{namespace}/{plural}");
        let is_of = |kind: &str| format!("\"apiVersion\":\"{GROUP}/v1\",\"kind\":\"{kind}\"");
        let text = match name {
            "ns" => (*namespace).to_owned(),
            "group" => GROUP.to_owned(),
            "hook" => HOOKS.get().context("no webhooks are there")?.0.clone(),
            "hookca" => HOOKS.get().context("no webhooks are there")?.1.clone(),
            "webhooks" => "/apis/admissionregistration.k8s.io/v1".to_owned(),
            "core" => format!("/api/v1/namespaces/{namespace}"),
            "apps" => format!("/apis/apps/v1/namespaces/{namespace}"),
            "batch" => format!("/apis/batch/v1/namespaces/{namespace}"),
            "networking" => format!("/apis/networking.k8s.io/v1/namespaces/{namespace}"),
            "policy" => format!("/apis/policy/v1/namespaces/{namespace}"),
            "rbac" => format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"),
            "v1" => format!("/apis/{GROUP}/v1"),
            "v1beta1" => format!("/apis/{GROUP}/v1beta1"),
            "widgets" => collection("widgets"),
            "gizmos" => collection("gizmos"),
            "gears" => collection("gears"),
            "dials" => collection("dials"),
            "demos" => collection("demos"),
            "verdicts" => collection("verdicts"),
            "seals" => collection("seals"),
            "gadgets" => format!("/apis/{GROUP}/v1/gadgets"),
            "herds" => format!("/apis/example.com/v1/namespaces/{namespace}/herds"),
            "alphaherds" => format!("/apis/example.com/v1alpha/namespaces/{namespace}/herds"),
            "herd" => "\"apiVersion\":\"example.com/v1\",\"kind\":\"Herd\"".to_owned(),
            "alphaherd" => "\"apiVersion\":\"example.com/v1alpha\",\"kind\":\"Herd\"".to_owned(),
            "widget" => is_of("Widget"),
            "gizmo" => is_of("Gizmo"),
            "gear" => is_of("Gear"),
            "dial" => is_of("Dial"),
            "demo" => is_of("Demo"),
            "verdict" => is_of("Verdict"),
            "seal" => is_of("Seal"),
            "gadget" => is_of("Gadget"),
            "TABLE" => TABLE.to_owned(),
            "META" => META.to_owned(),
            "METALIST" => META.replace("Metadata;", "MetadataList;"),
            "PB" => "application/vnd.kubernetes.protobuf,application/json".to_owned(),
            "ANY" => "application/json, */*".to_owned(),
            "DISC" => DISCOVERY.to_owned(),
            "WATCHLIST" => {
                "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
                    .to_owned()
            }
            other => bail!("${other} stands for nothing"),
        };
        filled.push_str(&text);
        Ok(())
    }

    fn answered(&self, number: usize, path: &str) -> Result<String> {
        let answer = number.checked_sub(1).and_then(|index| self.answers.get(index));
        let mut value = answer.with_context(|| format!("there is no answer {number} yet"))?;
        for step in path.split('.').filter(|step| !step.is_empty()) {
            value = match value {
                Value::Array(items) => items.get(step.parse::<usize>()?),
                other => other.get(step),
            }
            .with_context(|| format!("answer {number} has no {path}"))?;
        }
        Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

impl Row {
    /// Whether the row is about built-in kinds.
    pub fn is_built_in(&self) -> bool {
        self.topic.starts_with(BUILT_IN)
    }

    /// Formats the row in the syntax of a file.
    pub fn to_text(&self) -> String {
        let mut text = format!("== {}\n", self.title);
        if self.alone {
            text.push_str("@alone\n");
        }
        if self.aggregated {
            text.push_str("@aggregated\n");
        }
        let is_of_users = self.requests.iter().any(|request| request.user.is_some());
        if !self.standalone && !is_of_users {
            text.push_str("@cluster\n");
        }
        for request in &self.requests {
            let _ = write!(text, "\n{}", request.to_text());
        }
        text
    }
}

impl Request {
    /// Formats the request in the syntax of a file.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for KnownDifference { path, reason, status } in &self.known_differences {
            let _ = match status {
                Some(status) => writeln!(text, "@differs everything={status}: {reason}"),
                None => writeln!(text, "@differs {path}: {reason}"),
            };
        }
        if let Some(user) = &self.user {
            let _ = writeln!(text, "@as {user}");
        }
        if let Some(events) = self.events {
            let _ = writeln!(text, "@events {events}");
        }
        if self.meanwhile {
            text.push_str("@meanwhile\n");
        }
        if self.protobuf {
            text.push_str("@protobuf\n");
        }
        let _ = writeln!(text, "{} {}", self.method, self.path);
        for (name, value) in &self.headers {
            let _ = writeln!(text, "{name}: {value}");
        }
        if let Some(body) = &self.body {
            if !body.starts_with(['{', '[']) {
                text.push_str("---\n");
            }
            let _ = writeln!(text, "{body}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_is_encoded_exactly_as_parsed() {
        let text = "== a title\n@alone\n\n@differs body.a: because\n@differs everything=405: so\n@as jane\n@events 2\n@meanwhile\n@protobuf\nGET $widgets/a\nAccept: $TABLE\n\nPOST $widgets\n---\na: b\nc: d\n";
        let rows = parse("topic", text).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].requests[1].body.as_deref(), Some("a: b\nc: d"));
        assert_eq!(rows[0].to_text(), text);
    }

    #[test]
    fn variables() {
        let answers = [json!({"metadata": {"uid": "u"}, "items": [{"n": 5}]})];
        let variables = Variables { namespace: "n", answers: &answers };
        let rows = [
            ("$ns/$1.metadata.uid&x", "n/u&x"),
            ("$widgets/a", "/apis/oracle.example.com/v1/namespaces/n/widgets/a"),
            ("$1.items.0.n\"", "5\""),
            ("$repeat(3,ab)c", "abababc"),
            ("$last.metadata.uid&$last.none", "u&"),
            ("$1.metadata.uid. $$patch", "u. $patch"),
        ];
        for (text, expected) in rows {
            assert_eq!(variables.fill(text).unwrap(), expected);
        }
        for text in ["$none", "$2", "$1.none", "$repeat(3"] {
            assert!(variables.fill(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_rows_are_rejected() {
        for text in [
            "GET /a",
            "== a",
            "== a\n@none\n\nGET /",
            "== a\n\nGET",
            "== a\n\n@x\nGET /",
            "== a\n\n@differs everything: x\nGET /",
        ] {
            assert!(parse("topic", text).is_err(), "{text}");
        }
    }
}
