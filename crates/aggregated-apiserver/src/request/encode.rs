//! Encoding of responses.

mod bookmark;
mod deadline_stream;
mod event;
mod gzip;
mod indent;
mod json;
mod partial_metadata;
mod protobuf;
mod response;
mod shared_forms;
pub(super) mod stream;
mod table;
mod warnings;
mod yaml;

pub(super) use self::deadline_stream::until;
pub(super) use self::response::{
    document, keep_for_a_year, metrics, not_acceptable, respond, say_waited, started, watching,
};
pub(super) use self::shared_forms::{SharedForms, limit as shared_forms_limit};
pub(super) use self::warnings::warn;

use axum::body::Body;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

use self::response::respond_typed;
use super::negotiate::{Form, Format};
use crate::error::{ApiError, Details};
use crate::kind::{Kind, Version};
use crate::object::{Tree, to_json};
use crate::schema::Types;
use crate::storage::{Revision, Versioned};
use crate::verb::{Deleted, ListPage};

/// The metadata of one page of a list.
pub(super) struct Page {
    revision: Revision,
    /// The token of the next page; empty on the last one.
    token: String,
    remaining: Option<u64>,
}

impl Page {
    pub(super) fn of(listed: &ListPage) -> Self {
        Self {
            revision: listed.revision(),
            token: listed.next_token(),
            remaining: listed.remaining().filter(|&remaining| remaining > 0),
        }
    }

    /// The fields of a list's metadata, in their order; a list of custom resources always has `continue`.
    fn metadata(&self, always_continues: bool) -> String {
        let revision = format!("\"resourceVersion\":\"{}\"", self.revision);
        let mut members = Vec::new();
        if !always_continues {
            members.push(revision.clone());
        }
        if always_continues || !self.token.is_empty() {
            members.push(format!("\"continue\":\"{}\"", self.token));
        }
        if let Some(remaining) = self.remaining {
            members.push(format!("\"remainingItemCount\":{remaining}"));
        }
        // The fields of lists without a Go type are sorted by name.
        if always_continues {
            members.push(revision);
        }
        members.join(",")
    }
}

/// Encodes objects of one kind in the requested format.
#[derive(Clone)]
pub(super) struct Encoder {
    kind: Arc<Kind>,
    version: Arc<Version>,
    format: Format,
    now: Timestamp,
    forms: SharedForms,
}

impl Encoder {
    /// Creates an encoder for a kind. Ages are computed relative to `now`. Encoded events are shared with the other
    /// encoders that use `forms`.
    pub(super) fn new(
        kind: &Arc<Kind>,
        version: &Arc<Version>,
        format: Format,
        now: Timestamp,
        forms: &SharedForms,
    ) -> Self {
        let (kind, version) = (Arc::clone(kind), Arc::clone(version));
        Self { kind, version, format, now, forms: forms.clone() }
    }

    /// Returns an object in the requested version.
    fn in_version(&self, versioned: &Versioned) -> Result<Versioned, ApiError> {
        let object = self.kind.in_version_shared(&versioned.object, &self.version)?;
        Ok(Versioned { revision: versioned.revision, object })
    }

    /// The kind of the objects.
    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The requested format.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Sets the time that ages are computed from.
    pub(super) fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Returns a response with one object.
    ///
    /// # Errors
    /// 500 if the object cannot be converted to the requested version.
    pub(super) fn object(
        &self,
        versioned: &Versioned,
        status: StatusCode,
        warnings: &[String],
    ) -> Result<Response<Body>, ApiError> {
        let mut out = Vec::with_capacity(versioned.object.size() + 64);
        self.write_object(versioned, true, &mut out)?;
        let mut response = self.respond(status, out);
        warn(&mut response, warnings);
        Ok(response)
    }

    /// Returns the response to a review.
    pub(super) fn review(&self, answer: &Tree, warnings: &[String]) -> Response<Body> {
        let out = to_json(&Value::Object(answer.clone())).into_bytes();
        let mut response = self.respond(StatusCode::CREATED, out);
        warn(&mut response, warnings);
        response
    }

