//! The spans of a request in OTLP: one for the whole request, and one for each of its steps.

use std::net::IpAddr;

use http::{HeaderValue, Method};

use super::context::Remote;
use super::protobuf::{Message, varint};
use super::{Begun, LIMIT, beginning, is_sampled_flags, text};
use crate::auth::Attributes;
use crate::record::{Ending, Record};

const SERVER: u64 = 2;
const INTERNAL: u8 = 1;
const ERROR: u64 = 2;
/// The difference between consecutive span identifiers. It is odd, so that the sequence reaches each number once.
const NEXT: u64 = 0x9e37_79b9_7f4a_7c15;
/// The number of the field `spans` in the message of a scope.
const SPANS: u32 = 2;
/// The longest message whose length is encoded in one byte.
const SHORT: usize = 0x7f;

/// The number of spans of a request: one for the whole request, one for each step, and one for sending the response.
pub(super) fn count(record: &Record) -> u64 {
    2 + record.steps.named().count() as u64
}

/// Appends the spans of a completed request to the message of a scope.
pub(super) fn write(begun: &Begun, record: &Record, spans: &mut Message) {
    let nanoseconds =
        |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let whole = begun.started.saturating_add(nanoseconds(record.took));
    spans.long_message(SPANS, |span| {
        span.array(1, begun.trace.to_be_bytes());
        span.array(2, begun.span.to_be_bytes());
        if begun.parent != 0 {
            span.array(4, begun.parent.to_be_bytes());
        }
        name(record, span);
        span.number(6, SERVER);
        span.fixed64(7, begun.started);
        span.fixed64(8, whole);
        attributes(begun, record, span);
        if let Some(Remote { trace, span: linked, .. }) = begun.link {
            span.message(13, |link| {
                link.array(1, trace.to_be_bytes());
                link.array(2, linked.to_be_bytes());
                link.fixed32(6, is_sampled_flags(true));
            });
        }
        if record.code >= 500 {
            span.message(15, |status| status.number(3, ERROR));
        }
        span.fixed32(16, is_sampled_flags(begun.parent != 0));
    });
    let mut step = StepSpan::of(begun.trace, begun.span);
    let mut from = begun.started;
    for (name, took) in record.steps.named() {
        let to = from.saturating_add(nanoseconds(took));
        step.write(spans, name, from, to);
        from = to;
    }
    step.write(spans, "sending", from, whole.max(from));
}

/// Appends the span of a write that ended after its request. `number` is the identifier of the span. `from` is the time
/// at which the request ended, and `to` the time at which the write ended.
pub(super) fn write_after(
    begun: &Begun,
    (number, (from, to)): (u64, (u64, u64)),
    ending: &Ending,
    audit_id: &HeaderValue,
    spans: &mut Message,
) {
    spans.long_message(SPANS, |span| {
        span.array(1, begun.trace.to_be_bytes());
        span.array(2, number.to_be_bytes());
        span.array(4, begun.span.to_be_bytes());
        span.text(5, "write after the request");
        span.number(6, u64::from(INTERNAL));
        span.fixed64(7, from);
        span.fixed64(8, to);
        attribute(span, b"audit-id", &text(audit_id));
        attribute(span, b"outcome", ending.name());
        self::number(span, b"http.response.status_code", u64::from(ending.code()));
        if ending.code() >= 500 {
            span.message(15, |status| status.number(3, ERROR));
        }
        span.fixed32(16, is_sampled_flags(false));
    });
}

/// The encoded span of a step. The spans of steps differ only in fixed-size numbers, and in the name, which is at the
/// end.
struct StepSpan {
    number: u64,
    bytes: [u8; Self::NAME],
}

impl StepSpan {
    // The offsets of the values. Each value follows its key, and its length if it has one.
    const LENGTH: usize = 1;
    const TRACE: usize = 4;
    const NUMBER: usize = Self::TRACE + 16 + 2;
    const PARENT: usize = Self::NUMBER + 8 + 2;
    const KIND: usize = Self::PARENT + 8 + 1;
    const FROM: usize = Self::KIND + 1 + 1;
    const TO: usize = Self::FROM + 8 + 1;
    const FLAGS: usize = Self::TO + 8 + 2;
    const NAME: usize = Self::FLAGS + 4 + 2;

    /// Creates a template for the steps below a span of a trace.
    fn of(trace: u128, parent: u64) -> Self {
        let mut span = Self { number: parent, bytes: [0; Self::NAME] };
        for (at, keys) in [
            (0, [0x12, 0]),
            (Self::TRACE - 2, [0x0a, 16]),
            (Self::NUMBER - 2, [0x12, 8]),
            (Self::PARENT - 2, [0x22, 8]),
            (Self::KIND - 1, [0x30, INTERNAL]),
            (Self::FLAGS - 2, [0x85, 0x01]),
            (Self::NAME - 2, [0x2a, 0]),
        ] {
            span.set(at, keys);
        }
        span.set(Self::FROM - 1, [0x39]);
        span.set(Self::TO - 1, [0x41]);
        span.set(Self::TRACE, trace.to_be_bytes());
        span.set(Self::PARENT, parent.to_be_bytes());
        span.set(Self::FLAGS, is_sampled_flags(false).to_le_bytes());
        span
    }

