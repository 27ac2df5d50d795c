//! The bodies in events: the object of a request, and the response.

use std::io::{self, Read, Write};

use axum::body::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::event::Named;
use super::{OBJECT_LIMIT, raw};

/// The largest `Status` in an event, in bytes. If bodies are not recorded, responses are read up to this size: no
/// `Status` of a successful request is larger.
pub(super) const STATUS_LIMIT: usize = 16 << 10;

/// The largest message in an event, in bytes. Longer messages are truncated, because they can quote what clients send.
const MESSAGE_LIMIT: usize = 4 << 10;
/// The largest name, UID or resourceVersion of an object in an event, in bytes. Valid ones are not longer.
const NAME_LIMIT: usize = 253;

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestObject<'a> {
    /// An object that is created or replaces another object.
    Object(&'a Map<String, Value>),
    /// A patch, as it was sent.
    Patch(&'a Bytes),
    /// The options of a deletion, as they were sent.
    DeleteOptions(&'a Bytes),
}

/// The object of a request for an event.
#[derive(Debug, Default)]
pub(super) struct Requested {
    pub object: Option<Box<RawValue>>,
    pub is_truncated: bool,
}

impl Requested {
    /// Records the body of a request.
    pub(super) fn take(&mut self, object: RequestObject<'_>, omits_managed_fields: bool) {
        let kept = match object {
            RequestObject::Object(object) => bounded(&Sent { object, omits_managed_fields }),
            // Bodies that are too large for an event are not parsed.
            RequestObject::Patch(sent) | RequestObject::DeleteOptions(sent)
                if sent.len() > OBJECT_LIMIT =>
            {
                None
            }
            RequestObject::Patch(patch) => text(patch),
            RequestObject::DeleteOptions(options) => delete_options(options),
        };
        let is_small = kept.as_ref().is_some_and(|kept| kept.get().len() <= OBJECT_LIMIT);
        self.is_truncated = !is_small;
        self.object = kept.filter(|_| is_small);
    }
}

impl Requested {
    /// Omits the object, because the memory limit is reached.
    pub(super) fn leave_out(&mut self) {
        self.is_truncated = true;
        self.object = None;
    }
}

/// Serializes an object that was sent. Its managed fields are omitted if a policy demands it. They are also omitted if
/// they were moved out of the object when it was decoded, which leaves null in their place.
struct Sent<'a> {
    object: &'a Map<String, Value>,
    omits_managed_fields: bool,
}

/// Serializes the metadata of an object that was sent.
struct SentMetadata<'a> {
    metadata: &'a Map<String, Value>,
    omits_managed_fields: bool,
}

impl Serialize for Sent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let omits_managed_fields = self.omits_managed_fields;
        let mut members = serializer.serialize_map(None)?;
        for (name, value) in self.object {
            match value {
                Value::Object(metadata) if name == "metadata" => members
                    .serialize_entry(name, &SentMetadata { metadata, omits_managed_fields })?,
                _ => members.serialize_entry(name, value)?,
            }
        }
        members.end()
    }
}

impl Serialize for SentMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_shown = |(name, value): &(&String, &Value)| {
            *name != "managedFields" || !(self.omits_managed_fields || value.is_null())
        };
        serializer.collect_map(self.metadata.iter().filter(is_shown))
    }
}

/// Serializes a value as JSON, unless it is larger than [`OBJECT_LIMIT`].
fn bounded(value: &impl Serialize) -> Option<Box<RawValue>> {
    struct Bounded(Vec<u8>);

    impl Write for Bounded {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.len() + bytes.len() > OBJECT_LIMIT {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut bytes = Bounded(Vec::new());
    serde_json::to_writer(&mut bytes, value).ok()?;
    RawValue::from_string(String::from_utf8(bytes.0).ok()?).ok()
}

/// Returns JSON input without the blanks between tokens, and any other input as a JSON string.
fn text(bytes: &[u8]) -> Option<Box<RawValue>> {
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(json) => RawValue::from_string(without_blanks(json.get())).ok(),
        Err(_) => raw(&String::from_utf8_lossy(bytes)),
    }
}

/// Removes the blanks and line breaks between the tokens of JSON.
fn without_blanks(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let is_kept = |&character: &char| {
        let is_kept = is_text || !character.is_ascii_whitespace();
        if character == '"' && !is_escaped {
            is_text = !is_text;
        }
        is_escaped = is_text && character == '\\' && !is_escaped;
        is_kept
    };
    json.chars().filter(is_kept).collect()
}

/// Returns deletion options in the form of kube-apiserver's events, which have the internal version.
fn delete_options(bytes: &[u8]) -> Option<Box<RawValue>> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(mut options)) => {
            options.insert("kind".to_owned(), "DeleteOptions".into());
            options.insert("apiVersion".to_owned(), "meta.k8s.io/__internal".into());
            raw(&options)
        }
        _ => text(bytes),
    }
}

