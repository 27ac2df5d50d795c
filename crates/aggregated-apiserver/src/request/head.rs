//! The memory of the head of a request.

use http::{HeaderMap, Uri};

/// The memory of the URI and the headers of a request, in bytes.
pub fn memory(uri: &Uri, headers: &HeaderMap) -> usize {
    /// The memory of a header besides its name and its value, in bytes.
    const HEADER: usize = 100;
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    headers.sum::<usize>() + uri.path().len() + uri.query().map_or(0, str::len)
}