    /// Appends the span of the next step.
    fn write(&mut self, spans: &mut Message, name: &'static str, from: u64, to: u64) {
        self.number = self.number.wrapping_add(NEXT);
        // 0 is not a valid span identifier.
        self.set(Self::NUMBER, self.number.max(1).to_be_bytes());
        self.set(Self::FROM, from.to_le_bytes());
        self.set(Self::TO, to.to_le_bytes());
        let of_name = u8::try_from(name.len()).unwrap_or_default();
        self.set(Self::NAME - 1, [of_name]);
        self.set(Self::LENGTH, [Self::NAME as u8 - 2 + of_name]);
        spans.0.extend_from_slice(&self.bytes);
        spans.0.extend_from_slice(name.as_bytes());
    }

    #[inline]
    fn set<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        // The length is a constant, so that the compiler need not call a copy function.
        if let Some(place) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = bytes;
        }
    }
}

/// Returns the method if it is a standard HTTP method, otherwise the name that OpenTelemetry uses for other methods.
fn method(record: &Record) -> &'static str {
    match record.method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "_OTHER",
    }
}

/// Appends the name of a request's span, same as in kube-apiserver. Clients cannot create new names.
fn name(record: &Record, span: &mut Message) {
    let method = method(record);
    let Some(Attributes::Resource {
        group, version, resource, subresource, namespace, name, ..
    }) = record.attributes.as_deref().filter(|_| record.is_served)
    else {
        span.text(5, method);
        return;
    };
    span.message(5, |text| {
        let mut add = |part: &str| text.0.extend_from_slice(part.as_bytes());
        add(method);
        match group.as_str() {
            "" => add(" /api"),
            group => [" /apis/", group].into_iter().for_each(&mut add),
        }
        ["/", version].into_iter().for_each(&mut add);
        if !namespace.is_empty() {
            add("/namespaces/{:namespace}");
        }
        ["/", resource].into_iter().for_each(&mut add);
        if !name.is_empty() {
            add("/{:name}");
        }
        if !subresource.is_empty() {
            ["/", subresource].into_iter().for_each(&mut add);
        }
    });
}

fn attributes(begun: &Begun, record: &Record, span: &mut Message) {
    let target = record.uri.path_and_query().map_or("", |target| target.as_str());
    let target = beginning(target, LIMIT);
    attribute(span, b"audit-id", &text(&record.audit_id));
    attribute(span, b"http.request.method", method(record));
    attribute(span, b"url.scheme", "https");
    attribute(span, b"url.path", target.split('?').next().unwrap_or_default());
    attribute(span, b"http.target", target);
    number(span, b"http.response.status_code", u64::from(record.code));
    // OTLP integers are signed.
    number(span, b"http.response.body.size", record.bytes.min(i64::MAX.unsigned_abs()));
    if let Some(user_agent) = &begun.user_agent {
        attribute(span, b"user_agent.original", &text(user_agent));
    }
    if let Some(peer) = begun.address {
        address(span, b"network.peer.address", peer);
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
            attribute(span, b"verb", verb);
            attribute(span, b"api-group", group);
            attribute(span, b"api-version", version);
            attribute(span, b"resource", resource);
            attribute(span, b"subresource", subresource);
            attribute(span, b"namespace", namespace);
            attribute(span, b"name", name);
        }
        Some(Attributes::Path { verb, .. }) => attribute(span, b"verb", verb),
        None => {}
    }
}

/// Appends a string attribute, unless the string is empty.
#[inline]
fn attribute<const N: usize>(span: &mut Message, name: &[u8; N], text: &str) {
    if !text.is_empty() {
        bytes(span, name, beginning(text, LIMIT).as_bytes());
    }
}

/// Appends a string attribute.
#[inline]
fn bytes<const N: usize>(span: &mut Message, name: &[u8; N], text: &[u8]) {
    // Each nested message has a key and a length of one byte each.
    let value = 2 + text.len();
    let whole = 2 + N + 2 + value;
    if whole > SHORT {
        return span.message(9, |attribute| {
            attribute.bytes(1, name);
            attribute.message(2, |value| value.bytes(1, text));
        });
    }
    #[allow(clippy::cast_possible_truncation)] // all are at most SHORT
    let (whole, value, of_text) = (whole as u8, value as u8, text.len() as u8);
    span.0.extend_from_slice(&[9 << 3 | 2, whole, 1 << 3 | 2, N as u8]);
    span.0.extend_from_slice(name);
    span.0.extend_from_slice(&[2 << 3 | 2, value, 1 << 3 | 2, of_text]);
    span.0.extend_from_slice(text);
}