/// Returns the metadata of an object that was sent. The object is not validated yet, so values that are too long are
/// omitted.
pub(super) fn named(object: &Map<String, Value>) -> Named {
    let metadata = object.get("metadata").and_then(Value::as_object);
    let said = |member: &str| {
        let text = metadata.and_then(|metadata| metadata.get(member)).and_then(Value::as_str);
        text.filter(|text| text.len() <= NAME_LIMIT).unwrap_or_default().to_owned()
    };
    Named {
        namespace: said("namespace"),
        name: said("name"),
        uid: said("uid"),
        resource_version: said("resourceVersion"),
    }
}

/// Truncates a string to this number of bytes, and marks it as truncated.
pub(super) fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or_default());
        text.push_str("...TRUNCATED");
    }
    text
}

/// The response of a request, as far as events need it.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// The largest number of bytes that are read; 0 if the body is not needed.
    limit: usize,
    is_json: bool,
    is_compressed: bool,
    body: Vec<u8>,
    pub object: Option<Box<RawValue>>,
    is_left_out: bool,
}

impl Response {
    /// Records the head of the response.
    pub(super) fn begin(&mut self, headers: &HeaderMap, limit: usize) {
        self.limit = limit;
        if limit == 0 {
            return;
        }
        let of_type = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/json");
        let encoding = headers.get(CONTENT_ENCODING);
        self.is_compressed = encoding.is_some_and(|encoding| encoding == "gzip");
        let is_readable = self.is_compressed || encoding.is_none();
        self.is_json = is_readable && headers.get(CONTENT_TYPE).is_some_and(of_type);
    }

    /// Whether the event should contain the response, and does not.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_left_out && self.object.is_none()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.limit > 0
    }

    /// Whether this chunk of the response is to be stored.
    pub(super) fn keeps(&self, piece: &Bytes) -> bool {
        let is_small = self.body.len() + piece.len() <= self.limit;
        !self.is_left_out && self.is_json && is_small
    }

    /// Stores a chunk of the response.
    pub(super) fn take(&mut self, piece: &Bytes) {
        self.body.extend_from_slice(piece);
    }

    /// Omits the body, because it is not JSON, is too large or exceeds the memory limit. Returns the number of bytes
    /// that were stored.
    pub(super) fn leave_out(&mut self) -> usize {
        self.is_left_out = true;
        std::mem::take(&mut self.body).len()
    }

    /// Records the end of the response. Returns the response if it is a `Status`.
    pub(super) fn finish(&mut self, omits_managed_fields: bool) -> Option<Box<RawValue>> {
        let body = std::mem::take(&mut self.body);
        if body.is_empty() {
            return None;
        }
        let status = self.read(body, omits_managed_fields);
        // A response that ended early cannot be parsed.
        self.is_left_out |= self.object.is_none();
        status
    }

    fn read(&mut self, mut body: Vec<u8>, omits_managed_fields: bool) -> Option<Box<RawValue>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Typed {
            kind: String,
            #[serde(default)]
            api_version: String,
        }
        if self.is_compressed {
            body = decompressed(&body)?;
            if body.len() > self.limit {
                self.leave_out();
                return None;
            }
        }
        let typed = serde_json::from_slice::<Typed>(&body).ok()?;
        // Another API group can have a kind of this name.
        let is_status = typed.kind == "Status" && typed.api_version == "v1";
        if !omits_managed_fields && !is_status {
            let text = String::from_utf8(body).ok()?;
            let text = text.trim_end();
            // Pretty-printed JSON is indented. A JSON string contains no line break.
            let is_indented = text.contains('\n');
            let line = if is_indented { without_blanks(text) } else { text.to_owned() };
            self.object = RawValue::from_string(line).ok();
            return None;
        }
        let mut object: Value = serde_json::from_slice(&body).ok()?;
        remove_managed_fields(&mut object);
        self.object = raw(&object);
        is_status.then(|| status(&object)).flatten()
    }
}

/// Decompresses a body. The result is cut off after more than [`OBJECT_LIMIT`] bytes.
fn decompressed(body: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let most = OBJECT_LIMIT as u64 + 1;
    GzDecoder::new(body).take(most).read_to_end(&mut all).ok()?;
    Some(all)
}

/// Removes the managed fields of an object, of the items of a list, or of the rows of a table.
fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for list in ["items", "rows"] {
        for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let item = if list == "rows" { item.get_mut("object") } else { Some(item) };
            if let Some(metadata) = item.and_then(|item| item.get_mut("metadata"))
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata.remove("managedFields");
            }
        }
    }
}

/// Returns the fields of a `Status` that kube-apiserver records, with limited size.
pub(super) fn status(status: &impl Serialize) -> Option<Box<RawValue>> {
    let mut status = serde_json::to_value(status).ok()?;
    let status = status.as_object_mut()?;
    status.retain(|name, _| {
        matches!(name.as_str(), "status" | "message" | "reason" | "details" | "code")
    });
    status.insert("metadata".to_owned(), json!({}));
    status.entry("code").or_insert_with(|| 200.into());
    if let Some(Value::String(message)) = status.get_mut("message") {
        *message = cut(std::mem::take(message), MESSAGE_LIMIT);
    }
    let whole = raw(status)?;
    if whole.get().len() <= STATUS_LIMIT {
        return Some(whole);
    }
    status.remove("details");
    raw(status)
}

