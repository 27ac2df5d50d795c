//! URLs, read as Go reads those of requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Extension, Native};
use crate::value::{Entries, Failure, Key, Map, Outcome, Value};

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Url {
    scheme: String,
    host: String,
    /// As it is escaped.
    path: String,
    query: String,
    /// What it is told by whether two are the same.
    text: String,
}

impl Url {
    /// It as Go writes it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "url" => |_, all| match all {
            [Value::String(text)] => match parse(text.as_str()) {
                Ok(url) => Ok(Value::Extension(Arc::new(Extension::Url(url)))),
                Err(why) => Err(Failure::new(format!(
                    "URL parse error during conversion from string: {why}"
                ))),
            },
            _ => Err(Failure::no_such_overload()),
        },
        "isURL" => |_, all| match all {
            [Value::String(text)] => Ok(Value::Bool(parse(text.as_str()).is_ok())),
            _ => Err(Failure::no_such_overload()),
        },
        "getScheme" => |_, all| part(all, |url| Value::text(url.scheme.as_str())),
        "getHost" => |_, all| part(all, |url| Value::text(url.host.as_str())),
        "getHostname" => |_, all| part(all, |url| Value::text(split_host(&url.host).0)),
        "getPort" => |_, all| part(all, |url| Value::text(split_host(&url.host).1)),
        "getEscapedPath" => |_, all| part(all, |url| Value::text(url.path.as_str())),
        "getQuery" => |_, all| part(all, |url| query(&url.query)),
        _ => return None,
    })
}

fn part<'v>(all: &[Value<'v>], of: fn(&Url) -> Value<'static>) -> Outcome<'v> {
    match all {
        [Value::Extension(value)] => match &**value {
            Extension::Url(url) => Ok(of(url)),
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

/// The parts of a URL that is whole, or of a path.
///
/// # Errors
/// Why it is none, in Go's words.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let wrong = |why: &str| format!("parse {text:?}: {why}");
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err(wrong("net/url: invalid control character in URL"));
    }
    if text.is_empty() {
        return Err(wrong("empty url"));
    }
    if text == "*" {
        return Ok(Url {
            scheme: String::new(),
            host: String::new(),
            path: "*".to_owned(),
            query: String::new(),
            text: text.to_owned(),
        });
    }
    let (scheme, rest) = scheme(text).map_err(wrong)?;
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        if scheme.is_empty() {
            return Err(wrong("invalid URI for request"));
        }
        // Of a URL like `mailto:a` nothing is a part.
        return Ok(Url {
            scheme,
            host: String::new(),
            path: String::new(),
            query: query.to_owned(),
            text: text.to_owned(),
        });
    }
    let has_authority = rest.starts_with("//")
        && (!scheme.is_empty() || !rest.starts_with("///"))
        && !(scheme.is_empty());
    let (authority, path) = match has_authority {
        true => {
            let rest = &rest[2..];
            let end = rest.find('/').unwrap_or(rest.len());
            rest.split_at(end)
        }
        false => ("", rest),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some((user, _)) = authority.rsplit_once('@')
        && !user
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte))
    {
        return Err(wrong("net/url: invalid userinfo"));
    }
    check_host(host).map_err(|why| wrong(&why))?;
    let path = escaped_path(path).map_err(|why| wrong(&why))?;
    Ok(Url {
        scheme,
        host: unescape_host(host),
        path,
        query: query.to_owned(),
        text: text.to_owned(),
    })
}

fn scheme(text: &str) -> Result<(String, &str), &'static str> {
    for (at, char) in text.char_indices() {
        match char {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((text[..at].to_lowercase(), &text[at + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

/// The name and the port of a host.
fn split_host(host: &str) -> (&str, &str) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    };
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => (name, port),
        None if name.starts_with('[') => (host, ""),
        None => (name, port),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if let Some(rest) = host.strip_prefix('[') {
        let Some((_, port)) = rest.rsplit_once(']') else {
            return Err("missing ']' in host".to_owned());
        };
        port
    } else {
        host.find(':').map_or("", |at| &host[at..])
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {port:?} after host"));
    }
    if let Some(char) = host.chars().find(|char| " <>\"\\^`{|}".contains(*char)) {
        return Err(format!("invalid character {:?} in host name", char.to_string()));
    }
    check_escapes(host)
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.get(at + 1..at + 3);
        let are_hex =
            digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if !are_hex {
            let end = text.len().min(at + 3);
            let shown = text.get(at..end).unwrap_or(&text[at..]);
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(())
}

fn unescape_host(host: &str) -> String {
    String::from_utf8_lossy(&unescape(host, false)).into_owned()
}

fn unescape(text: &str, plus_is_blank: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                unescaped.push(byte);
                at += 3;
            }
            (b'+', _) if plus_is_blank => {
                unescaped.push(b' ');
                at += 1;
            }
            (byte, _) => {
                unescaped.push(byte);
                at += 1;
            }
        }
    }
    unescaped
}

/// A path with all escapes that it needs.
fn escaped_path(path: &str) -> Result<String, String> {
    check_escapes(path)?;
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
    if path.bytes().all(is_plain) {
        return Ok(path.to_owned());
    }
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    let mut escaped = String::new();
    for byte in unescape(path, false) {
        if keeps(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(escaped)
}

/// All values of each parameter.
fn query(query: &str) -> Value<'static> {
    let mut found: BTreeMap<String, Vec<Value<'static>>> = BTreeMap::new();
    let text = |part: &str| String::from_utf8_lossy(&unescape(part, true)).into_owned();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if check_escapes(name).is_err() || check_escapes(value).is_err() {
            continue;
        }
        found.entry(text(name)).or_default().push(Value::text(text(value)));
    }
    let entries: Entries<'static> = found
        .into_iter()
        .map(|(name, values)| {
            let key = Key::String(name.as_str().into());
            (key, (Value::text(name), Value::list(values)))
        })
        .collect();
    Value::Map(Map::own(entries))
}
