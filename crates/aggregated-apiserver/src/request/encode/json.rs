//! Whole objects in JSON: the stored bytes with their revision.

use super::Page;
use crate::kind::Kind;
use crate::storage::Versioned;

/// Writes one object.
pub(super) fn write(versioned: &Versioned, out: &mut Vec<u8>) {
    versioned.object.write(versioned.revision, out);
}

/// Writes one item of a list. Only items of custom resources contain `apiVersion` and `kind`.
pub(super) fn write_item(kind: &Kind, versioned: &Versioned, out: &mut Vec<u8>) {
    if kind.is_typed() {
        versioned.object.write_without_types(versioned.revision, out);
    } else {
        write(versioned, out);
    }
}

/// Writes the fields of a list before its items. The fields of custom resource lists are sorted by name, because
/// kube-apiserver has no Go type for them; other lists have the order of their Go type.
pub(super) fn start_list(kind: &Kind, version: &str, page: &Page, out: &mut Vec<u8>) {
    let (api_version, list_kind) = (kind.api_version(version), &kind.names.list_kind);
    let start = match kind.is_typed() {
        true => format!(
            "{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{}}},\"items\":[",
            page.metadata(false)
        ),
        false => format!("{{\"apiVersion\":\"{api_version}\",\"items\":["),
    };
    out.extend_from_slice(start.as_bytes());
}

/// Writes the fields of a list after its items.
pub(super) fn end_list(kind: &Kind, page: &Page, out: &mut Vec<u8>) {
    if kind.is_typed() {
        out.extend_from_slice(b"]}");
        return;
    }
    let (list_kind, metadata) = (&kind.names.list_kind, page.metadata(true));
    let end = format!("],\"kind\":\"{list_kind}\",\"metadata\":{{{metadata}}}}}");
    out.extend_from_slice(end.as_bytes());
}