/// The status of a request whose client disconnected before the response.
pub(super) fn disconnected(code: u16) -> Option<Box<RawValue>> {
    let message = "the client has disconnected before it was answered: it may have been done";
    raw(&json!({"metadata": {}, "status": "Failure", "message": message, "code": code}))
}

/// The status in the audit event of a write whose outcome is unknown after its request has timed out.
pub(super) fn unknown(code: u16) -> Option<Box<RawValue>> {
    let message = "it is not known whether this was written";
    raw(&json!({"metadata": {}, "status": "Failure", "message": message, "code": code}))
}

/// The status of a request whose handler panicked.
pub(super) fn panic(why: &str) -> Option<Box<RawValue>> {
    let message = cut(format!("APIServer panic'd: {why}"), MESSAGE_LIMIT);
    let (failure, reason) = ("Failure", "InternalError");
    raw(
        &json!({"metadata": {}, "status": failure, "message": message, "reason": reason, "code": 500}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(object: RequestObject<'_>, omits_managed_fields: bool) -> Requested {
        let mut requested = Requested::default();
        requested.take(object, omits_managed_fields);
        requested
    }

    fn answered(body: &'static str) -> (Response, Option<Value>) {
        let mut response = Response { limit: 100, is_json: true, ..Response::default() };
        let piece = Bytes::from_static(body.as_bytes());
        assert!(response.keeps(&piece));
        response.take(&piece);
        let status = response.finish(false);
        let status = status.map(|status| serde_json::from_str(status.get()).unwrap());
        (response, status)
    }

    #[test]
    fn a_patch_is_audited_as_sent_on_one_line() {
        let patch = Bytes::from_static(b" {\"b\": 1.0,\n \"a\": \"x  \\\" \\\\\", \"b\": 2}\n");
        let requested = taken(RequestObject::Patch(&patch), false);
        assert_eq!(requested.object.unwrap().get(), r#"{"b":1.0,"a":"x  \" \\","b":2}"#);
        let large = Bytes::from(vec![b'1'; OBJECT_LIMIT + 1]);
        for object in [RequestObject::Patch(&large), RequestObject::DeleteOptions(&large)] {
            let requested = taken(object, false);
            assert!(requested.is_truncated && requested.object.is_none());
        }
    }

    #[test]
    fn an_indented_response_is_audited_on_one_line() {
        let indented = "{\n  \"kind\": \"Foo\",\n  \"a\": \"x\\n  y\"\n}\n";
        let (response, status) = answered(indented);
        assert_eq!(response.object.unwrap().get(), r#"{"kind":"Foo","a":"x\n  y"}"#);
        assert_eq!(status, None);
    }

    #[test]
    fn null_managed_fields_are_omitted_from_audit_events() {
        let object = json!({"metadata": {"name": "a", "managedFields": null}, "managedFields": 1});
        let object = object.as_object().unwrap();
        let shown = r#"{"metadata":{"name":"a"},"managedFields":1}"#;
        let shown: Value = serde_json::from_str(shown).unwrap();
        for omits in [true, false] {
            let requested = taken(RequestObject::Object(object), omits).object.unwrap();
            assert_eq!(serde_json::from_str::<Value>(requested.get()).unwrap(), shown);
        }
    }

    #[test]
    fn overlong_uids_are_omitted_from_audit_events() {
        let object = json!({"metadata": {"name": "a", "uid": "x".repeat(NAME_LIMIT + 1)}});
        let named = named(object.as_object().unwrap());
        assert_eq!((named.name.as_str(), named.uid.as_str()), ("a", ""));
    }

    #[test]
    fn only_a_v1_status_is_audited_as_status_and_its_size_is_limited() {
        let (response, said) =
            answered(r#"{"kind":"Status","apiVersion":"example.com/v1","code":7}"#);
        assert!(said.is_none() && response.object.is_some());
        let (_, said) = answered(r#"{"kind":"Status","apiVersion":"v1","code":409,"x":1}"#);
        assert_eq!(said, Some(json!({"metadata": {}, "code": 409})));
        let large = json!({
            "code": 422, "message": "x".repeat(1 << 20), "details": {"causes": "x".repeat(1 << 20)},
        });
        let large = status(&large).unwrap();
        assert!(large.get().len() < STATUS_LIMIT);
    }

    #[test]
    fn an_incomplete_response_is_marked_as_truncated_in_audit_events() {
        assert!(answered(r#"{"kind":"Foo","apiVer"#).0.is_truncated());
        assert!(!answered(r#"{"kind":"Foo"}"#).0.is_truncated());
        assert!(!answered("").0.is_truncated());
    }
}
