//! What is written down of bodies: of the object that a request brings, and of its answer.

use std::io::Read;

use axum::body::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::event::ObjectReference;
use super::{OBJECT_LIMIT, raw};

/// No status that says that something was done is larger.
pub(super) const STATUS_LIMIT: usize = 16 << 10;

/// What a request brings.
#[derive(Clone, Copy, Debug)]
pub enum RequestObject<'a> {
    /// An object that is created, or put in the place of another one.
    Object(&'a Map<String, Value>),
    /// A patch, as it was sent.
    Patch(&'a Bytes),
    /// Options of a deletion, as they were sent.
    DeleteOptions(&'a Bytes),
}

/// The object of a request, if it is written down.
#[derive(Debug, Default)]
pub(super) struct Requested {
    pub object: Option<Box<RawValue>>,
    pub is_truncated: bool,
}

impl Requested {
    /// Takes what a request brings; the reference gains what an object says of itself.
    pub(super) fn take(
        &mut self,
        object: RequestObject<'_>,
        keeps: bool,
        omits_managed_fields: bool,
        reference: &mut Option<ObjectReference>,
    ) {
        if let (RequestObject::Object(object), Some(reference)) = (object, reference.as_mut()) {
            complete(reference, object);
        }
        if !keeps {
            return;
        }
        let kept = match object {
            RequestObject::Object(object) if omits_managed_fields => {
                let mut object = Value::Object(object.clone());
                remove_managed_fields(&mut object);
                raw(&object)
            }
            RequestObject::Object(object) => raw(object),
            RequestObject::Patch(patch) => text(patch),
            RequestObject::DeleteOptions(options) => delete_options(options),
        };
        let is_small = kept.as_ref().is_some_and(|kept| kept.get().len() <= OBJECT_LIMIT);
        self.is_truncated = !is_small;
        self.object = kept.filter(|_| is_small);
    }
}

impl Requested {
    /// There is no room for it.
    pub(super) fn leave_out(&mut self) {
        self.is_truncated = true;
        self.object = None;
    }
}

/// JSON as it is, without blanks around it; anything else as a text.
fn text(bytes: &[u8]) -> Option<Box<RawValue>> {
    let compact = serde_json::from_slice::<Value>(bytes).ok().and_then(|value| raw(&value));
    compact.or_else(|| raw(&String::from_utf8_lossy(bytes)))
}

/// Options as kube-apiserver shows them: of its inner version.
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

/// What the path does not say is said by the object.
fn complete(reference: &mut ObjectReference, object: &Map<String, Value>) {
    let metadata = object.get("metadata").and_then(Value::as_object);
    let said = |member: &str| {
        let text = metadata.and_then(|metadata| metadata.get(member)).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    for (member, known) in [
        ("namespace", &mut reference.namespace),
        ("name", &mut reference.name),
        ("uid", &mut reference.uid),
        ("resourceVersion", &mut reference.resource_version),
    ] {
        if known.is_empty() {
            *known = said(member);
        }
    }
}

/// The answer, as far as it is looked at.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// So many bytes of it, if any.
    limit: usize,
    is_json: bool,
    is_compressed: bool,
    body: Vec<u8>,
    pub object: Option<Box<RawValue>>,
    is_left_out: bool,
}

impl Response {
    /// The head of the answer is made.
    pub(super) fn begin(&mut self, headers: &HeaderMap, limit: usize) {
        let of_type = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/json");
        let encoding = headers.get(CONTENT_ENCODING);
        self.is_compressed = encoding.is_some_and(|encoding| encoding == "gzip");
        let is_readable = self.is_compressed || encoding.is_none();
        self.is_json = is_readable && headers.get(CONTENT_TYPE).is_some_and(of_type);
        self.limit = limit;
    }

    /// Whether it is not written down, though it should be.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_left_out && self.object.is_none()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.limit > 0
    }

    /// A piece of it is sent.
    pub(super) fn take(&mut self, piece: &Bytes) {
        if self.is_left_out || !self.is_json || self.body.len() + piece.len() > self.limit {
            self.leave_out();
        } else {
            self.body.extend_from_slice(piece);
        }
    }

    /// It is not JSON, too large, or there is no room for it.
    pub(super) fn leave_out(&mut self) {
        self.is_left_out = true;
        self.body = Vec::new();
    }

    /// All of it is sent; answers with the status that it was, if it was one.
    pub(super) fn finish(&mut self, omits_managed_fields: bool) -> Option<Box<RawValue>> {
        #[derive(Deserialize)]
        struct Typed {
            kind: String,
        }
        let mut body = std::mem::take(&mut self.body);
        if self.is_compressed {
            body = decompressed(&body)?;
            if body.len() > self.limit {
                self.leave_out();
                return None;
            }
        }
        let kind = serde_json::from_slice::<Typed>(&body).ok()?.kind;
        if !omits_managed_fields && kind != "Status" {
            // Compact already, but for its end.
            let text = String::from_utf8(body).ok()?.trim_end().to_owned();
            self.object = RawValue::from_string(text).ok();
            return None;
        }
        let mut object: Value = serde_json::from_slice(&body).ok()?;
        remove_managed_fields(&mut object);
        self.object = raw(&object);
        (kind == "Status").then(|| status(&object)).flatten()
    }
}

/// What was compressed, or the beginning of it, if that is longer than anything that is written down.
fn decompressed(body: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let most = OBJECT_LIMIT as u64 + 1;
    GzDecoder::new(body).take(most).read_to_end(&mut all).ok()?;
    Some(all)
}

/// The same object, or list, or table, without what is said of its managers.
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

/// A status, without what it is.
pub(super) fn status(status: &impl Serialize) -> Option<Box<RawValue>> {
    let mut status = serde_json::to_value(status).ok()?;
    let status = status.as_object_mut()?;
    status.remove("kind");
    status.remove("apiVersion");
    status.insert("metadata".to_owned(), json!({}));
    status.entry("code").or_insert_with(|| 200.into());
    raw(status)
}

/// The status of what was answered with an object.
pub(super) fn code(code: u16) -> Option<Box<RawValue>> {
    raw(&json!({"metadata": {}, "code": code}))
}

/// The status of a request over which code has failed.
pub(super) fn panic(why: &str) -> Option<Box<RawValue>> {
    let message = format!("APIServer panic'd: {why}");
    let (failure, reason) = ("Failure", "InternalError");
    raw(
        &json!({"metadata": {}, "status": failure, "message": message, "reason": reason, "code": 500}),
    )
}