/// Appends an integer attribute.
#[inline]
fn number<const N: usize>(span: &mut Message, name: &[u8; N], number: u64) {
    let (digits, length) = varint(number);
    const { assert!(2 + N + 3 + 10 <= SHORT) };
    #[allow(clippy::cast_possible_truncation)]
    let (whole, value, of_name) = ((2 + N + 3 + length) as u8, (1 + length) as u8, N as u8);
    span.0.extend_from_slice(&[9 << 3 | 2, whole, 1 << 3 | 2, of_name]);
    span.0.extend_from_slice(name);
    span.0.extend_from_slice(&[2 << 3 | 2, value, 3 << 3]);
    span.0.extend_from_slice(digits.get(..length).unwrap_or_default());
}

fn address<const N: usize>(span: &mut Message, name: &[u8; N], address: IpAddr) {
    let IpAddr::V4(address) = address else {
        return attribute(span, name, &address.to_string());
    };
    // Each octet is followed by a dot. The last dot is cut off below.
    let (mut text, mut length) = ([0; 4 * 4], 0);
    for part in address.octets() {
        for (unit, is_there) in [(100, part >= 100), (10, part >= 10), (1, true)] {
            if is_there {
                put(&mut text, &mut length, b'0' + part / unit % 10);
            }
        }
        put(&mut text, &mut length, b'.');
    }
    bytes(span, name, text.get(..length - 1).unwrap_or_default());
}

fn put(text: &mut [u8], length: &mut usize, byte: u8) {
    if let Some(place) = text.get_mut(*length) {
        *place = byte;
        *length += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::protobuf::{Field, fields};
    use super::super::waiting::OF_REQUEST;
    use super::*;
    use crate::record::Step;

    #[test]
    fn span_attributes_have_the_protobuf_wire_format() {
        let by_parts = |name: &[u8], value: &dyn Fn(&mut Message)| {
            let mut message = Message::default();
            message.message(9, |attribute| {
                attribute.bytes(1, name);
                attribute.message(2, |of_value| value(of_value));
            });
            message.0
        };
        for of in [0, 1, 127, 128, 200, 65_535, u64::from(u32::MAX), i64::MAX as u64] {
            let mut message = Message::default();
            number(&mut message, b"a-number", of);
            assert_eq!(message.0, by_parts(b"a-number", &|value| value.number(3, of)), "{of}");
        }
        for text in ["127.0.0.1", "0.9.10.99", "255.100.101.250", "::1", "2001:db8::7"] {
            let mut message = Message::default();
            address(&mut message, b"an-address", text.parse().unwrap());
            assert_eq!(message.0, by_parts(b"an-address", &|value| value.text(1, text)), "{text}");
        }
        for length in [1, 100, 120, 200, LIMIT] {
            let (text, mut message) = ("x".repeat(length), Message::default());
            attribute(&mut message, b"a-text", &text);
            assert_eq!(message.0, by_parts(b"a-text", &|value| value.text(1, &text)), "{length}");
        }
    }
    #[test]
    fn the_largest_spans_fit_their_size_limit_and_can_be_read() {
        let long = "x".repeat(30_000);
        let header = |byte: u8| HeaderValue::from_bytes(&vec![byte; 30_000]).unwrap();
        let remote = Remote { trace: 1, span: 2, is_sampled: true };
        let begun = Begun {
            trace: u128::MAX,
            span: u64::MAX,
            parent: 3,
            link: Some(remote),
            started: u64::MAX / 2,
            address: Some("2001:db8::7".parse().unwrap()),
            user_agent: Some(header(0xff)),
        };
        let mut record = Record::unread();
        record.method = Method::OPTIONS;
        record.uri = format!("/{long}?{long}").parse().unwrap();
        record.audit_id = header(b'a');
        record.code = 500;
        record.bytes = u64::MAX;
        record.is_served = true;
        for step in Step::ALL {
            record.reached(step);
        }
        // Names of served kinds are short.
        let name = "n".repeat(253);
        record.attributes = Some(Arc::new(Attributes::Resource {
            verb: "deletecollection".into(),
            group: name.clone(),
            version: name.clone(),
            resource: name.clone(),
            subresource: name,
            namespace: long.clone(),
            name: long,
        }));
        let mut spans = Message::default();
        write(&begun, &record, &mut spans);
        assert!(spans.0.len() <= OF_REQUEST, "{}", spans.0.len());
        let read: Vec<_> = fields(&spans.0).collect();
        assert_eq!(read.len() as u64, count(&record));
        let [(_, Field::Bytes(whole)), ..] = read[..] else { panic!("{read:?}") };
        let known = fields(whole).filter(|(field, _)| *field != 9).map(|(field, _)| field);
        assert_eq!(known.collect::<Vec<_>>(), [1, 2, 4, 5, 6, 7, 8, 13, 15, 16]);
        let texts = fields(whole).filter(|(field, _)| *field == 9).count();
        assert_eq!(texts, 16, "attributes");
    }
}
