//! Continue tokens: the start of the next page of a list.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, engine::DecodePaddingMode};
use serde::{Deserialize, Serialize};

use crate::kind::MissingRights;
use crate::object::Key;
use crate::storage::Revision;
use crate::watch_cache::Scope;

/// The only version of tokens.
const VERSION: &str = "meta.k8s.io/v1";
/// The largest length of a token, in bytes. Tokens of this server are shorter, because names and namespaces are short.
const TOKEN_LIMIT: usize = 4_096;

/// The base64 variant of Go's `RawURLEncoding`.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// The start of the next page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of all pages. With `None` the page shows the current state, which may be inconsistent with the
    /// previous pages.
    pub revision: Option<Revision>,
    /// The first key that may be on the page.
    pub start: Key,
    /// The number of remaining objects in the scope, if it is known.
    pub left: Option<u64>,
    /// The permissions that the reader lacked on the previous pages, for tokens without a revision. A revision contains
    /// these permissions itself.
    pub left_out: MissingRights,
}

#[derive(Deserialize, Serialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
    /// An extension of this server, which avoids counting for every page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
    /// An extension of this server.
    #[serde(default, skip_serializing_if = "is_nothing")]
    left_out: MissingRights,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde requires
fn is_nothing(rights: &MissingRights) -> bool {
    *rights == 0
}

impl ContinueToken {
    /// Encodes the token for a list of the scope. The token is opaque to clients.
    pub fn to_token(&self, scope: &Scope) -> String {
        let start = match scope {
            Scope::All => format!("/{}", self.start),
            Scope::Namespace(_) | Scope::Object(_) => format!("/{}", self.start.name()),
        };
        let rv = self.revision.map_or(-1, |rv| i64::try_from(rv.number()).unwrap_or(i64::MAX));
        let token =
            Token { v: VERSION.to_owned(), rv, start, left: self.left, left_out: self.left_out };
        ENGINE.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    /// Decodes a token for a list of the scope. Clients can forge tokens, but a decoded token always starts inside the
    /// scope.
    ///
    /// # Errors
    /// The messages of kube-apiserver; only messages of its base64 and JSON parsers may differ.
    pub fn parse(token: &str, scope: &Scope) -> Result<Self, String> {
        if token.len() > TOKEN_LIMIT {
            return Err("continue key is not valid: it is too long".to_owned());
        }
        let invalid = |why: String| format!("continue key is not valid: {why}");
        let bytes = ENGINE.decode(token).map_err(|error| invalid(base64_fault(token, &error)))?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|error| invalid(json_fault(&bytes, &error)))?;
        if token.v != VERSION {
            let version = token.v;
            return Err(invalid(format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        if token.rv == 0 {
            let why = format!("incorrect encoded start resourceVersion (version {VERSION})");
            return Err(invalid(why));
        }
        if token.start.is_empty() {
            return Err(invalid(format!("encoded start key empty (version {VERSION})")));
        }
        let start = token.start.strip_prefix('/').unwrap_or(&token.start);
        let climbs = |step: &str| ["", ".", ".."].contains(&step);
        if start.split('/').any(climbs) {
            return Err(invalid(token.start));
        }
        let start = match (scope, start.split_once('/')) {
            (Scope::Namespace(namespace), _) => Key::new(Some(namespace), start),
            (Scope::Object(key), _) => Key::new(key.namespace(), start),
            (Scope::All, Some((namespace, name))) => Key::new(Some(namespace), name),
            (Scope::All, None) => Key::new(None, start),
        };
        let revision = u64::try_from(token.rv).ok().map(Revision::new);
        Ok(Self { revision, start, left: token.left, left_out: token.left_out })
    }
}

/// The message of Go for invalid base64: the position of the first invalid byte, or of the end of the string if it is
/// incomplete.
fn base64_fault(token: &str, error: &DecodeError) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        // The start of the incomplete group of four.
        DecodeError::InvalidLength(_) => token.len() / 4 * 4,
        DecodeError::InvalidPadding => token.find('=').unwrap_or(token.len()),
    };
    format!("illegal base64 data at input byte {at}")
}

fn json_fault(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    match String::from_utf8_lossy(bytes).chars().next() {
        Some(first) if error.is_syntax() && error.column() <= 1 => {
            format!("invalid character '{first}' looking for beginning of value")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(namespace: Option<&str>) -> Scope {
        namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()))
    }

    #[test]
    fn a_token_leads_back() {
        for (namespace, start) in
            [(None, Key::new(Some("n"), "a\0")), (Some("n"), Key::new(Some("n"), "a\0"))]
        {
            for revision in [None, Some(Revision::new(8_193))] {
                let page =
                    ContinueToken { revision, start: start.clone(), left: Some(5), left_out: 3 };
                let scope = scope(namespace);
                assert_eq!(ContinueToken::parse(&page.to_token(&scope), &scope), Ok(page));
            }
        }
    }

    #[test]
    fn a_token_leads_nowhere_else() {
        let other = ContinueToken {
            revision: None,
            start: Key::new(Some("secret"), "a"),
            left: None,
            left_out: 0,
        };
        let token = other.to_token(&Scope::All);
        let read = ContinueToken::parse(&token, &scope(Some("mine"))).unwrap();
        assert_eq!(read.start.namespace(), Some("mine"));
    }

    /// A token with one flipped bit is invalid, or starts in the same scope.
    #[test]
    fn an_altered_token_leads_nowhere_else() {
        let (mine, name) = (scope(Some("mine")), "a\0".to_owned());
        let page = ContinueToken {
            revision: Some(Revision::new(8_193)),
            start: Key::new(Some("mine"), &name),
            left: Some(5),
            left_out: 0,
        };
        let token = page.to_token(&mine);
        for bit in 0..token.len() * 8 {
            let mut altered = token.clone().into_bytes();
            altered[bit / 8] ^= 1 << (bit % 8);
            let Ok(altered) = String::from_utf8(altered) else { continue };
            if let Ok(page) = ContinueToken::parse(&altered, &mine) {
                assert_eq!(page.start.namespace(), Some("mine"), "{altered}");
            }
        }
    }

    #[test]
    fn invalid_continue_tokens_are_rejected_with_the_reason() {
        let of = |json: &str| ENGINE.encode(json);
        let rows = [
            ("x", "illegal base64 data at input byte 0"),
            ("!", "illegal base64 data at input byte 0"),
            ("abc=", "illegal base64 data at input byte 3"),
            (&of("hello"), "invalid character 'h' looking for beginning of value"),
            ("", "unexpected end of JSON input"),
            (&of("{"), "unexpected end of JSON input"),
            (&of("{}"), "server does not recognize this encoded version "),
            (
                &of(r#"{"v":"meta.k8s.io/v1","start":"/a"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                &of(r#"{"v":"meta.k8s.io/v1","rv":1}"#),
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            (&of(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/../a"}"#), "/../a"),
            (&of(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}"#), "a//b"),
        ];
        for (token, expected) in rows {
            let error = ContinueToken::parse(token, &Scope::All).unwrap_err();
            assert_eq!(error, format!("continue key is not valid: {expected}"), "{token}");
        }
        assert!(ContinueToken::parse(&"a".repeat(5_000), &Scope::All).is_err());
    }
}
