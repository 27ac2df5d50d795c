//! URLs, parsed and formatted like Go's `net/url`.

use crate::go_text::quote;
use crate::library::addresses;

/// The set of characters that need no escape in a part of a URL.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Part {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

/// A parsed URL. Its parts are bytes, because an escape can stand for any byte.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parsed {
    pub(super) scheme: String,
    opaque: String,
    /// The name and the password.
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    pub(super) host: Vec<u8>,
    path: Vec<u8>,
    /// The path as given, if its escapes differ from Go's.
    raw_path: Option<String>,
    pub(super) query: String,
    has_query: bool,
    fragment: Vec<u8>,
    raw_fragment: Option<String>,
    /// Whether there is no authority.
    omits_host: bool,
}

/// Parses the URL of a request: a whole URL or a path.
///
/// # Errors
/// The error of Go's `ParseRequestURI`.
pub(super) fn parse_request_uri(text: &str) -> Result<Parsed, String> {
    parse(text, true).map_err(|why| parse_error(text, &why))
}

/// Parses a URL with its fragment.
///
/// # Errors
/// The error of Go's `Parse`.
pub(super) fn parse_reference(text: &str) -> Result<Parsed, String> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut parsed = parse(url, false).map_err(|why| parse_error(url, &why))?;
    parsed.fragment = unescape(fragment, Part::Fragment).map_err(|why| parse_error(text, &why))?;
    parsed.raw_fragment = raw(fragment, &parsed.fragment, Part::Fragment);
    Ok(parsed)
}

/// The parts of a URL that a configuration may forbid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UrlParts {
    /// The scheme, in lower case; empty if the URL has none.
    pub scheme: String,
    /// Whether the URL has a user name.
    pub has_user: bool,
    /// Whether the URL has a query that is not empty.
    pub has_query: bool,
    /// Whether the URL has a fragment that is not empty.
    pub has_fragment: bool,
}

/// Parses a URL, and returns which parts it has.
///
/// ```
/// let parts = kubernetes_cel::url_parts("https://a.example.com/b?c").unwrap();
/// assert_eq!((&*parts.scheme, parts.has_user, parts.has_query), ("https", false, true));
/// let why = kubernetes_cel::url_parts(":").unwrap_err();
/// assert_eq!(why, "parse \":\": missing protocol scheme");
/// ```
///
/// # Errors
/// The error of Go's `url.Parse`.
pub fn url_parts(text: &str) -> Result<UrlParts, String> {
    let Parsed { scheme, user, query, fragment, .. } = parse_reference(text)?;
    Ok(UrlParts {
        scheme,
        has_user: user.is_some(),
        has_query: !query.is_empty(),
        has_fragment: !fragment.is_empty(),
    })
}

fn parse_error(text: &str, why: &str) -> String {
    format!("parse {}: {why}", quote(text))
}

fn parse(text: &str, is_request: bool) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && is_request {
        return Err("empty url".to_owned());
    }
    if text == "*" {
        parsed.path = b"*".to_vec();
        return Ok(parsed);
    }
    let (scheme, mut rest) = scheme(text)?;
    parsed.scheme = scheme.to_ascii_lowercase();
    if let Some((before, query)) = rest.split_once('?') {
        (rest, parsed.has_query) = (before, query.is_empty());
        parsed.query = query.to_owned();
    }
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            parsed.opaque = rest.to_owned();
            return Ok(parsed);
        }
        if is_request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let may_have_host = !scheme.is_empty() || (!is_request && !rest.starts_with("///"));
    if let Some(authority) = rest.strip_prefix("//").filter(|_| may_have_host) {
        let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
        parsed.authority(authority)?;
        rest = path;
    } else {
        parsed.omits_host = !scheme.is_empty() && rest.starts_with('/');
    }
    parsed.path = unescape(rest, Part::Path)?;
    parsed.raw_path = raw(rest, &parsed.path, Part::Path);
    Ok(parsed)
}

/// The scheme of a URL, if it has one, and the rest.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

