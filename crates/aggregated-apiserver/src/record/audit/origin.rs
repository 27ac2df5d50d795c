//! The origin of a request from its headers, with limited size.

use std::net::IpAddr;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::callers::apart;
use super::event::Addresses;
use super::objects;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// The longest user agent in an event, in bytes, same as in kube-apiserver.
const USER_AGENT_LIMIT: usize = 1_024;
/// The largest number of proxies in an event. A watch holds them for hours.
const PROXIES: usize = 64;

/// Returns the user agent of a client. A long-running request gets a copy, because a header references the memory of
/// all headers of its request. A long user agent is truncated.
pub(super) fn user_agent(headers: &HeaderMap, is_long: bool) -> Option<HeaderValue> {
    let agent = headers.get(USER_AGENT)?;
    if agent.len() <= USER_AGENT_LIMIT {
        return if is_long { apart(agent) } else { Some(agent.clone()) };
    }
    let text = String::from_utf8_lossy(agent.as_bytes()).into_owned();
    HeaderValue::from_str(&objects::cut(text, USER_AGENT_LIMIT)).ok()
}

/// Returns the addresses in headers of proxies, and the remote address of the connection.
pub(super) fn source_ips(headers: &HeaderMap, address: Option<IpAddr>) -> Addresses {
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
    let first = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let mut forwarded: Vec<IpAddr> = first(&FORWARDED_FOR)
        .map_or_else(Vec::new, |all| all.split(',').take(PROXIES).filter_map(parse).collect());
    if let Some(real) = first(&REAL_IP).and_then(parse)
        && !forwarded.contains(&real)
    {
        forwarded.push(real);
    }
    let peer = address.filter(|address| forwarded.last() != Some(address));
    Addresses { forwarded, peer }
}
