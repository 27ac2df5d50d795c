//! The body of a request: an object of the kind in JSON, YAML or protobuf, of limited length.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::codec::{self, ParseError, Parsed, YamlParsers};
use crate::error::{ApiError, Reason, no_object};
use crate::kind::{Kind, Version};
use crate::object::Tree;
use crate::quota::Account;
use crate::schema::Types;
use crate::write::{SentText, Submitted, no_scale};

/// The maximum length of a body, in bytes; same as in kube-apiserver.
pub(super) const LIMIT: usize = 3 << 20;
/// The longest time to read a body, which holds memory until then: `READ_TIMEOUT`, and one second more for every
/// `PER_SECOND` bytes.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const PER_SECOND: usize = 256 << 10;
/// The maximum number of bytes of a body that messages contain; same as in kube-apiserver.
const SHOWN: usize = 30;

/// The format of a body.
#[derive(Clone, Debug)]
pub(super) enum BodyFormat {
    Json,
    /// YAML, with its parsers.
    Yaml(YamlParsers),
    /// Protobuf, with the types of its messages.
    Protobuf(Arc<Types>),
}

impl BodyFormat {
    /// Parses a body.
    ///
    /// # Errors
    /// The result of `malformed` if the body is malformed; 413 and 429 if it exceeds a memory limit.
    pub(super) async fn parse(
        &self,
        bytes: &Bytes,
        account: &Account,
        malformed: impl Fn(&str) -> ApiError,
    ) -> Result<Parsed, ApiError> {
        self.parsed_as(codec::from_json, bytes, account, malformed).await
    }

    /// Parses a body that is an object. Its `managedFields` may stay unparsed text.
    async fn parse_object(
        &self,
        bytes: &Bytes,
        account: &Account,
        malformed: impl Fn(&str) -> ApiError,
    ) -> Result<Parsed, ApiError> {
        self.parsed_as(codec::object_from_json, bytes, account, malformed).await
    }

    async fn parsed_as(
        &self,
        from_json: FromJson,
        bytes: &Bytes,
        account: &Account,
        malformed: impl Fn(&str) -> ApiError,
    ) -> Result<Parsed, ApiError> {
        let parsed = self.parsed(from_json, bytes, account).await;
        parsed.map_err(|error| match error {
            ParseError::Malformed(why) => malformed(&why),
            ParseError::Refused(refused) => refused,
        })
    }

    async fn parsed(
        &self,
        from_json: FromJson,
        bytes: &Bytes,
        account: &Account,
    ) -> Result<Parsed, ParseError> {
        match self {
            Self::Json => from_json(bytes, account).map_err(|error| match error {
                ParseError::Malformed(why) => {
                    format!("couldn't get version/kind; json parse error: {why}").into()
                }
                refused @ ParseError::Refused(_) => refused,
            }),
            Self::Yaml(parsers) => parsers.parse(bytes.clone(), account).await,
            Self::Protobuf(types) => {
                let value = codec::from_protobuf(bytes, types, account)?;
                Ok(Parsed { value, duplicates: Vec::new(), managed_fields: None })
            }
        }
    }
}

/// A parser of JSON.
type FromJson = fn(&[u8], &Account) -> Result<Parsed, ParseError>;

/// Returns the format of a body. The default is JSON. Protobuf is supported only if its message types are known.
///
/// # Errors
/// 415 for any other format.
pub(super) fn format(
    headers: &HeaderMap,
    protobuf: Option<Arc<Types>>,
    yaml: &YamlParsers,
) -> Result<BodyFormat, ApiError> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let mut parts = given.unwrap_or_default().split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let is_well_formed = parts.all(|parameter| parameter.is_empty() || parameter.contains('='));
    match media_type.to_ascii_lowercase().as_str() {
        "" | "application/json" if is_well_formed => return Ok(BodyFormat::Json),
        "application/yaml" if is_well_formed => return Ok(BodyFormat::Yaml(yaml.clone())),
        "application/vnd.kubernetes.protobuf" if is_well_formed => {
            if let Some(types) = protobuf {
                return Ok(BodyFormat::Protobuf(types));
            }
        }
        _ => {}
    }
    let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    Err(ApiError::new(Reason::UnsupportedMediaType, message))
}

/// Reads the whole body.
pub(in crate::request) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING) {
        let message = format!("bodies with Content-Encoding {encoding:?} are not read");
        return Err(ApiError::new(Reason::UnsupportedMediaType, message));
    }
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // The connection reads and discards the rest of the body, so that the client receives the response.
    if announced.is_some_and(|length: u64| length > LIMIT as u64) {
        return Err(too_large(LIMIT));
    }
    let announced = announced.and_then(|length| usize::try_from(length).ok());
    let seconds = announced.unwrap_or(LIMIT) / PER_SECOND;
    let longest = READ_TIMEOUT + Duration::from_secs(seconds as u64);
    let read = tokio::time::timeout(longest, collect(body, announced.unwrap_or_default()));
    let Ok(read) = read.await else {
        let message = "Timeout: the body of the request did not arrive in time";
        return Err(ApiError::new(Reason::Timeout, message));
    };
    match read {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(too_large(LIMIT)),
        Err(error) => Err(ApiError::bad_request("the body could not be read").caused_by(error)),
    }
}

