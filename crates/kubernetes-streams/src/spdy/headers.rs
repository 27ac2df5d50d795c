//! Compressed header blocks of SPDY/3.1.

use std::sync::LazyLock;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Error;

/// The words of the compression dictionary, each with its length in front (SPDY/3, section 2.6.10.1).
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host \
    if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// The rest of the dictionary, which has no lengths.
const REST: &str = "1001012012022052063003023033043053063074024054064074084094104114124134144154164175025045052\
    03 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,\
    image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivate\
    max-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
/// The Adler-32 checksum of the dictionary.
const CHECKSUM: u32 = 0xe3c6_a7c2;
/// The header of a zlib stream with a dictionary.
const ZLIB_HEADER: [u8; 2] = [0x78, 0xbb];
/// The longest stored block of a deflate stream, in bytes.
const STORED_LIMIT: usize = 0xffff;

static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::new();
    for word in WORDS.split(' ').map(|word| word.replace('_', " ")) {
        put_string(&mut dictionary, word.as_bytes());
    }
    dictionary.extend_from_slice(REST.as_bytes());
    dictionary
});

/// Decompresses the header blocks of one direction of a connection.
#[derive(Debug)]
pub(super) struct HeaderDecoder {
    zlib: Decompress,
    /// The maximum size of a decompressed block, in bytes.
    limit: usize,
}

impl HeaderDecoder {
    pub(super) fn new(limit: usize) -> Self {
        Self { zlib: Decompress::new(true), limit }
    }

    /// Returns the headers of a block.
    ///
    /// # Errors
    /// When the block is invalid or larger than the limit. The connection cannot continue.
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<HeaderMap, Error> {
        parse(Bytes::from(self.decompress(block)?))
    }

