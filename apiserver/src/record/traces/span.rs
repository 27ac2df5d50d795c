//! What is told of a request in a trace: a span for all of it, and one for each of its steps.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use super::context::Remote;
use super::{Trace, Traces};
use crate::cluster::Attributes;
use crate::record::Record;

/// A piece of work that is over.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub trace: u128,
    pub span: u64,
    /// The span that it is a part of; 0 if it is the first one of its trace.
    pub parent: u64,
    pub is_parent_remote: bool,
    /// Whether it is a whole request.
    pub is_request: bool,
    pub name: Cow<'static, str>,
    pub start: SystemTime,
    pub end: SystemTime,
    pub attributes: Vec<(&'static str, Value)>,
    /// A span of another trace, which its client named and may not be believed.
    pub link: Option<Remote>,
    pub is_error: bool,
}

/// What an attribute says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
}

impl Span {
    /// What it takes, in bytes of memory, about.
    pub(super) fn size(&self) -> usize {
        let of_attribute = |(_, value): &(_, Value)| match value {
            Value::Text(text) => size_of::<(&str, Value)>() + text.len(),
            Value::Number(_) => size_of::<(&str, Value)>(),
        };
        let attributes: usize = self.attributes.iter().map(of_attribute).sum();
        size_of::<Self>() + self.name.len() + attributes
    }
}

/// The spans of a request that is over, the request's own one first.
pub(super) fn spans(traces: &Traces, trace: &Trace, record: &Record) -> Vec<Span> {
    let whole = record.received.elapsed();
    let step = |name: &'static str, from: Duration, to: Duration| Span {
        trace: trace.trace,
        span: traces.new_span(),
        parent: trace.span,
        is_parent_remote: false,
        is_request: false,
        name: Cow::Borrowed(name),
        start: trace.started + from,
        end: trace.started + to,
        attributes: Vec::new(),
        link: None,
        is_error: false,
    };
    let mut spans = vec![Span {
        span: trace.span,
        parent: trace.parent,
        is_parent_remote: trace.parent != 0,
        is_request: true,
        name: Cow::Owned(name(record)),
        attributes: attributes(trace, record),
        link: trace.link,
        is_error: record.code >= 500,
        ..step("", Duration::ZERO, whole)
    }];
    let mut from = Duration::ZERO;
    for (name, took) in record.steps.named() {
        spans.push(step(name, from, from + took));
        from += took;
    }
    spans.push(step("sending", from, whole.max(from)));
    spans
}

/// What a request's span is called, as by kube-apiserver: clients cannot make new names.
fn name(record: &Record) -> String {
    let method = &record.method;
    let Some(Attributes::Resource {
        group, version, resource, subresource, namespace, name, ..
    }) = record.attributes.as_deref().filter(|_| record.is_served)
    else {
        return method.to_string();
    };
    let mut path = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    path += &format!("/{version}");
    if !namespace.is_empty() {
        path += "/namespaces/{:namespace}";
    }
    path += &format!("/{resource}");
    if !name.is_empty() {
        path += "/{:name}";
    }
    if !subresource.is_empty() {
        path += &format!("/{subresource}");
    }
    format!("{method} {path}")
}

fn attributes(trace: &Trace, record: &Record) -> Vec<(&'static str, Value)> {
    let text = |text: &str| Value::Text(text.to_owned());
    let mut all = vec![
        ("audit-id", text(&trace.audit_id)),
        ("http.request.method", text(record.method.as_str())),
        ("url.scheme", text("https")),
        ("url.path", text(trace.target.split('?').next().unwrap_or_default())),
        ("http.target", text(&trace.target)),
        ("http.response.status_code", Value::Number(i64::from(record.code))),
        ("http.response.body.size", Value::Number(i64::try_from(record.bytes).unwrap_or(i64::MAX))),
    ];
    if !trace.user_agent.is_empty() {
        all.push(("user_agent.original", text(&trace.user_agent)));
    }
    if let Some(address) = trace.address {
        all.push(("network.peer.address", Value::Text(address.to_string())));
    }
    match record.attributes.as_deref() {
        Some(Attributes::Resource {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        }) => {
            let parts = [
                ("verb", *verb),
                ("api-group", group),
                ("api-version", version),
                ("resource", resource),
                ("subresource", subresource),
                ("namespace", namespace),
                ("name", name),
            ];
            let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
            all.extend(parts.map(|(name, part)| (name, Value::Text(super::beginning(part)))));
        }
        Some(Attributes::Path { verb, .. }) => all.push(("verb", text(verb))),
        None => {}
    }
    all
}
