//! Tables, the format that kubectl prints.

use serde::Serialize;
use serde_json::{Value, json};

use super::super::negotiate::{Include, MetaVersion};
use super::{Encoder, Page, json as object_json, partial_metadata};
use crate::kind::RowCondition;
use crate::object::to_json;
use crate::storage::{Revision, Versioned};

const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// Writes the beginning of a table, up to its rows. Later events of a watch do not describe the columns.
pub(super) fn start(
    encoder: &Encoder,
    version: MetaVersion,
    revision: Revision,
    page: Option<&Page>,
    columns: bool,
    out: &mut Vec<u8>,
) {
    let metadata = match page {
        Some(page) => page.metadata(false),
        None => format!("\"resourceVersion\":\"{revision}\""),
    };
    let definitions = columns.then(|| definitions(encoder));
    // Columns consist of strings and numbers, so their encoding does not fail.
    let definitions = serde_json::to_string(&definitions).unwrap_or_default();
    let start = format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":{{{metadata}}},\"columnDefinitions\":{definitions},\"rows\":[",
        version.api_version()
    );
    out.extend_from_slice(start.as_bytes());
}

/// Writes one row.
pub(super) fn write_row(
    encoder: &Encoder,
    version: MetaVersion,
    versioned: &Versioned,
    out: &mut Vec<u8>,
) {
    let tree = versioned.object.to_tree();
    let strategy = &encoder.kind.strategy;
    let completed = strategy.completed.and_then(|completed| completed(&tree));
    let tree = Value::Object(tree);
    let name = (!strategy.has_name_column).then(|| versioned.object.key().name().into());
    let cells: Vec<Value> =
        name.into_iter().chain(encoder.version.columns.cells(&tree, encoder.now)).collect();
    out.extend_from_slice(b"{\"cells\":");
    out.extend_from_slice(to_json(&Value::Array(cells)).as_bytes());
    if let Some(RowCondition { reason, message }) = completed {
        let condition =
            json!({"type": "Completed", "status": "True", "reason": reason, "message": message});
        out.extend_from_slice(format!(",\"conditions\":[{condition}]").as_bytes());
    }
    out.extend_from_slice(b",\"object\":");
    match encoder.format.include {
        Include::Metadata => partial_metadata::write(version, versioned, out),
        Include::Object => object_json::write(versioned, out),
        Include::None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Writes the end of a table.
pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

/// The definition of a column, with the fields in the order of kube-apiserver.
#[derive(Serialize)]
struct ColumnDefinition<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    format: &'a str,
    description: &'a str,
    priority: i32,
}

fn definitions(encoder: &Encoder) -> Vec<ColumnDefinition<'_>> {
    let name = ColumnDefinition {
        name: "Name",
        type_name: "string",
        format: "name",
        description: NAME_DESCRIPTION,
        priority: 0,
    };
    let others = encoder.version.columns.iter().map(|column| ColumnDefinition {
        name: &column.name,
        type_name: column.type_name(),
        format: &column.format,
        description: &column.description,
        priority: column.priority,
    });
    let name = (!encoder.kind.strategy.has_name_column).then_some(name);
    name.into_iter().chain(others).collect()
}
