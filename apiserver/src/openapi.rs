//! OpenAPI: small, valid documents.
//!
//! They name our group versions and nothing else: what a document lists,
//! kube-aggregator publishes under our name. Each is made at start, and its
//! ETag is the hash of its content.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::document::{Document, hash};
use crate::served_kind::ServedKinds;

/// The documents.
#[derive(Debug)]
pub struct OpenApi {
    v2: Document,
    v3: Document,
    v3_by_version: BTreeMap<(String, String), Document>,
}

impl OpenApi {
    /// Makes all documents.
    pub fn new(kinds: &ServedKinds) -> Self {
        let mut versions: Vec<(String, String)> = Vec::new();
        for served in kinds.iter() {
            for version in &served.kind.versions {
                let version = (served.kind.group.clone(), version.name.clone());
                if !versions.contains(&version) {
                    versions.push(version);
                }
            }
        }
        let info = json!({"title": "Kubernetes", "version": env!("CARGO_PKG_VERSION")});
        let mut v2_paths = json!({});
        let mut v3_paths = json!({});
        let mut v3_by_version = BTreeMap::new();
        for (group, version) in versions {
            let path = format!("/apis/{group}/{version}/");
            v2_paths[&path] = json!({"get": {
                "description": "get available resources",
                "produces": ["application/json"],
                "responses": {"200": {"description": "OK"}},
            }});
            let document = json!({"openapi": "3.0.0", "info": info, "paths": {&path: {"get": {
                "description": "get available resources",
                "responses": {"200": {"description": "OK"}},
            }}}});
            let url =
                format!("/openapi/v3/apis/{group}/{version}?hash={}", hash(&document.to_string()));
            v3_paths[format!("apis/{group}/{version}")] = json!({"serverRelativeURL": url});
            v3_by_version.insert((group, version), hashed(&document));
        }
        let v2 = json!({"swagger": "2.0", "info": info, "paths": v2_paths, "definitions": {}});
        let v3 = json!({"paths": v3_paths});
        Self { v2: hashed(&v2), v3: hashed(&v3), v3_by_version }
    }

    /// `/openapi/v2`
    pub fn v2(&self) -> &Document {
        &self.v2
    }

    /// `/openapi/v3`
    pub fn v3(&self) -> &Document {
        &self.v3
    }

    /// `/openapi/v3/apis/G/V`
    pub fn v3_version(&self, group: &str, version: &str) -> Option<&Document> {
        self.v3_by_version.get(&(group.to_owned(), version.to_owned()))
    }
}

fn hashed(content: &Value) -> Document {
    Document::json(content).hashed(&content.to_string())
}
