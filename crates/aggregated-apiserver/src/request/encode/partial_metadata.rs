//! PartialObjectMetadata in JSON: a slice of the stored bytes.

use super::super::negotiate::MetaVersion;
use super::Page;
use crate::storage::Versioned;

/// Writes the metadata of one object.
pub(super) fn write(version: MetaVersion, versioned: &Versioned, out: &mut Vec<u8>) {
    let start = format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{}\",\"metadata\":",
        version.api_version()
    );
    out.extend_from_slice(start.as_bytes());
    versioned.object.write_metadata(versioned.revision, out);
    out.push(b'}');
}

/// Writes the beginning of a list.
pub(super) fn start_list(version: MetaVersion, page: &Page, out: &mut Vec<u8>) {
    let start = format!(
        "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{}\",\"metadata\":{{{}}},\"items\":[",
        version.api_version(),
        page.metadata(false)
    );
    out.extend_from_slice(start.as_bytes());
}

/// Writes the end of a list.
pub(super) fn end_list(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}
