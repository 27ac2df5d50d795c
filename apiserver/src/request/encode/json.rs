//! Whole objects: stored bytes with their revision.

use super::Page;
use crate::kind::Kind;
use crate::storage::Versioned;

/// One object.
pub(super) fn write(versioned: &Versioned, out: &mut Vec<u8>) {
    versioned.object.write(versioned.revision, out);
}

/// One of a list. Lists of custom resources say of each item what it is.
pub(super) fn write_item(kind: &Kind, versioned: &Versioned, out: &mut Vec<u8>) {
    if kind.is_typed() {
        versioned.object.write_without_types(versioned.revision, out);
    } else {
        write(versioned, out);
    }
}

/// What a list begins with.
pub(super) fn start_list(kind: &Kind, version: &str, out: &mut Vec<u8>) {
    let start = format!("{{\"apiVersion\":\"{}\",\"items\":[", kind.api_version(version));
    out.extend_from_slice(start.as_bytes());
}

/// What a list ends with.
pub(super) fn end_list(kind: &Kind, page: &Page, out: &mut Vec<u8>) {
    let (list_kind, metadata) = (&kind.names.list_kind, page.metadata(!kind.is_typed()));
    let end = format!("],\"kind\":\"{list_kind}\",\"metadata\":{{{metadata}}}}}");
    out.extend_from_slice(end.as_bytes());
}
