//! Documents that are served from memory: discovery, OpenAPI, the version and the metrics.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::json;

use super::negotiate::{self, Media, Presentation};
use super::route::DocumentPath;
use super::served::Served;
use super::{Handler, encode, keep_out_of_caches, query};
use crate::document::Document;
use crate::error::ApiError;

/// Documents that are not generated from the kinds.
pub struct Documents {
    /// `/version`
    pub version: Document,
    /// The other documents, by path.
    pub others: HashMap<String, Document>,
}

impl Handler {
    /// Returns the response to `/version`.
    pub fn version(&self) -> Response<Body> {
        let body = Body::from(self.documents.version.body.clone());
        let mut response = encode::started(StatusCode::OK, Media::Json, body);
        keep_out_of_caches(&mut response);
        response
    }

    /// Returns the response to `/metrics`.
    pub fn metrics(&self) -> Response<Body> {
        encode::metrics(self.metrics.text())
    }

    /// Returns a document, in the form that the client requests.
    ///
    /// # Errors
    /// 404 if the document does not exist, 406 if it is not available in this form.
    pub(super) async fn document(
        &self,
        head: &Parts,
        document: &DocumentPath,
    ) -> Result<Response<Body>, ApiError> {
        let served = self.served.load_full();
        if document.is_openapi() {
            let in_protobuf = matches!(document, DocumentPath::OpenApiV2)
                && negotiate::prefers_openapi_in_protobuf(head);
            self.make_openapi(&served, in_protobuf).await;
        }
        let openapi = &served.openapi;
        // The code of the user is called only for documents of discovery.
        let discovery = LazyCell::new(|| served.discovery());
        let mut presentation = Presentation { media: Media::Json, gzip: false };
        let found = match document {
            DocumentPath::Core => {
                let (aggregated, wanted) = negotiate::discovery(head)?;
                presentation = wanted;
                discovery.core(aggregated)
            }
            DocumentPath::Groups => {
                let (aggregated, wanted) = negotiate::discovery(head)?;
                presentation = wanted;
                Some(if aggregated { discovery.aggregated() } else { discovery.groups() })
            }
            DocumentPath::Group(group) => {
                presentation = negotiate::plain(head)?;
                discovery.group(group)
            }
            DocumentPath::Version(group, version) => {
                presentation = negotiate::plain(head)?;
                discovery.version(group, version)
            }
            DocumentPath::Paths => {
                let document = Document::indented(&json!({"paths": self.paths(&served)}));
                return Ok(encode::document(head, &document, presentation));
            }
            DocumentPath::ServerVersion => return Ok(self.version()),
            DocumentPath::Metrics => return Ok(self.metrics()),
            DocumentPath::OpenApiV2 if negotiate::prefers_openapi_in_protobuf(head) => {
                Some(openapi.v2_in_protobuf())
            }
            DocumentPath::OpenApiV2 | DocumentPath::OpenApiV3Version(..)
                if !negotiate::takes_json(head) =>
            {
                return Ok(encode::not_acceptable());
            }
            DocumentPath::OpenApiV2 => Some(openapi.v2()),
            DocumentPath::OpenApiV3 => Some(openapi.v3()),
            DocumentPath::OpenApiV3Version(group, version) => {
                let query = head.uri.query().unwrap_or_default();
                let hash = query::pairs(query).find(|(key, _)| key == "hash");
                let hash = hash.as_ref().map(|(_, hash)| hash.as_ref());
                let document = openapi.v3_version(group, version, hash);
                let document = document.ok_or_else(ApiError::no_such_resource)?;
                let mut response = encode::document(head, &document, presentation);
                if document.cache_control.is_some() {
                    encode::keep_for_a_year(&mut response, self.clock.now());
                }
                return Ok(response);
            }
        };
        let found = found.ok_or_else(ApiError::no_such_resource)?;
        Ok(encode::document(head, found, presentation))
    }

    /// The paths of all documents, sorted.
    fn paths(&self, served: &Served) -> Vec<String> {
        const FIXED: [&str; 8] = [
            "/apis",
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ];
        let mut paths: Vec<String> = FIXED.map(str::to_owned).into();
        paths.extend(served.discovery().paths());
        paths.extend(self.documents.others.keys().cloned());
        paths.sort_unstable();
        paths
    }

    /// Builds the OpenAPI documents on a thread for blocking work, one at a time. The thread holds the lock, because it
    /// continues when the request ends.
    async fn make_openapi(&self, served: &Arc<Served>, in_protobuf: bool) {
        if served.openapi.are_made(in_protobuf) {
            return;
        }
        let turn = Arc::clone(&self.openapi_turn).lock_owned().await;
        if !served.openapi.are_made(in_protobuf) {
            let served = Arc::clone(served);
            let make = move || {
                let _turn = turn;
                served.openapi.make(in_protobuf);
            };
            if let Err(why) = tokio::task::spawn_blocking(make).await {
                tracing::error!(error = %why, "cannot build the OpenAPI documents");
            }
        }
    }
}
