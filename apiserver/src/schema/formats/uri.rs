//! What the first line of a request may name, as Go's `net/url` reads it.

use std::net::Ipv6Addr;

/// An absolute path, or anything behind a scheme.
pub fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return scheme.is_some();
    }
    match rest.strip_prefix("//").filter(|_| scheme.is_some()) {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            is_authority(scheme, &rest[..end]) && escapes(&rest[end..]).is_some()
        }
        None => escapes(rest).is_some(),
    }
}

/// The scheme if there is one, and what is behind it; nothing if it is empty.
fn split_scheme(text: &str) -> Option<(Option<&str>, &str)> {
    let none = Some((None, text));
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((Some(&text[..at]), &text[at + 1..])),
            _ => return none,
        }
    }
    none
}

/// The bytes that are written as `%2F`; nothing if one is not two digits.
fn escapes(text: &str) -> Option<Vec<u8>> {
    let parts = text.split('%').skip(1);
    parts
        .map(|part| u8::from_str_radix(part.get(..2).filter(|two| super::is_hex(two))?, 16).ok())
        .collect()
}

fn is_authority(scheme: Option<&str>, text: &str) -> bool {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", text),
    };
    let is_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    user.bytes().all(is_user) && escapes(user).is_some() && is_host(scheme, host)
}

fn is_host(scheme: Option<&str>, host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let Some(inner) = host.strip_prefix('[') else {
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        // Other schemes may name several hosts, each with a port.
        let is_web = scheme.is_some_and(|scheme| {
            ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web))
        });
        return is_port(port) && is_host_name(name) && !(is_web && name.contains(':'));
    };
    let Some((inner, port)) = inner.rsplit_once(']') else { return false };
    let (address, zone) = match inner.split_once("%25") {
        Some((address, zone)) => (address, Some(zone)),
        None => (inner, None),
    };
    address.parse::<Ipv6Addr>().is_ok()
        && zone.is_none_or(is_zone)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Letters are not written as their numbers there.
fn is_host_name(name: &str) -> bool {
    let is_foreign = |bytes: Vec<u8>| bytes.iter().all(|byte| *byte >= 0x80);
    !name.contains('[')
        && name.bytes().all(may_stand_in_host)
        && escapes(name).is_some_and(is_foreign)
}

fn is_zone(zone: &str) -> bool {
    let may_be_escaped = |byte: &u8| *byte == b' ' || may_stand_in_host(*byte);
    !zone.is_empty()
        && zone.bytes().all(may_stand_in_host)
        && escapes(zone).is_some_and(|bytes| bytes.iter().all(may_be_escaped))
}

fn may_stand_in_host(byte: u8) -> bool {
    byte >= 0x80 || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte)
}