impl Parsed {
    fn authority(&mut self, authority: &str) -> Result<(), String> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = parse_host(&self.scheme, host)?;
        let Some(user) = user else { return Ok(()) };
        if !user
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(char))
        {
            return Err("net/url: invalid userinfo".to_owned());
        }
        let (name, password) = match user.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (user, None),
        };
        let name = unescape(name, Part::User)?;
        let password = password.map(|password| unescape(password, Part::User)).transpose()?;
        self.user = Some((name, password));
        Ok(())
    }

    /// The path with all escapes that it needs.
    pub(super) fn escaped_path(&self) -> String {
        match &self.raw_path {
            Some(raw) if is_encoded(raw, Part::Path) => raw.clone(),
            _ if self.path == b"*" => "*".to_owned(),
            _ => escape(&self.path, Part::Path),
        }
    }

    /// The host without its port.
    pub(super) fn hostname(&self) -> &[u8] {
        split_host(&self.host).0
    }

    /// The port; empty if the URL has none.
    pub(super) fn port(&self) -> &[u8] {
        split_host(&self.host).1
    }

    /// The URL in Go's format.
    pub(super) fn write(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.extend([self.scheme.as_str(), ":"]);
        }
        if !self.opaque.is_empty() {
            out.push_str(&self.opaque);
        } else {
            self.write_authority(&mut out);
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                out.push('/');
            }
            let has_colon = path.split('/').next().is_some_and(|segment| segment.contains(':'));
            if out.is_empty() && has_colon {
                out.push_str("./");
            }
            out.push_str(&path);
        }
        if self.has_query || !self.query.is_empty() {
            out.extend(["?", self.query.as_str()]);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            out.push_str(&match &self.raw_fragment {
                Some(raw) if is_encoded(raw, Part::Fragment) => raw.clone(),
                _ => escape(&self.fragment, Part::Fragment),
            });
        }
        out
    }

    fn write_authority(&self, out: &mut String) {
        let has_authority = !self.host.is_empty() || self.user.is_some();
        let may_have = !self.scheme.is_empty() && !self.omits_host;
        if has_authority || (may_have && !self.path.is_empty()) {
            out.push_str("//");
        }
        if let Some((name, password)) = &self.user {
            out.push_str(&escape(name, Part::User));
            if let Some(password) = password {
                out.push(':');
                out.push_str(&escape(password, Part::User));
            }
            out.push('@');
        }
        out.push_str(&escape(&self.host, Part::Host));
    }
}

fn split_host(host: &[u8]) -> (&[u8], &[u8]) {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let (name, port) = match colon {
        Some(at) if host[at + 1..].iter().all(u8::is_ascii_digit) => (&host[..at], &host[at + 1..]),
        _ => (host, &[][..]),
    };
    match name {
        [b'[', inner @ .., b']'] => (inner, port),
        _ => (name, port),
    }
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    match (host.rfind('['), host.find(':')) {
        (Some(1..), _) => return Err("invalid IP-literal".to_owned()),
        (Some(_), _) => return parse_bracketed(host),
        (None, Some(first)) => {
            // Only the URLs of databases list several hosts with ports.
            let is_web = ["http", "https"].contains(&scheme);
            let last = host.rfind(':').unwrap_or(first);
            check_port(&host[if is_web { first } else { last }..])?;
        }
        (None, None) => {}
    }
    unescape(host, Part::Host)
}

fn parse_bracketed(host: &str) -> Result<Vec<u8>, String> {
    let Some(end) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
    let (name, port) = (&host[1..end], &host[end + 1..]);
    check_port(port)?;
    let port = unescape(port, Part::Host)?;
    let name = match name.find("%25") {
        Some(at) => {
            let mut whole = unescape(&name[..at], Part::Host)?;
            whole.extend(unescape(&name[at..], Part::Zone)?);
            whole
        }
        None => unescape(name, Part::Host)?,
    };
    addresses::check_ipv6(&crate::go_text::decode(&name))?;
    Ok([b"[", name.as_slice(), b"]", port.as_slice()].concat())
}

fn check_port(port: &str) -> Result<(), String> {
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    match is_port {
        true => Ok(()),
        false => Err(format!("invalid port {} after host", quote(port))),
    }
}

/// The bytes of a part after its escapes are decoded.
///
/// # Errors
/// Go's error: an invalid escape, or a character that is not allowed in the part.
pub(super) fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        at += 1;
        match byte {
            b'%' => {
                let digits =
                    bytes.get(at..at + 2).and_then(|digits| std::str::from_utf8(digits).ok());
                let digits = digits.filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
                let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let is_percent = digits == Some("25");
                let value = value.filter(|value| match part {
                    Part::Host => *value >= 0x80 || is_percent,
                    Part::Zone => is_percent || *value == b' ' || is_plain(*value, Part::Host),
                    _ => true,
                });
                let Some(value) = value else {
                    let shown =
                        crate::go_text::quote_bytes(&bytes[at - 1..bytes.len().min(at + 2)]);
                    return Err(format!("invalid URL escape {shown}"));
                };
                unescaped.push(value);
                at += 2;
            }
            b'+' if part == Part::Query => unescaped.push(b' '),
            odd if matches!(part, Part::Host | Part::Zone)
                && odd < 0x80
                && !is_plain(odd, part) =>
            {
                let shown = quote(&char::from(odd).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            plain => unescaped.push(plain),
        }
    }
    Ok(unescaped)
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes {
        match is_plain(*byte, part) {
            true => escaped.push(char::from(*byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// The part as given, if its escapes differ from Go's.
fn raw(given: &str, unescaped: &[u8], part: Part) -> Option<String> {
    (escape(unescaped, part) != given).then(|| given.to_owned())
}

fn is_encoded(text: &str, part: Part) -> bool {
    text.bytes().all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || is_plain(byte, part))
}

fn is_plain(byte: u8, part: Part) -> bool {
    byte.is_ascii_alphanumeric()
        || b"-_.~".contains(&byte)
        || match part {
            Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
            Part::Path => b"$&+,/:;=@".contains(&byte),
            Part::User => b"$&+,;=".contains(&byte),
            Part::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
            Part::Query => false,
        }
}
