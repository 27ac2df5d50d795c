//! The bearer token of a request.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::auth::TOKEN_LIMIT;
use crate::error::ApiError;
use crate::request::websocket;

/// The bearer token of a request, which is decoded at the first call.
///
/// # Errors
/// 401 if the token cannot be decoded or is too long.
pub(super) fn token_once<'t, 'h>(
    token: &'t mut Option<Option<Cow<'h, str>>>,
    head: &'h Parts,
) -> Result<Option<&'t str>, ApiError> {
    let decoded = match token.take() {
        Some(decoded) => decoded,
        None => bearer_token(head).map_err(|Unreadable| ApiError::unauthorized())?,
    };
    if decoded.as_ref().is_some_and(|decoded| decoded.len() > TOKEN_LIMIT) {
        return Err(ApiError::unauthorized());
    }
    Ok(token.insert(decoded).as_deref())
}

/// The error for a token that cannot be decoded. Such a request is rejected, and is not anonymous.
struct Unreadable;

fn bearer_token(head: &Parts) -> Result<Option<Cow<'_, str>>, Unreadable> {
    let Some(value) = head.headers.get(AUTHORIZATION) else { return token_of_web_socket(head) };
    let given = value.to_str().ok().and_then(|value| value.trim().split_once(' '));
    let token = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty());
    Ok(token.map(Cow::Borrowed))
}

/// Returns the token among the protocols of a WebSocket, because a browser cannot set the `Authorization` header. The
/// request must offer another protocol too, which the connection then uses.
fn token_of_web_socket(head: &Parts) -> Result<Option<Cow<'_, str>>, Unreadable> {
    if !websocket::is_asked_for(head) {
        return Ok(None);
    }
    let protocols = || websocket::protocols(&head.headers);
    let mut tokens = protocols().filter_map(|one| one.strip_prefix(websocket::BEARER));
    let Some(encoded) = tokens.next() else { return Ok(None) };
    let has_other = protocols().any(|one| !one.starts_with(websocket::BEARER));
    if tokens.next().is_some() || !has_other {
        return Err(Unreadable);
    }
    let token = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| Unreadable)?;
    let token = String::from_utf8(token).map_err(|_| Unreadable)?;
    if token.is_empty() { Err(Unreadable) } else { Ok(Some(Cow::Owned(token))) }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn bearer_tokens_are_read_from_websocket_subprotocols() {
        const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
        let ask = |protocols: String| {
            let request = Request::builder().header("connection", "upgrade");
            let request = request.header("upgrade", "websocket");
            let request = request.header("sec-websocket-protocol", protocols);
            let (head, ()) = request.body(()).unwrap().into_parts();
            bearer_token(&head).map(|token| token.map(Cow::into_owned)).map_err(|Unreadable| ())
        };
        assert_eq!(ask(format!("{BEARER}czNjcmV0, other")), Ok(Some("s3cret".to_owned())));
        assert_eq!(ask("other".to_owned()), Ok(None));
        for broken in ["!!!!, other", "czNjcmV0", ", other", "/w, other"] {
            assert_eq!(ask(format!("{BEARER}{broken}")), Err(()), "{broken}");
        }
        assert_eq!(ask(format!("{BEARER}eA, {BEARER}eQ, other")), Err(()));
        // Without a WebSocket upgrade, the protocols are ignored.
        let request = Request::builder().header("sec-websocket-protocol", format!("{BEARER}eA, x"));
        let (head, ()) = request.body(()).unwrap().into_parts();
        assert!(matches!(bearer_token(&head), Ok(None)));
    }
}
