//! The spans of a request, as OTLP has them: one for all of it, and one for each of its steps.

use http::Method;

use super::context::Remote;
use super::ended::Ended;
use super::protobuf::Message;
use super::{beginning, is_sampled_flags};
use crate::cluster::Attributes;

const SERVER: u64 = 2;
const INTERNAL: u64 = 1;
const ERROR: u64 = 2;
/// What numbers of spans differ by: odd, so that they come to each number once.
const NEXT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Appends a request's spans to a message of those of a server.
pub(super) fn write(ended: &Ended, spans: &mut Message) {
    const SPANS: u32 = 2;
    let begun = &ended.begun;
    let nanoseconds =
        |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let whole = begun.started.saturating_add(nanoseconds(ended.took));
    spans.long_message(SPANS, |span| {
        head(span, (begun.trace, begun.span, begun.parent));
        name(ended, span);
        times(span, SERVER, begun.started, whole);
        attributes(ended, span);
        if let Some(Remote { trace, span: linked, .. }) = begun.link {
            span.message(13, |link| {
                link.bytes(1, &trace.to_be_bytes());
                link.bytes(2, &linked.to_be_bytes());
                link.fixed32(6, is_sampled_flags(true));
            });
        }
        if ended.code >= 500 {
            span.message(15, |status| status.number(3, ERROR));
        }
        span.fixed32(16, is_sampled_flags(begun.parent != 0));
    });
    let mut number = begun.span;
    let mut step = |name: &str, from: u64, to: u64| {
        number = number.wrapping_add(NEXT);
        spans.message(SPANS, |span| {
            // 0 is the number of no span.
            head(span, (begun.trace, number.max(1), begun.span));
            span.text(5, name);
            times(span, INTERNAL, from, to);
            span.fixed32(16, is_sampled_flags(false));
        });
    };
    let mut from = begun.started;
    for (name, took) in ended.steps.named() {
        let to = from.saturating_add(nanoseconds(took));
        step(name, from, to);
        from = to;
    }
    step("sending", from, whole.max(from));
}

fn head(span: &mut Message, (trace, number, parent): (u128, u64, u64)) {
    span.bytes(1, &trace.to_be_bytes());
    span.bytes(2, &number.to_be_bytes());
    if parent != 0 {
        span.bytes(4, &parent.to_be_bytes());
    }
}

fn times(span: &mut Message, kind: u64, from: u64, to: u64) {
    span.number(6, kind);
    span.fixed64(7, from);
    span.fixed64(8, to);
}

/// The method, if it is one of those that HTTP has; what stands for the others is OpenTelemetry's.
fn method(ended: &Ended) -> &str {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    if KNOWN.contains(&ended.method) { ended.method.as_str() } else { "_OTHER" }
}

/// What a request's span is called, as by kube-apiserver: clients cannot make new names.
fn name(ended: &Ended, span: &mut Message) {
    let method = method(ended);
    let Some(Attributes::Resource {
        group, version, resource, subresource, namespace, name, ..
    }) = ended.attributes.as_deref().filter(|_| ended.is_served)
    else {
        span.text(5, method);
        return;
    };
    let mut text = String::with_capacity(128);
    text.push_str(method);
    let mut add = |parts: &[&str]| parts.iter().for_each(|part| text.push_str(part));
    match group.is_empty() {
        true => add(&[" /api/", version]),
        false => add(&[" /apis/", group, "/", version]),
    }
    if !namespace.is_empty() {
        add(&["/namespaces/{:namespace}"]);
    }
    add(&["/", resource]);
    if !name.is_empty() {
        add(&["/{:name}"]);
    }
    if !subresource.is_empty() {
        add(&["/", subresource]);
    }
    span.text(5, &text);
}

fn attributes(ended: &Ended, span: &mut Message) {
    let texts = &ended.begun.texts;
    let target = texts.target();
    let said = |span: &mut Message, name: &str, text: &str| {
        if !text.is_empty() {
            attribute(span, name, |value| value.text(1, beginning(text)));
        }
    };
    let count = |span: &mut Message, name: &str, number: u64| {
        attribute(span, name, |value| value.number(3, number));
    };
    said(span, "audit-id", texts.audit_id());
    said(span, "http.request.method", method(ended));
    said(span, "url.scheme", "https");
    said(span, "url.path", target.split('?').next().unwrap_or_default());
    said(span, "http.target", target);
    count(span, "http.response.status_code", u64::from(ended.code));
    // Numbers have a sign there.
    count(span, "http.response.body.size", ended.bytes.min(i64::MAX.unsigned_abs()));
    said(span, "user_agent.original", texts.user_agent());
    if let Some(address) = ended.begun.address {
        said(span, "network.peer.address", &address.to_string());
    }
    match ended.attributes.as_deref() {
        Some(Attributes::Resource {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        }) => {
            for (name, part) in [
                ("verb", *verb),
                ("api-group", group),
                ("api-version", version),
                ("resource", resource),
                ("subresource", subresource),
                ("namespace", namespace),
                ("name", name),
            ] {
                said(span, name, part);
            }
        }
        Some(Attributes::Path { verb, .. }) => said(span, "verb", verb),
        None => {}
    }
}

fn attribute(span: &mut Message, name: &str, value: impl FnOnce(&mut Message)) {
    span.message(9, |attribute| {
        attribute.text(1, name);
        attribute.message(2, value);
    });
}
