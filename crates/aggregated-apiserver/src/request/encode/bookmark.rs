//! BOOKMARK events: events that contain only a revision.

use serde_json::{Value, json};

use super::super::negotiate::{Form, Include, MetaVersion};
use super::{Encoder, table};
use crate::verb::Bookmark;

/// The annotation of the bookmark that follows the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Writes the object of a bookmark. `columns` controls whether a table describes its columns.
pub(super) fn write(encoder: &Encoder, bookmark: Bookmark, columns: bool, out: &mut Vec<u8>) {
    let object = match encoder.format.form {
        Form::Object => object(encoder, bookmark),
        Form::PartialMetadata(version) => partial(version, bookmark),
        Form::Table(version) => {
            table::start(encoder, version, bookmark.revision, None, columns, out);
            out.extend_from_slice(row(encoder, version, bookmark).to_string().as_bytes());
            table::end(out);
            return;
        }
    };
    out.extend_from_slice(object.to_string().as_bytes());
}

fn metadata(bookmark: Bookmark) -> Value {
    let mut metadata = json!({"resourceVersion": bookmark.revision.to_string()});
    if bookmark.ends_initial {
        metadata["annotations"] = json!({INITIAL_END: "true"});
    }
    metadata
}

fn object(encoder: &Encoder, bookmark: Bookmark) -> Value {
    let mut object = json!({
        "apiVersion": encoder.kind.api_version(&encoder.version.name),
        "kind": encoder.kind.names.kind,
        "metadata": metadata(bookmark),
    });
    // Go serializes some fields even if they are empty.
    if let Value::Object(object) = &mut object {
        encoder.kind.coerce_again(&encoder.version, object);
    }
    object
}

fn partial(version: MetaVersion, bookmark: Bookmark) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": metadata(bookmark),
    })
}

/// A table row without a name; its object contains the revision.
fn row(encoder: &Encoder, version: MetaVersion, bookmark: Bookmark) -> Value {
    let mut cells = vec![Value::from("")];
    cells.extend(encoder.version.columns.iter().map(|_| Value::Null));
    let object = match encoder.format.include {
        Include::Object => object(encoder, bookmark),
        Include::None if !bookmark.ends_initial => Value::Null,
        Include::Metadata | Include::None => partial(version, bookmark),
    };
    json!({"cells": cells, "object": object})
}