    fn decompress(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Error> {
        let mut decompressed = Vec::new();
        let mut part = [0; 1024];
        loop {
            let (read, written) = (self.zlib.total_in(), self.zlib.total_out());
            let result = self.zlib.decompress(block, &mut part, FlushDecompress::Sync);
            let read = usize::try_from(self.zlib.total_in() - read).unwrap_or(block.len());
            let written = usize::try_from(self.zlib.total_out() - written).unwrap_or(part.len());
            block = block.get(read..).unwrap_or_default();
            decompressed.extend_from_slice(part.get(..written).unwrap_or_default());
            if decompressed.len() > self.limit {
                return Err(Error::protocol(format!("headers of more than {} bytes", self.limit)));
            }
            match result {
                Ok(Status::StreamEnd) => return Err(Error::protocol("the headers ended")),
                Ok(_) if written == part.len() => {}
                Ok(_) if block.is_empty() => return Ok(decompressed),
                Ok(_) if read + written > 0 => {}
                Ok(_) => return Err(Error::protocol("incomplete compressed headers")),
                Err(error) => {
                    let set = error.needs_dictionary().filter(|&checksum| checksum == CHECKSUM);
                    let set = set.and_then(|_| self.zlib.set_dictionary(&DICTIONARY).ok());
                    set.ok_or_else(|| Error::protocol("invalid compressed headers"))?;
                }
            }
        }
    }
}

/// Encodes the header blocks of one direction of a connection.
///
/// Blocks are stored without compression, which every zlib reader accepts. The headers of a server are empty, and the
/// state of a compressor would be 256 KiB for each connection.
#[derive(Debug, Default)]
pub(super) struct HeaderEncoder {
    has_begun: bool,
}

/// The largest number of values in a block. Clients send three or four.
const VALUES: usize = 32;

impl HeaderEncoder {
    /// Appends a block to a frame.
    pub(super) fn encode(&mut self, headers: &HeaderMap, frame: &mut BytesMut) {
        if !std::mem::replace(&mut self.has_begun, true) {
            frame.extend_from_slice(&ZLIB_HEADER);
            frame.put_u32(CHECKSUM);
        }
        for part in serialize(headers).chunks(STORED_LIMIT) {
            put_stored(frame, part);
        }
        // Readers in Go return the headers when an empty block follows.
        put_stored(frame, &[]);
    }
}

fn put_stored(frame: &mut BytesMut, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or_default();
    frame.put_u8(0);
    frame.put_u16_le(length);
    frame.put_u16_le(!length);
    frame.extend_from_slice(bytes);
}

fn serialize(headers: &HeaderMap) -> Vec<u8> {
    let mut block = Vec::new();
    block.put_u32(u32::try_from(headers.keys_len()).unwrap_or_default());
    for name in headers.keys() {
        put_string(&mut block, name.as_str().as_bytes());
        let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        put_string(&mut block, &values.join(&0));
    }
    block
}

fn put_string(block: &mut Vec<u8>, bytes: &[u8]) {
    block.put_u32(u32::try_from(bytes.len()).unwrap_or_default());
    block.extend_from_slice(bytes);
}

fn parse(mut block: Bytes) -> Result<HeaderMap, Error> {
    let invalid = || Error::protocol("invalid headers");
    let mut headers = HeaderMap::new();
    for _ in 0..block.try_get_u32().map_err(|_| invalid())? {
        let name = take_string(&mut block).ok_or_else(invalid)?;
        let name = HeaderName::from_lowercase(&name).map_err(|_| invalid())?;
        if headers.contains_key(&name) {
            return Err(Error::protocol(format!("two headers {name}")));
        }
        let values = take_string(&mut block).ok_or_else(invalid)?;
        for value in values.split(|&byte| byte == 0) {
            // A value takes some seventy bytes of memory, also an empty one.
            if headers.len() >= VALUES {
                return Err(Error::protocol("too many headers"));
            }
            let value = HeaderValue::from_bytes(value).map_err(|_| invalid())?;
            headers.try_append(name.clone(), value).map_err(|_| invalid())?;
        }
    }
    if block.is_empty() { Ok(headers) } else { Err(invalid()) }
}

fn take_string(block: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(block.try_get_u32().ok()?).ok()?;
    (length <= block.len()).then(|| block.split_to(length))
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    /// Compresses in the same way as the SPDY library of Kubernetes.
    fn compressed(zlib: &mut Compress, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(block.len() + 100);
        zlib.compress_vec(block, &mut out, FlushCompress::Sync).unwrap();
        out
    }

    fn compressor() -> Compress {
        let mut zlib = Compress::new(Compression::best(), true);
        assert_eq!(zlib.set_dictionary(&DICTIONARY).unwrap(), CHECKSUM);
        zlib
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn blocks_are_decoded_in_order() {
        let (mut zlib, mut decoder) = (compressor(), HeaderDecoder::new(1000));
        for port in ["80", "443", "65535"] {
            let headers = headers(&[("port", port), ("streamtype", "data")]);
            let block = compressed(&mut zlib, &serialize(&headers));
            assert_eq!(decoder.decode(&block).unwrap(), headers);
        }
    }

    #[test]
    fn blocks_with_many_values_are_refused() {
        let block = |values: usize| {
            let mut block = 1u32.to_be_bytes().to_vec();
            put_string(&mut block, b"port");
            put_string(&mut block, &vec![0; values - 1]);
            parse(block.into())
        };
        assert_eq!(block(VALUES).unwrap().len(), VALUES);
        assert!(matches!(block(VALUES + 1), Err(Error::Protocol(_))));
    }

    #[test]
    fn encoded_blocks_are_decoded() {
        let (mut encoder, mut decoder) = (HeaderEncoder::default(), HeaderDecoder::new(1 << 20));
        let long = "x".repeat(100_000);
        let mut several = headers(&[("a", "1"), ("b", "")]);
        several.append("a", HeaderValue::from_static("2"));
        for headers in [HeaderMap::new(), several, headers(&[("long", &long)])] {
            let mut block = BytesMut::new();
            encoder.encode(&headers, &mut block);
            assert_eq!(decoder.decode(&block).unwrap(), headers);
        }
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut zlib = compressor();
        let block = compressed(&mut zlib, &vec![0; 10 << 20]);
        let error = HeaderDecoder::new(16 << 10).decode(&block).unwrap_err();
        assert_eq!(error.to_string(), "protocol error: headers of more than 16384 bytes");
    }

    #[test]
    fn random_blocks_are_no_panic() {
        fastrand::seed(1);
        let valid = compressed(&mut compressor(), &serialize(&headers(&[("port", "80")])));
        for _ in 0..20_000 {
            let mut block = valid.clone();
            for _ in 0..fastrand::usize(1..4) {
                let at = fastrand::usize(..block.len());
                block[at] = fastrand::u8(..);
            }
            block.truncate(fastrand::usize(..=block.len()));
            let _ = HeaderDecoder::new(1000).decode(&block);
        }
        for _ in 0..20_000 {
            let block: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(40).collect();
            let _ = parse(Bytes::from(block));
        }
    }
}
