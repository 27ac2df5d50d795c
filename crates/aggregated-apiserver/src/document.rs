//! Document: a response that depends only on the served kinds, and is generated once at start.

use bytes::Bytes;
use http::HeaderValue;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha512};

/// A document that is generated from the served kinds.
#[derive(Clone, Debug)]
pub struct Document {
    /// The body.
    pub body: Bytes,
    /// The media type.
    pub content_type: &'static str,
    /// The hash of the content, in quotes.
    pub etag: Option<HeaderValue>,
    /// The `Cache-Control` header, if it differs from that of other responses.
    pub cache_control: Option<&'static str>,
}

impl Document {
    /// A JSON document without a hash. The fields of its objects are in the order of kube-apiserver.
    pub fn json(content: &Value) -> Self {
        let mut body = String::new();
        write_ordered(content, true, &mut body);
        body.push('\n');
        Self::of_text(body)
    }

    /// An indented JSON document without a hash, for documents that kube-apiserver always indents.
    pub fn indented_json(content: &impl Serialize) -> Self {
        // A tree with string keys always encodes.
        Self::of_text(serde_json::to_string_pretty(content).unwrap_or_default())
    }

    fn of_text(text: String) -> Self {
        let content_type = "application/json";
        Self { body: text.into(), content_type, etag: None, cache_control: None }
    }

    /// An indented JSON document for human readers, without a hash.
    pub fn indented(content: &Value) -> Self {
        Self { body: format!("{content:#}").into(), ..Self::json(&Value::Null) }
    }

    /// Sets the hash of this text as the ETag.
    #[must_use]
    pub fn hashed(mut self, text: &str) -> Self {
        self.etag = HeaderValue::from_str(&format!("\"{}\"", hash(text))).ok();
        self
    }
}

/// The order of fields in discovery documents, which is that of the Go types. Other fields follow by name.
const FIELDS: [&str; 28] = [
    "metadata",
    "resource",
    "subresource",
    "responseKind",
    "name",
    "singularName",
    "namespaced",
    "groupVersion",
    "group",
    "version",
    "kind",
    "resources",
    "freshness",
    "scope",
    "singularResource",
    "acceptedTypes",
    "verbs",
    "shortNames",
    "categories",
    "subresources",
    "storageVersionHash",
    "groups",
    "items",
    "versions",
    "preferredVersion",
    "serverAddressByClientCIDRs",
    "clientCIDR",
    "serverAddress",
];

/// Writes a value. The fields of each object are in the order of [`FIELDS`]; `kind` and `apiVersion` are first in the
/// outermost object.
fn write_ordered(value: &Value, is_outermost: bool, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let position = |name: &str| match name {
                "kind" if is_outermost => 0,
                "apiVersion" => 1,
                name => 2 + FIELDS.iter().position(|field| *field == name).unwrap_or(FIELDS.len()),
            };
            let mut names: Vec<&String> = fields.keys().collect();
            // Stable: fields that are not in the table stay sorted by name.
            names.sort_by_key(|name| position(name));
            write_list('{', names, '}', out, |name, out| {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_ordered(&fields[name.as_str()], false, out);
            });
        }
        Value::Array(items) => {
            write_list('[', items.iter().collect(), ']', out, |item, out| {
                write_ordered(item, false, out);
            });
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn write_list<'a, T>(
    opening: char,
    items: Vec<&'a T>,
    closing: char,
    out: &mut String,
    write: impl Fn(&'a T, &mut String),
) {
    out.push(opening);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(closing);
}

/// The SHA-512 hash in upper-case hexadecimal, which is the format of Kubernetes for documents.
pub fn hash(text: &str) -> String {
    use std::fmt::Write as _;
    let digest = Sha512::digest(text);
    digest.iter().fold(String::with_capacity(128), |mut hash, byte| {
        let _ = write!(hash, "{byte:02X}");
        hash
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_in_the_order_of_kube_apiserver() {
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [{
                "kind": "Pod", "name": "pods", "verbs": ["get"], "shortNames": ["po"],
                "namespaced": true, "singularName": "pod", "storageVersionHash": "x", "a": {"b": []},
            }],
        });
        let expected = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"],"shortNames":["po"],"storageVersionHash":"x","a":{"b":[]}}]}"#;
        assert_eq!(Document::json(&list).body, format!("{expected}\n"));
        let group = json!({
            "name": "apps", "versions": [{"version": "v1", "groupVersion": "apps/v1"}],
            "preferredVersion": {"version": "v1", "groupVersion": "apps/v1"},
            "kind": "APIGroup", "apiVersion": "v1",
        });
        let expected = r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#;
        assert_eq!(Document::json(&group).body, format!("{expected}\n"));
        let aggregated = json!({"resource": "pods", "responseKind": {"kind": "Pod", "version": "", "group": ""},
            "scope": "Namespaced", "singularResource": "pod", "verbs": [],
            "subresources": [{"verbs": ["get"], "subresource": "status", "responseKind": {}}]});
        let expected = r#"{"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":[],"subresources":[{"subresource":"status","responseKind":{},"verbs":["get"]}]}"#;
        assert_eq!(Document::json(&aggregated).body, format!("{expected}\n"));
    }
}
