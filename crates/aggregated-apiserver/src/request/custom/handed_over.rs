//! The body and the path for a handler, and connections that a handler takes over.

use std::time::Duration;

use axum::body::Body;
use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Limited};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use super::end::Ending;
use super::{CustomTarget, Held};
use crate::error::ApiError;
use crate::quota;
use crate::record::Upgraded;
use crate::request::ConnectionHandle;
use crate::subresource::SubPath;

/// The time for the farewell of a handler, such as the close frame of a WebSocket.
const FAREWELL: Duration = Duration::from_secs(5);

/// The body for a handler that reads it while it arrives. It fails after this number of bytes. The permit for the part
/// that is in memory is held until the body has ended.
pub(super) fn body(body: Body, limit: usize, permit: Option<quota::Permit>) -> Body {
    let held = body.map_frame(move |frame| {
        let _held = &permit;
        frame
    });
    match limit {
        usize::MAX => Body::new(held),
        limit => Body::new(Limited::new(held, limit)),
    }
}

/// Removes the headers that `Connection` names: they belong to the connection of the client. Otherwise a client could
/// name the headers that a handler adds before it forwards the request.
pub(super) fn remove_named(headers: &mut HeaderMap, is_upgrade: bool) {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(','));
    let named: Vec<HeaderName> = names.filter_map(|name| name.trim().parse().ok()).collect();
    for name in named.into_iter().filter(|name| !is_upgrade || *name != UPGRADE) {
        headers.remove(name);
    }
    headers.remove(CONNECTION);
    if is_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
}

/// The path behind the subresource, or behind the pattern of a path.
///
/// # Errors
/// 400 if the path before it has an encoded slash: the path that was authorized would be another one. 400 if a part of
/// the path is `.` or `..`: a proxy would leave the object that was authorized.
pub(super) fn sub_path(target: &CustomTarget, path: &str) -> Result<SubPath, ApiError> {
    let before = match target {
        CustomTarget::Subresource(target) => {
            let root = if target.served.kind.group.is_empty() { 2 } else { 3 };
            let namespace = if target.namespace.is_some() { 2 } else { 0 };
            // The root, the namespace, the plural, the name and the subresource.
            root + namespace + 3
        }
        CustomTarget::Path(target) => 3 + target.length,
    };
    let mut parts = path.trim_start_matches('/').splitn(before + 1, '/');
    for part in parts.by_ref().take(before) {
        if part.to_ascii_lowercase().contains("%2f") {
            return Err(ApiError::bad_request("the path has an encoded slash in a name"));
        }
    }
    let path = parts.next().unwrap_or_default();
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    if decoded.split(['/', '\\']).any(|part| part == "." || part == "..") {
        return Err(ApiError::bad_request("the path has a part that is . or .."));
    }
    Ok(SubPath(path.to_owned()))
}

/// Follows a connection that a handler has taken over, until it ends. The connection is closed when the request must
/// end.
pub(super) fn follow(
    response: &mut Response<Body>,
    connection: ConnectionHandle,
    (held, mut ending): (Held, Ending),
) -> impl Future<Output = ()> + Send + 'static {
    // The record of the request is closed when the connection ends.
    let upgraded = Upgraded::default();
    response.extensions_mut().insert(upgraded.clone());
    async move {
        let _held = held;
        let must_end = connection.ended.run_until_cancelled(ending.next()).await.is_some();
        if must_end && timeout(FAREWELL, connection.ended.cancelled()).await.is_err() {
            connection.end().await;
        }
        drop(upgraded);
    }
}
