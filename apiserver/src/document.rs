//! Document: an answer that depends only on the kinds, made once at start.

use bytes::Bytes;
use http::HeaderValue;
use serde_json::Value;
use sha2::{Digest, Sha512};

/// A document that is made from the kinds.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its bytes.
    pub body: Bytes,
    /// Its media type.
    pub content_type: &'static str,
    /// The hash of its content, quoted.
    pub etag: Option<HeaderValue>,
    /// The `Cache-Control` header, where it is not that of every answer.
    pub cache_control: Option<&'static str>,
}

impl Document {
    /// A document in JSON, without a hash.
    pub fn json(content: &Value) -> Self {
        Self {
            body: format!("{content}\n").into(),
            content_type: "application/json",
            etag: None,
            cache_control: None,
        }
    }

    /// A document in JSON that people read, without a hash.
    pub fn indented(content: &Value) -> Self {
        Self { body: format!("{content:#}").into(), ..Self::json(&Value::Null) }
    }

    /// The same document with the hash of this text.
    #[must_use]
    pub fn hashed(mut self, text: &str) -> Self {
        self.etag = HeaderValue::from_str(&format!("\"{}\"", hash(text))).ok();
        self
    }
}

/// SHA-512 in upper-case hexadecimal, as Kubernetes writes hashes of documents.
pub fn hash(text: &str) -> String {
    use std::fmt::Write as _;
    let digest = Sha512::digest(text);
    digest.iter().fold(String::with_capacity(128), |mut hash, byte| {
        let _ = write!(hash, "{byte:02X}");
        hash
    })
}
