//! OpenAPI: the operations and the schemas of each kind, and of group versions with paths.
//!
//! The documents are generated at the first request, and depend only on the kinds. They contain only the group versions
//! of this server, because kube-aggregator publishes the content of a document under the name of the server. Each ETag
//! is the hash of the content, because kube-aggregator compares ETags instead of contents.

mod kubernetes;
mod operations;
mod protobuf;
mod schemas;
mod typed;

use std::collections::BTreeMap;
use std::iter;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};

use crate::document::{Document, hash};
use crate::served_kind::{Backing, ServedKinds};

/// A change of a document that the program makes.
pub type ChangeDocument = Arc<dyn Fn(&mut Members) + Send + Sync>;

/// The OpenAPI documents.
pub struct OpenApi {
    kinds: ServedKinds,
    change: Option<ChangeDocument>,
    made: OnceLock<Documents>,
    v2_in_protobuf: OnceLock<Document>,
}

#[derive(Debug)]
struct Documents {
    v2: Document,
    v3: Document,
    v3_by_version: BTreeMap<(String, String), Version>,
}

/// The entries of a document: paths or schemas.
type Members = Map<String, Value>;

/// The document of one version, and its hash.
#[derive(Debug)]
struct Version {
    hash: String,
    document: Document,
}

impl OpenApi {
    /// The documents of these kinds, with a change of the program.
    pub fn new(kinds: &ServedKinds, change: Option<ChangeDocument>) -> Self {
        let (made, v2_in_protobuf) = (OnceLock::new(), OnceLock::new());
        Self { kinds: kinds.clone(), change, made, v2_in_protobuf }
    }

    /// Whether the documents were generated already; generating them takes long.
    pub fn are_made(&self, in_protobuf: bool) -> bool {
        match in_protobuf {
            true => self.v2_in_protobuf.get().is_some(),
            false => self.made.get().is_some(),
        }
    }

    /// Generates the documents.
    pub fn make(&self, in_protobuf: bool) {
        self.made();
        if in_protobuf {
            self.v2_in_protobuf();
        }
    }

    fn made(&self) -> &Documents {
        self.made.get_or_init(|| Documents::new(&self.kinds, self.change.as_ref()))
    }

    /// `/openapi/v2`
    pub fn v2(&self) -> &Document {
        &self.made().v2
    }

    /// `/openapi/v2` in protobuf.
    pub fn v2_in_protobuf(&self) -> &Document {
        self.v2_in_protobuf.get_or_init(|| {
            let v2 = self.v2();
            let content: Value = serde_json::from_slice(&v2.body).unwrap_or_default();
            Document {
                body: protobuf::document(&content).into(),
                content_type: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                ..v2.clone()
            }
        })
    }

    /// `/openapi/v3`
    pub fn v3(&self) -> &Document {
        &self.made().v3
    }

    /// `/openapi/v3/apis/G/V`, `/openapi/v3/api/V`. A request with the current hash may cache the document forever. A
    /// request with an old hash gets the current document, because kube-aggregator cannot follow a redirect.
    pub fn v3_version(&self, group: &str, version: &str, asked: Option<&str>) -> Option<Document> {
        let key = (group.to_owned(), version.to_owned());
        let Version { hash, document } = self.made().v3_by_version.get(&key)?;
        let mut document = document.clone();
        if asked.is_some_and(|asked| asked == hash) {
            document.cache_control = Some("public, immutable");
        }
        Some(document)
    }
}

impl Documents {
    fn new(kinds: &ServedKinds, change: Option<&ChangeDocument>) -> Self {
        let mut by_version: BTreeMap<(String, String), (Members, Members)> = BTreeMap::new();
        for served in kinds.iter() {
            let kind = &served.kind;
            for version in &kind.versions {
                let key = (kind.group.clone(), version.name.clone());
                let (paths, described) = by_version.entry(key).or_default();
                paths.extend(operations::paths(served, version));
                let bodies =
                    kind.subresource_handlers.iter().map(|handler| &handler.kind().storage);
                for version in iter::once(version).chain(bodies) {
                    if let Some(id) = version.schema.root_name() {
                        described.extend(typed::schemas(version.schema.types(), id));
                    }
                }
                if matches!(served.backing, Backing::Elsewhere) {
                    continue;
                }
                let names = &kind.names;
                let object = schemas::object(kind, version);
                described.insert(schemas::name(kind, version, &names.kind), object);
                // Reviews are never listed.
                if !matches!(served.backing, Backing::Reviewed(_)) {
                    let list = schemas::list(kind, version);
                    described.insert(schemas::name(kind, version, &names.list_kind), list);
                }
            }
        }
        for served in kinds.group_versions() {
            let described = served.paths.described();
            let key = (described.group().to_owned(), described.version().to_owned());
            let (paths, schemas) = by_version.entry(key).or_default();
            paths.extend(operations::of_group_version(&served.paths));
            schemas.extend(described.schemas().iter().cloned());
        }
        let info = json!({"title": "Kubernetes", "version": env!("CARGO_PKG_VERSION")});
        let mut v2_paths = Map::new();
        let mut v2_definitions = Map::new();
        let mut v3_paths = Map::new();
        let mut v3_by_version = BTreeMap::new();
        for ((group, version), (paths, mut described)) in by_version {
            let has_scale = paths.keys().any(|path| path.ends_with("/scale"));
            let scale = has_scale.then(|| kubernetes::map("scale")).into_iter().flatten();
            for (name, schema) in kubernetes::map("schemas").iter().chain(scale) {
                described.entry(name.clone()).or_insert_with(|| schema.clone());
            }
            v2_paths
                .extend(paths.iter().map(|(path, item)| (path.clone(), operations::to_v2(item))));
            v2_definitions.extend(
                described.iter().map(|(name, schema)| (name.clone(), schemas::to_v2(schema, true))),
            );
            let document = json!({
                "openapi": "3.0.0",
                "info": info,
                "paths": paths,
                "components": {"schemas": described},
            });
            let document = changed(document, change);
            let text = document.to_string();
            let hash = hash(&text);
            let path = crate::kind::root(&group, &version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            v3_paths.insert(path, json!({"serverRelativeURL": url}));
            let document = Document::json(&document).hashed(&text);
            v3_by_version.insert((group, version), Version { hash, document });
        }
        let v2 = json!({
            "swagger": "2.0",
            "info": info,
            "paths": v2_paths,
            "definitions": v2_definitions,
        });
        let v2 = changed(v2, change);
        let v3 = json!({"paths": v3_paths});
        Self { v2: hashed(&v2), v3: hashed(&v3), v3_by_version }
    }
}

/// A document with the change of the program. If the change panics, the document has no change.
fn changed(document: Value, change: Option<&ChangeDocument>) -> Value {
    let (Some(change), Value::Object(members)) = (change, &document) else { return document };
    let mut changed = members.clone();
    match std::panic::catch_unwind(AssertUnwindSafe(|| change(&mut changed))) {
        Ok(()) => Value::Object(changed),
        Err(_) => {
            tracing::error!("the change of an OpenAPI document panicked; it is served unchanged");
            document
        }
    }
}

fn hashed(content: &Value) -> Document {
    Document::json(content).hashed(&content.to_string())
}
