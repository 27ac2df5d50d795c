//! The negotiation of a protocol, from the headers of a request.

use http::header::{
    CONNECTION, CONTENT_TYPE, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The prefix of the WebSocket protocol that contains a bearer token. It is no protocol.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_PROTOCOLS: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");

/// A request that can be upgraded.
#[derive(Debug)]
pub struct Upgrade<P> {
    /// The head of the response (101), to send before the connection is served.
    pub response: Response<()>,
    /// The negotiated protocol.
    pub protocol: P,
}

/// The response to a request that cannot be upgraded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The status code: 400, or 403 if there is no common protocol.
    pub status: StatusCode,
    /// The message, in the words of kubelet.
    pub message: String,
    /// Further headers of the response.
    headers: Vec<(HeaderName, &'static str)>,
}

impl Refused {
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), headers: Vec::new() }
    }

    fn no_common_protocol(message: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, ..Self::bad_request(message) }
    }

    /// Returns the response, with the message as text. The response to clients without a common protocol has headers
    /// with the supported ones.
    pub fn into_response(self) -> Response<String> {
        let mut response = Response::new(self.message + "\n");
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in self.headers {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

/// Returns whether a request asks for a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    is_upgrade(headers) && values(headers, &UPGRADE).any(|v| v.eq_ignore_ascii_case("websocket"))
}

/// Returns the WebSocket protocols that a client offers, preferred protocol first.
pub(crate) fn websocket_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    values(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|protocol| !protocol.starts_with(BEARER))
}

/// Accepts a WebSocket with the first offered protocol that is supported. A client that offers none gets the protocol
/// with the name "", if that is supported.
///
/// # Errors
/// 400 if the request is no WebSocket handshake, 403 if there is no common protocol.
pub(crate) fn accept_websocket<P: Clone>(
    headers: &HeaderMap,
    supported: &[(&'static str, P)],
) -> Result<Upgrade<P>, Refused> {
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let Some(key) = key else {
        return Err(Refused::bad_request("mismatch challenge/response"));
    };
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let mut refused = Refused::bad_request("missing or bad WebSocket Version");
        refused.headers.push((SEC_WEBSOCKET_VERSION, "13"));
        return Err(refused);
    }
    let mut offered: Vec<&str> = websocket_protocols(headers).collect();
    if offered.is_empty() {
        offered.push("");
    }
    let Some((name, protocol)) = common(&offered, supported) else {
        return Err(Refused::no_common_protocol(format!(
            "requested protocol(s) are not supported: {}; supports {}",
            list(&offered),
            list(&names(supported))
        )));
    };
    let mut response = switching("websocket");
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    response.headers_mut().extend(accept.ok().map(|accept| (SEC_WEBSOCKET_ACCEPT, accept)));
    if !name.is_empty() {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok(Upgrade { response, protocol })
}

/// Accepts SPDY with the first offered stream protocol that is supported.
///
/// # Errors
/// 400 if the request does not ask for SPDY or offers no protocol, 403 if there is no common protocol.
pub(crate) fn accept_spdy<P: Clone>(
    headers: &HeaderMap,
    supported: &[(&'static str, P)],
) -> Result<Upgrade<P>, Refused> {
    if !is_upgrade(headers) {
        return Err(Refused::bad_request("Upgrade request required"));
    }
    if !headers.contains_key(&STREAM_PROTOCOL) {
        return Err(Refused::bad_request(format!(
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {} headers",
            headers.keys().filter(|name| *name != HOST).count()
        )));
    }
    let offered: Vec<&str> = values(headers, &STREAM_PROTOCOL).filter(|v| !v.is_empty()).collect();
    if offered.is_empty() {
        let all = headers.get_all(&STREAM_PROTOCOL).into_iter();
        let all: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
        return Err(Refused::bad_request(format!(
            "unable to upgrade: header X-Stream-Protocol-Version contains {}, but no valid protocols",
            list(&all)
        )));
    }
    let (name, protocol) = negotiate(&offered, supported)?;
    if !values(headers, &UPGRADE).any(|value| value.eq_ignore_ascii_case(SPDY)) {
        let message = "unable to upgrade: missing upgrade headers in request";
        return Err(Refused::bad_request(message));
    }
    let mut response = switching(SPDY);
    response.headers_mut().insert(STREAM_PROTOCOL, HeaderValue::from_static(name));
    Ok(Upgrade { response, protocol })
}

/// Returns the first offered protocol that is supported.
///
/// # Errors
/// 403, with the supported protocols.
pub(crate) fn negotiate<P: Clone>(
    offered: &[&str],
    supported: &[(&'static str, P)],
) -> Result<(&'static str, P), Refused> {
    common(offered, supported).ok_or_else(|| {
        let mut refused = Refused::no_common_protocol(format!(
            "unable to upgrade: unable to negotiate protocol: client supports {}, server accepts {}",
            list(offered),
            list(&names(supported))
        ));
        let names = names(supported).into_iter();
        refused.headers.extend(names.map(|name| (ACCEPTED_PROTOCOLS, name)));
        refused
    })
}

fn common<P: Clone>(
    offered: &[&str],
    supported: &[(&'static str, P)],
) -> Option<(&'static str, P)> {
    offered.iter().find_map(|name| supported.iter().find(|(one, _)| one == name)).cloned()
}

fn names<P>(supported: &[(&'static str, P)]) -> Vec<&'static str> {
    supported.iter().map(|(name, _)| *name).collect()
}

/// Returns a list in the format of Go.
fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

fn switching(protocol: &'static str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    values(headers, &CONNECTION).any(|value| value.eq_ignore_ascii_case("upgrade"))
}

/// Returns the elements of a header that is a list.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
