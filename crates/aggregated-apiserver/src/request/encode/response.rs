//! Whole responses: documents, and bodies in the requested encoding.

use std::time::Duration;

use axum::body::Body;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, HeaderValue, IF_NONE_MATCH, VARY,
};
use http::request::Parts;
use http::{Response, StatusCode};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::gzip::{self, Gzip};
use super::indent::Indenter;
use super::yaml;
use crate::codec;
use crate::document::Document;
use crate::object::Tree;
use crate::request::negotiate::{Format, Media, Presentation};
use crate::schema::Types;

const TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Returns a whole response in the requested encoding, from a body in JSON.
pub(in crate::request) fn respond(
    status: StatusCode,
    presentation: Presentation,
    json: Vec<u8>,
) -> Response<Body> {
    respond_typed(status, presentation, json, Types::meta())
}

/// Returns a whole response in the requested encoding, from a body in JSON. Its message type is one of `types`.
pub(in crate::request) fn respond_typed(
    status: StatusCode,
    mut presentation: Presentation,
    json: Vec<u8>,
    types: &Types,
) -> Response<Body> {
    let mut protobuf = None;
    if presentation.media == Media::Protobuf {
        let object: Tree = serde_json::from_slice(&json).unwrap_or_default();
        protobuf = codec::to_protobuf(&object, types);
        if protobuf.is_none() {
            presentation.media = Media::Json;
        }
    }
    let bytes = match presentation.media {
        Media::Protobuf => protobuf.unwrap_or_default(),
        Media::Json => {
            let mut json = json;
            json.push(b'\n');
            json
        }
        Media::Indented => Indenter::default().indent(&json),
        Media::Yaml => yaml::document(&json),
    };
    finished(status, presentation, bytes)
}

/// Returns a whole response, compressed if it is large and the client accepts that.
fn finished(status: StatusCode, presentation: Presentation, bytes: Vec<u8>) -> Response<Body> {
    let mut bytes = bytes;
    let is_compressed = presentation.gzip && bytes.len() > gzip::THRESHOLD;
    if is_compressed {
        let mut gzip = Gzip::new();
        bytes = gzip.compress(&bytes);
        bytes.extend(gzip.finish());
    }
    let mut response = started(status, presentation.media, Body::from(bytes));
    if is_compressed {
        gzip::announce(response.headers_mut());
    }
    response
}

/// Returns a response with this body, which may be generated while it is sent.
pub(in crate::request) fn started(status: StatusCode, media: Media, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(media.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Returns the response to a watch. Its events are generated while it is sent.
pub(in crate::request) fn watching(format: &Format, events: Body) -> Response<Body> {
    let mut response = started(StatusCode::OK, format.presentation.media, events);
    if format.presentation.media == Media::Protobuf {
        let content_type = "application/vnd.kubernetes.protobuf;stream=watch";
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// Returns metrics in the text format of Prometheus.
pub(in crate::request) fn metrics(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Adds a `Server-Timing` header (W3C) with the time that the request waited in the queue, if it waited.
pub(in crate::request) fn say_waited(response: &mut Response<Body>, waited: Duration) {
    if waited.is_zero() {
        return;
    }
    let said = format!("queue;dur={}", waited.as_millis());
    response.headers_mut().extend(HeaderValue::from_str(&said).ok().map(|said| (TIMING, said)));
}

/// Adds an `Expires` header one year from now, for caches that need a date.
pub(in crate::request) fn keep_for_a_year(response: &mut Response<Body>, now: Timestamp) {
    let until = now.to_zoned(TimeZone::UTC).saturating_add(365.days());
    let until = until.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
    response.headers_mut().extend(HeaderValue::from_str(&until).ok().map(|until| (EXPIRES, until)));
}

/// Returns a 406 response without a body, same as kube-apiserver for OpenAPI documents.
pub(in crate::request) fn not_acceptable() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// Returns a document that is generated from the kinds, or `304` if the client has the current one.
pub(in crate::request) fn document(
    head: &Parts,
    document: &Document,
    presentation: Presentation,
) -> Response<Body> {
    // RFC 9110, section 13.1.2: a list of entity tags, weak or strong, or `*`.
    let known = head.headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(',').map(str::trim));
    let fresh = document.etag.as_ref().is_some_and(|etag| {
        known.any(|known| known == "*" || known.trim_start_matches("W/").as_bytes() == etag)
    });
    let mut response = if fresh {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else if presentation.media == Media::Json {
        started(StatusCode::OK, Media::Json, Body::from(document.body.clone()))
    } else {
        respond(StatusCode::OK, presentation, document.body.trim_ascii_end().to_vec())
    };
    let headers = response.headers_mut();
    let parameters = document.content_type.find(';').map(|at| &document.content_type[at..]);
    let content_type = match (presentation.media, parameters) {
        (Media::Yaml, parameters) => {
            let yaml = presentation.media.content_type().to_owned();
            HeaderValue::from_str(&(yaml + parameters.unwrap_or_default())).ok()
        }
        _ => Some(HeaderValue::from_static(document.content_type)),
    };
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, content_type);
    }
    if let Some(etag) = &document.etag {
        headers.insert(ETAG, etag.clone());
        headers.insert(VARY, HeaderValue::from_static("Accept"));
    }
    if let Some(cache_control) = document.cache_control {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
    }
    response
}
