//! Compression of large responses, for clients that accept it.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};

/// The largest response that is not compressed, in bytes, same as in kube-apiserver.
pub(super) const THRESHOLD: usize = 128 << 10;

/// Sets the headers of a compressed response.
pub(super) fn announce(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses a response piece by piece.
pub(super) struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    pub(super) fn new() -> Self {
        // Fast compression, because it saves network time and not disk space.
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// The next compressed piece, as far as it is complete.
    pub(super) fn compress(&mut self, bytes: &[u8]) -> Vec<u8> {
        // Writing to memory cannot fail.
        let _ = self.0.write_all(bytes);
        std::mem::take(self.0.get_mut())
    }

    /// The end of the response.
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
