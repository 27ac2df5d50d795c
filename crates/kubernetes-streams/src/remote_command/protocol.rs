//! The protocols of remote commands.

use http::HeaderMap;

use crate::upgrade::{Refused, Upgrade, accept_spdy, accept_websocket, is_websocket};

/// A protocol of remote commands: a transport, and the version of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    name: &'static str,
    pub(super) transport: Transport,
    pub(super) version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Binary messages, which begin with the number of their channel.
    WebSocket,
    /// Text messages in base64, which begin with the digit of their channel.
    Base64WebSocket,
    Spdy,
}

/// Each version has all features of the versions before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// The end of the input is known over SPDY.
    V1,
    V2,
    /// The terminal has a size over SPDY.
    V3,
    /// The result is a Status in JSON, with the exit code.
    V4,
    /// The client can close the input over a WebSocket.
    V5,
}

const WEBSOCKET: [(&str, Protocol); 6] = [
    protocol("v5.channel.k8s.io", Transport::WebSocket, Version::V5),
    protocol("v4.channel.k8s.io", Transport::WebSocket, Version::V4),
    protocol("v4.base64.channel.k8s.io", Transport::Base64WebSocket, Version::V4),
    protocol("channel.k8s.io", Transport::WebSocket, Version::V1),
    protocol("base64.channel.k8s.io", Transport::Base64WebSocket, Version::V1),
    protocol("", Transport::WebSocket, Version::V1),
];

const SPDY: [(&str, Protocol); 4] = [
    protocol("v4.channel.k8s.io", Transport::Spdy, Version::V4),
    protocol("v3.channel.k8s.io", Transport::Spdy, Version::V3),
    protocol("v2.channel.k8s.io", Transport::Spdy, Version::V2),
    protocol("channel.k8s.io", Transport::Spdy, Version::V1),
];

const fn protocol(
    name: &'static str,
    transport: Transport,
    version: Version,
) -> (&'static str, Protocol) {
    (name, Protocol { name, transport, version })
}

impl Protocol {
    /// Returns the name of the protocol, for example `v5.channel.k8s.io`. It is empty if the client offered none.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns whether the transport is SPDY, not a WebSocket.
    pub fn is_spdy(self) -> bool {
        self.transport == Transport::Spdy
    }
}

/// Chooses the protocol of a request for a remote command: the first protocol of the client that kube-apiserver or
/// kubelet accept. That is `v5`, `v4` and the unversioned protocol over WebSockets, the latter two also in base64, and
/// `v4` to the unversioned protocol over SPDY.
///
/// # Errors
/// 400 if the request cannot be upgraded, 403 if there is no common protocol.
pub fn negotiate(headers: &HeaderMap) -> Result<Upgrade<Protocol>, Refused> {
    if is_websocket(headers) {
        accept_websocket(headers, &WEBSOCKET)
    } else {
        accept_spdy(headers, &SPDY)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, StatusCode};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn websocket(protocol: &'static str) -> HeaderMap {
        let mut headers = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
        if !protocol.is_empty() {
            headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
        }
        headers
    }

    fn spdy(protocol: &'static str) -> HeaderMap {
        let protocol = ("x-stream-protocol-version", protocol);
        headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), protocol])
    }

    #[test]
    fn the_first_offered_websocket_protocol_is_chosen() {
        for (offered, chosen) in [
            ("v5.channel.k8s.io", "v5.channel.k8s.io"),
            ("v3.channel.k8s.io, v4.channel.k8s.io,v5.channel.k8s.io", "v4.channel.k8s.io"),
            (
                "base64url.bearer.authorization.k8s.io.dG9rZW4, base64.channel.k8s.io",
                "base64.channel.k8s.io",
            ),
            ("v4.base64.channel.k8s.io", "v4.base64.channel.k8s.io"),
            ("", ""),
        ] {
            let upgrade = negotiate(&websocket(offered)).unwrap();
            assert_eq!(upgrade.protocol.name(), chosen);
            assert_eq!(upgrade.response.status(), StatusCode::SWITCHING_PROTOCOLS);
            let headers = upgrade.response.headers();
            assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            let sent = headers.get("sec-websocket-protocol").map(HeaderValue::as_bytes);
            assert_eq!(sent.unwrap_or_default(), chosen.as_bytes());
        }
    }

    #[test]
    fn the_first_offered_spdy_protocol_is_chosen() {
        let offered = spdy("v5.channel.k8s.io, v4.channel.k8s.io, channel.k8s.io");
        let upgrade = negotiate(&offered).unwrap();
        assert!(upgrade.protocol.is_spdy());
        assert_eq!(upgrade.protocol.name(), "v4.channel.k8s.io");
        assert_eq!(upgrade.response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
        assert_eq!(upgrade.response.headers()["upgrade"], "SPDY/3.1");
    }

    #[test]
    fn refused_requests_have_the_messages_of_kubelet() {
        let refused = negotiate(&spdy("v9.channel.k8s.io")).unwrap_err();
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert_eq!(
            refused.message,
            "unable to upgrade: unable to negotiate protocol: client supports [v9.channel.k8s.io], server accepts \
             [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]"
        );
        let response = refused.into_response();
        let accepted = response.headers().get_all("x-accepted-stream-protocol-versions");
        assert_eq!(accepted.iter().count(), 4);
        let message = |headers: &HeaderMap| {
            let refused = negotiate(headers).unwrap_err();
            (refused.status.as_u16(), refused.message)
        };
        assert_eq!(message(&headers(&[])), (400, "Upgrade request required".to_owned()));
        let without = headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
        let expected = "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with 2 headers";
        assert_eq!(message(&without), (400, expected.to_owned()));
        assert_eq!(message(&websocket("v3.channel.k8s.io")).0, 403);
        let mut old = websocket("");
        old.insert("sec-websocket-version", HeaderValue::from_static("8"));
        assert_eq!(message(&old).0, 400);
    }
}
