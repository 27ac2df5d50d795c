//! Compression of large responses, for clients that accept gzip.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};

/// The size up to which a response is not compressed, in bytes; same as in kube-apiserver.
pub(super) const THRESHOLD: usize = 128 << 10;

/// Sets the headers of a compressed response.
pub(super) fn announce(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses a response in pieces.
pub(super) struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    pub(super) fn new() -> Self {
        // The fast level, because compression reduces transfer time, not storage.
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Compresses a piece of the response. Returns the output that is ready.
    pub(super) fn compress(&mut self, bytes: &[u8]) -> Vec<u8> {
        // Writing into memory does not fail.
        let _ = self.0.write_all(bytes);
        std::mem::take(self.0.get_mut())
    }

    /// Returns the end of the compressed response.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let _ = self.0.try_finish();
        std::mem::take(self.0.get_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn gzip_chunks_decompress_to_the_whole_input() {
        let text = "kubernetes ".repeat(50_000);
        let mut gzip = Gzip::new();
        let mut compressed = Vec::new();
        for piece in text.as_bytes().chunks(70_000) {
            compressed.extend(gzip.compress(piece));
        }
        compressed.extend(gzip.finish());
        let mut read = String::new();
        flate2::read::GzDecoder::new(&compressed[..]).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
    }
}