/// The error for a body that is longer than this number of bytes.
pub(in crate::request) fn too_large(limit: usize) -> ApiError {
    let message = format!("Request entity too large: limit is {limit}");
    ApiError::new(Reason::RequestEntityTooLarge, message)
}

/// Collects a body in one buffer, because a frame uses much more memory than its bytes. Returns `None` if the body is
/// too large. A body that arrives in one frame is not copied.
async fn collect(mut body: Body, announced: usize) -> Result<Option<Bytes>, axum::Error> {
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let length = first.len() + all.len() + data.len();
        if length > LIMIT {
            return Ok(None);
        }
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        if length > all.capacity() {
            // The capacity never exceeds the reserved memory.
            let capacity = announced.max(2 * all.capacity()).clamp(length, LIMIT);
            all.reserve_exact(capacity - all.len());
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&data);
    }
    Ok(Some(if all.is_empty() { first } else { all.into() }))
}

/// Returns the object in the body of a write.
pub(super) async fn object(
    kind: &Kind,
    version: &Version,
    format: BodyFormat,
    bytes: &Bytes,
    account: &Account,
) -> Result<Submitted, ApiError> {
    let unrecognized = |why: &str| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            kind.names.kind,
            head(bytes)
        ))
    };
    let mut parsed = format.parse_object(bytes, account, unrecognized).await?;
    if kind.is_typed() {
        if parsed.value.is_null() {
            parsed.value = Value::Object(Tree::new());
        }
        if let Value::Object(tree) = &mut parsed.value {
            kind.complete_type(tree, version).map_err(ApiError::bad_request)?;
        }
    }
    let body = || String::from_utf8_lossy(bytes);
    let Value::Object(tree) = parsed.value else {
        return Err(match parsed.value {
            Value::Null => unrecognized(&format!("Object 'Kind' is missing in '{}'", body())),
            other => unrecognized(&no_object(&other)),
        });
    };
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind").is_empty() {
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{}'", body())));
    }
    let api_version = text("apiVersion");
    if api_version.matches('/').count() > 1 {
        return Err(unrecognized(&format!("unexpected GroupVersion string: {api_version}")));
    }
    let expected = kind.api_version(&version.name);
    if api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    let Parsed { duplicates, managed_fields, .. } = parsed;
    let managed_fields = managed_fields.map(SentText::of);
    let is_in_order = kind.is_typed() && matches!(format, BodyFormat::Json);
    let json = is_in_order.then(|| bytes.clone());
    Ok(Submitted { tree, duplicates, json, managed_fields })
}

/// Returns the Scale in the body of a write. Its `apiVersion` and `kind` are optional.
pub(super) async fn scale(
    format: BodyFormat,
    bytes: &Bytes,
    account: &Account,
) -> Result<Submitted, ApiError> {
    let parsed = format.parse(bytes, account, |_| no_scale()).await?;
    match parsed.value {
        Value::Object(tree) => Ok(Submitted::new(tree, parsed.duplicates)),
        _ => Err(no_scale()),
    }
}

/// The beginning of a body, as messages contain it.
fn head(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    if bytes.is_empty() {
        return "<empty>".to_owned();
    }
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let mut text = if bytes.starts_with(b"{") {
        String::from_utf8_lossy(shown).into_owned()
    } else {
        let mut hexadecimal = String::new();
        for byte in shown {
            let _ = write!(hexadecimal, "{byte:02x}");
        }
        hexadecimal
    };
    if bytes.len() > SHOWN {
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> Body {
        let pieces: Vec<_> = pieces.into_iter().map(Ok::<_, String>).collect();
        Body::from_stream(futures::stream::iter(pieces))
    }

    #[tokio::test]
    async fn bodies_of_small_chunks_use_at_most_twice_their_size_or_the_announced_size() {
        let bytes = Bytes::from_static(b"0123456789").repeat(1_000);
        for announced in [0, bytes.len(), 2 * LIMIT] {
            let one_by_one = bytes.iter().map(|&byte| Bytes::copy_from_slice(&[byte]));
            let read = collect(pieces(one_by_one), announced).await.unwrap().unwrap();
            assert_eq!(read, bytes);
            let capacity = Vec::from(read).capacity();
            assert!(capacity <= (2 * bytes.len()).max(announced.min(LIMIT)), "{capacity}");
        }
        let whole = Bytes::from(bytes);
        let read = collect(pieces([Bytes::new(), whole.clone()]), 0).await.unwrap().unwrap();
        assert_eq!(read.as_ptr(), whole.as_ptr(), "it was not copied");
        let piece = || Bytes::from(vec![b' '; LIMIT / 2]);
        let most = collect(pieces([piece(), piece()]), 0).await.unwrap();
        assert_eq!(most.unwrap().len(), LIMIT);
        let more = pieces([piece(), piece(), Bytes::from_static(b" ")]);
        assert!(collect(more, 0).await.unwrap().is_none());
        assert!(collect(Body::empty(), 10).await.unwrap().unwrap().is_empty());
    }

    #[test]
    fn heads_of_bodies() {
        assert_eq!(head(b""), "<empty>");
        assert_eq!(head(b"{a"), "{a");
        assert_eq!(head(b"[]"), "5b5d");
        assert_eq!(
            head("{\"name\":\"a name of some length\"}".as_bytes()),
            "{\"name\":\"a name of some length ..."
        );
    }
}
