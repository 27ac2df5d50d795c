//! The protocols of port forwarding.

use http::HeaderMap;
use http::header::SEC_WEBSOCKET_PROTOCOL;

use crate::upgrade::{
    Refused, Upgrade, accept_spdy, accept_websocket, is_websocket, negotiate as common,
    websocket_protocols,
};
use crate::websocket::Codec;

/// The maximum number of ports in a query. A channel is one byte, and each port has two channels.
const PORTS_LIMIT: usize = 127;

const STREAMS_NAME: &str = "portforward.k8s.io";
const TUNNEL_NAME: &str = "SPDY/3.1+portforward.k8s.io";
const TUNNEL_PREFIX: &str = "SPDY/3.1+";
const SUFFIX: &str = ".k8s.io";

const STREAMS: [(&str, ()); 1] = [(STREAMS_NAME, ())];
const TUNNEL: [(&str, ()); 1] = [(TUNNEL_NAME, ())];
const CHANNELS: [(&str, (&str, Codec)); 3] = [
    ("v4.channel.k8s.io", ("v4.channel.k8s.io", Codec::Binary)),
    ("v4.base64.channel.k8s.io", ("v4.base64.channel.k8s.io", Codec::Base64)),
    ("", ("", Codec::Binary)),
];

/// A protocol of port forwarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    name: &'static str,
    pub(super) transport: Transport,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// A stream for the data and one for the error of each forwarded connection.
    Spdy,
    /// SPDY in the messages of a WebSocket.
    Tunnel,
    /// A channel for the data and one for the error of each port. The ports are in the query.
    Channels(Codec, Vec<u16>),
}

impl Protocol {
    /// Returns the name of the protocol, for example `SPDY/3.1+portforward.k8s.io`. It is empty if the client offered
    /// none.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// Chooses the protocol of a request to forward ports: SPDY, SPDY in a WebSocket, or a WebSocket whose ports are the
/// parameters `port` of the query.
///
/// # Errors
/// 400 if the request cannot be upgraded or a port is invalid, 403 if there is no common protocol.
pub fn negotiate(headers: &HeaderMap, query: &str) -> Result<Upgrade<Protocol>, Refused> {
    if !is_websocket(headers) {
        let Upgrade { response, .. } = accept_spdy(headers, &STREAMS)?;
        let protocol = Protocol { name: STREAMS_NAME, transport: Transport::Spdy };
        return Ok(Upgrade { response, protocol });
    }
    let tunnels: Vec<&str> = websocket_protocols(headers)
        .filter(|name| name.starts_with(TUNNEL_PREFIX) && name.ends_with(SUFFIX))
        .filter_map(|name| name.strip_prefix(TUNNEL_PREFIX))
        .collect();
    if !tunnels.is_empty() {
        common(&tunnels, &STREAMS)?;
        // The client may also offer protocols without SPDY, but kube-apiserver prefers the tunnel.
        let mut headers = headers.clone();
        headers.insert(SEC_WEBSOCKET_PROTOCOL, http::HeaderValue::from_static(TUNNEL_NAME));
        let Upgrade { response, .. } = accept_websocket(&headers, &TUNNEL)?;
        let protocol = Protocol { name: TUNNEL_NAME, transport: Transport::Tunnel };
        return Ok(Upgrade { response, protocol });
    }
    let ports = parse_ports(query).map_err(Refused::bad_request)?;
    let Upgrade { response, protocol: (name, codec) } = accept_websocket(headers, &CHANNELS)?;
    let protocol = Protocol { name, transport: Transport::Channels(codec, ports) };
    Ok(Upgrade { response, protocol })
}

/// Returns the parameters `port`, each of which is a list.
fn parse_ports(query: &str) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for (_, list) in form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "port") {
        if list.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for port in list.split(',') {
            ports.push(parse_port(port, &list)?);
        }
    }
    if ports.is_empty() {
        return Err("query parameter \"port\" is required".to_owned());
    }
    if ports.len() > PORTS_LIMIT {
        return Err(format!("at most {PORTS_LIMIT} ports can be forwarded"));
    }
    Ok(ports)
}

/// Parses the number of a port of a parameter, which may be a list.
///
/// # Errors
/// When it is no number from 1 to 65535.
pub(super) fn parse_port(port: &str, parameter: &str) -> Result<u16, String> {
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(0) => Err(format!("port {parameter:?} must be > 0")),
        Ok(number) if is_number => Ok(number),
        _ => {
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            Err(format!(
                "unable to parse {parameter:?} as a port: strconv.ParseUint: parsing {port:?}: {why}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, StatusCode};

    use super::*;

    fn headers(upgrade: &'static str, protocols: &'static str) -> HeaderMap {
        [
            ("connection", "Upgrade"),
            ("upgrade", upgrade),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocols),
            ("x-stream-protocol-version", protocols),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
    }

    #[test]
    fn each_transport_is_chosen() {
        for (upgrade, protocols, chosen) in [
            ("SPDY/3.1", "portforward.k8s.io", "portforward.k8s.io"),
            ("websocket", "SPDY/3.1+portforward.k8s.io", "SPDY/3.1+portforward.k8s.io"),
            ("websocket", "v4.channel.k8s.io", "v4.channel.k8s.io"),
            ("websocket", "v4.base64.channel.k8s.io", "v4.base64.channel.k8s.io"),
        ] {
            let upgrade = negotiate(&headers(upgrade, protocols), "port=80").unwrap();
            assert_eq!(upgrade.protocol.name(), chosen);
            let sent = upgrade.response.headers();
            let sent = sent.get("sec-websocket-protocol").or(sent.get("x-stream-protocol-version"));
            assert_eq!(sent.unwrap(), chosen);
        }
    }

    #[test]
    fn unknown_protocols_are_refused() {
        for (upgrade, protocols) in [("SPDY/3.1", "x.k8s.io"), ("websocket", "SPDY/3.1+x.k8s.io")] {
            let refused = negotiate(&headers(upgrade, protocols), "").unwrap_err();
            assert_eq!(refused.status, StatusCode::FORBIDDEN);
            assert_eq!(
                refused.message,
                "unable to upgrade: unable to negotiate protocol: client supports [x.k8s.io], server accepts \
                 [portforward.k8s.io]"
            );
        }
    }

    #[test]
    fn ports_are_parsed() {
        assert_eq!(parse_ports("port=80&port=443,8080").unwrap(), [80, 443, 8080]);
        let unparsed = |list: &str, port: &str, why: &str| {
            format!(
                "unable to parse {list:?} as a port: strconv.ParseUint: parsing {port:?}: {why}"
            )
        };
        for (query, message) in [
            ("", "query parameter \"port\" is required"),
            ("port=", "query parameter \"port\" cannot be empty"),
            ("port=80,0", "port \"80,0\" must be > 0"),
            ("port=65536", &unparsed("65536", "65536", "value out of range")),
            ("port=%2B80", &unparsed("+80", "+80", "invalid syntax")),
            ("port=80,http", &unparsed("80,http", "http", "invalid syntax")),
            ("port=80,", &unparsed("80,", "", "invalid syntax")),
        ] {
            assert_eq!(parse_ports(query).unwrap_err(), message);
        }
        let many = "port=1&".repeat(128);
        assert_eq!(parse_ports(&many).unwrap_err(), "at most 127 ports can be forwarded");
    }
}
