//! Functions of URLs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::net_url::{Parsed, Part, parse_reference, parse_request_uri, unescape};
use super::{Extension, Native};
use crate::go_text::decode;
use crate::value::{Entries, Failure, Key, Map, Outcome, Value};

/// The largest number of parameters in a query, same as in Go. A query with more parameters counts as empty.
const MOST_PARAMETERS: usize = 10_000;

/// A URL.
#[derive(Clone, Debug)]
pub(crate) struct Url {
    parsed: Parsed,
    /// The URL in Go's format. Equal URLs have equal strings.
    text: String,
}

impl Url {
    /// The URL in Go's format.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "url" => |_, all| match all {
            [Value::String(text)] => match url(text.as_str()) {
                Ok(url) => Ok(Value::Extension(Arc::new(Extension::Url(Box::new(url))))),
                Err(why) => Err(Failure::new(format!(
                    "URL parse error during conversion from string: {why}"
                ))),
            },
            _ => Err(Failure::no_such_overload()),
        },
        "isURL" => |_, all| match all {
            [Value::String(text)] => Ok(Value::Bool(parse_request_uri(text.as_str()).is_ok())),
            _ => Err(Failure::no_such_overload()),
        },
        "getScheme" => |_, all| part(all, |url| Value::text(url.scheme.as_str())),
        "getHost" => |_, all| part(all, |url| Value::text(decode(&url.host))),
        "getHostname" => |_, all| part(all, |url| Value::text(decode(url.hostname()))),
        "getPort" => |_, all| part(all, |url| Value::text(decode(url.port()))),
        "getEscapedPath" => |_, all| part(all, |url| Value::text(url.escaped_path())),
        "getQuery" => |_, all| part(all, |url| query(&url.query)),
        _ => return None,
    })
}

/// Checks the URL of a request, which is a whole URL or a path, same as the format `uri`.
///
/// # Errors
/// The error of Go's `url.ParseRequestURI`.
pub fn check_url(text: &str) -> Result<(), String> {
    parse_request_uri(text).map(drop)
}

fn url(text: &str) -> Result<Url, String> {
    // A request has no fragment, so the parts are those of the second parser.
    check_url(text)?;
    let parsed = parse_reference(text)?;
    Ok(Url { text: parsed.write(), parsed })
}

fn part<'v>(all: &[Value<'v>], of: fn(&Parsed) -> Value<'static>) -> Outcome<'v> {
    match all {
        [Value::Extension(value)] => match &**value {
            Extension::Url(url) => Ok(of(&url.parsed)),
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

/// The values of each query parameter. Parameters with invalid escapes are omitted.
fn query(query: &str) -> Value<'static> {
    let mut found: BTreeMap<String, Vec<Value<'static>>> = BTreeMap::new();
    let text = |part: &str| unescape(part, Part::Query).ok().map(|bytes| decode(&bytes));
    let count = query.split('&').count();
    let pairs = query.split('&').filter(|_| count <= MOST_PARAMETERS);
    for pair in pairs.filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(name), Some(value)) = (text(name), text(value)) {
            found.entry(name).or_default().push(Value::text(value));
        }
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