    /// Returns the response to a successful POST without an object: a Status.
    pub(super) fn success(&self, warnings: &[String]) -> Response<Body> {
        let code = StatusCode::CREATED;
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "code": code.as_u16(),
        });
        let mut response = self.respond(code, status.to_string().into_bytes());
        warn(&mut response, warnings);
        response
    }

    /// The protobuf message types of the objects.
    fn types(&self) -> &Types {
        self.version.schema.types()
    }

    fn respond(&self, status: StatusCode, json: Vec<u8>) -> Response<Body> {
        respond_typed(status, self.format.presentation, json, self.types())
    }

    /// Writes one object. `columns` controls whether a table describes its columns.
    fn write_object(
        &self,
        versioned: &Versioned,
        columns: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        match self.format.form {
            Form::Object => json::write(&self.in_version(versioned)?, out),
            Form::PartialMetadata(_) => self.write_item(versioned, out)?,
            Form::Table(version) => {
                table::start(self, version, versioned.revision, None, columns, out);
                self.write_item(versioned, out)?;
                table::end(out);
            }
        }
        Ok(())
    }

    /// Writes the beginning of a list.
    pub(super) fn start_list(&self, listed: &Page, out: &mut Vec<u8>) {
        match self.format.form {
            Form::Object => json::start_list(&self.kind, &self.version.name, listed, out),
            Form::PartialMetadata(version) => partial_metadata::start_list(version, listed, out),
            Form::Table(version) => {
                table::start(self, version, listed.revision, Some(listed), true, out);
            }
        }
    }

    /// Writes one item of a list. A metadata list also contains objects that cannot be converted, with their metadata
    /// as stored, because the garbage collector and the namespace controller read these lists.
    ///
    /// # Errors
    /// 500 if the object cannot be converted to the requested version.
    pub(super) fn write_item(
        &self,
        versioned: &Versioned,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        match self.format.form {
            Form::Object => json::write_item(&self.kind, &self.in_version(versioned)?, out),
            Form::PartialMetadata(version) => {
                let object = self.kind.with_metadata_in_version(&versioned.object, &self.version);
                let versioned = Versioned { revision: versioned.revision, object };
                partial_metadata::write(version, &versioned, out);
            }
            Form::Table(version) => {
                table::write_row(self, version, &self.in_version(versioned)?, out);
            }
        }
        Ok(())
    }

    /// Writes the end of a list.
    pub(super) fn end_list(&self, page: &Page, out: &mut Vec<u8>) {
        match self.format.form {
            Form::Object => json::end_list(&self.kind, page, out),
            Form::PartialMetadata(_) => partial_metadata::end_list(out),
            Form::Table(_) => table::end(out),
        }
    }

    /// Returns the response to a deletion: the object if finalizers or dependents delay its deletion, otherwise a
    /// Status. The Status has no `code`, and clients wait for its `uid`.
    ///
    /// # Errors
    /// 500 if the object cannot be converted to the requested version; the object is deleted nevertheless.
    pub(super) fn deleted(
        &self,
        deleted: &Deleted,
        answers_accepted: bool,
    ) -> Result<Response<Body>, ApiError> {
        let (name, uid) = match deleted {
            Deleted::Gone { shown: Some(versioned), .. } => {
                return self.object(versioned, StatusCode::OK, &[]);
            }
            Deleted::Gone { name, uid, .. } => (name.clone(), uid.clone()),
            Deleted::Marked(versioned) => {
                let waits = if answers_accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
                return self.object(versioned, waits, &[]);
            }
        };
        let status = DeletionStatus {
            kind: "Status",
            api_version: "v1",
            metadata: Tree::new(),
            status: "Success",
            details: Details {
                name,
                group: self.kind.group.clone(),
                kind: self.kind.names.plural.clone(),
                uid,
                ..Details::default()
            },
        };
        let body = serde_json::to_vec(&status).unwrap_or_default();
        Ok(self.respond(StatusCode::OK, body))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeletionStatus {
    kind: &'static str,
    api_version: &'static str,
    metadata: Tree,
    status: &'static str,
    details: Details,
}
