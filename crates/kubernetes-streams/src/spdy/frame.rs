//! Frames of SPDY/3.1.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;

use super::headers::{HeaderDecoder, HeaderEncoder};
use crate::Error;

const VERSION: u16 = 3;
const CONTROL: u16 = 0x8000;
/// The size of the fields in front of a payload, in bytes.
const HEAD: usize = 8;
const FIN: u8 = 1;
const UNIDIRECTIONAL: u8 = 2;
const ID_MASK: u32 = 0x7fff_ffff;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// The status codes of RST_STREAM that this crate sends.
pub(super) const REFUSED_STREAM: u32 = 3;
pub(super) const CANCEL: u32 = 5;

/// The status codes of GOAWAY that this crate sends.
pub(super) const GOAWAY_OK: u32 = 0;
pub(super) const GOAWAY_PROTOCOL_ERROR: u32 = 1;

/// A frame without data.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Control {
    /// A new stream. `unidirectional` is set if the receiver may not send data.
    SynStream { id: u32, fin: bool, unidirectional: bool, headers: HeaderMap },
    /// The other side accepts a stream.
    SynReply { id: u32, fin: bool, headers: HeaderMap },
    /// A stream ends in both directions.
    RstStream { id: u32, status: u32 },
    /// A request for the same frame.
    Ping(u32),
    /// The other side accepts no further streams.
    GoAway { last: u32, status: u32 },
    /// Further headers of a stream.
    Headers { id: u32, fin: bool, headers: HeaderMap },
    /// SETTINGS, WINDOW_UPDATE, or an unknown type. The implementation of Kubernetes ignores them, too: it has no flow
    /// control for a single stream.
    Ignored,
}

/// The begin of a frame, as it is read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Received {
    Control(Control),
    /// A frame with data. Its data, `length` bytes, follows and is not decoded.
    Data {
        id: u32,
        fin: bool,
        length: usize,
    },
}

impl Control {
    /// Appends the frame to the output.
    pub(super) fn encode(&self, encoder: &mut HeaderEncoder, output: &mut BytesMut) {
        let (kind, flags) = match self {
            Self::SynStream { fin, unidirectional, .. } => {
                (SYN_STREAM, (u8::from(*fin) * FIN) | (u8::from(*unidirectional) * UNIDIRECTIONAL))
            }
            Self::SynReply { fin, .. } => (SYN_REPLY, u8::from(*fin) * FIN),
            Self::RstStream { .. } => (RST_STREAM, 0),
            Self::Ping(_) => (PING, 0),
            Self::GoAway { .. } => (GOAWAY, 0),
            Self::Headers { fin, .. } => (HEADERS, u8::from(*fin) * FIN),
            Self::Ignored => return,
        };
        let mut payload = BytesMut::new();
        match self {
            Self::SynStream { id, headers, .. } => {
                payload.put_u32(*id);
                // No associated stream, the highest priority, no slot.
                payload.put_slice(&[0; 6]);
                encoder.encode(headers, &mut payload);
            }
            Self::SynReply { id, headers, .. } | Self::Headers { id, headers, .. } => {
                payload.put_u32(*id);
                encoder.encode(headers, &mut payload);
            }
            Self::RstStream { id: first, status: second }
            | Self::GoAway { last: first, status: second } => {
                payload.put_u32(*first);
                payload.put_u32(*second);
            }
            Self::Ping(id) => payload.put_u32(*id),
            Self::Ignored => {}
        }
        output.put_u16(CONTROL | VERSION);
        output.put_u16(kind);
        put_flags_and_length(flags, payload.len(), output);
        output.extend_from_slice(&payload);
    }
}

/// Appends a frame with data to the output.
pub(super) fn encode_data(id: u32, fin: bool, data: &[u8], output: &mut BytesMut) {
    output.put_u32(id & ID_MASK);
    put_flags_and_length(u8::from(fin) * FIN, data.len(), output);
    output.extend_from_slice(data);
}

fn put_flags_and_length(flags: u8, length: usize, output: &mut BytesMut) {
    output.put_u8(flags);
    output.put_uint(u64::try_from(length).unwrap_or_default(), 3);
}

/// Decodes the frames of one direction of a connection.
#[derive(Debug)]
pub(super) struct Decoder {
    headers: HeaderDecoder,
    /// The maximum size of the payload of a control frame, in bytes.
    limit: usize,
}

impl Decoder {
    pub(super) fn new(limit: usize) -> Self {
        Self { headers: HeaderDecoder::new(limit), limit }
    }

    /// Removes the next frame from the input, if all of it was received. The data of a frame stays in the input.
    ///
    /// # Errors
    /// When the frame is invalid or larger than the limit. The connection cannot continue.
    pub(super) fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Received>, Error> {
        let Some(head) = input.first_chunk::<HEAD>().copied() else { return Ok(None) };
        let mut head = &head[..];
        let first = head.get_u32();
        let flags = head.get_u8();
        let length = usize::try_from(head.get_uint(3)).unwrap_or(usize::MAX);
        if first & !ID_MASK == 0 {
            if first == 0 {
                return Err(Error::protocol("data of stream 0"));
            }
            input.advance(HEAD);
            return Ok(Some(Received::Data { id: first, fin: flags & FIN != 0, length }));
        }
        let (version, kind) = ((first & ID_MASK) >> 16, first & 0xffff);
        if version != u32::from(VERSION) {
            return Err(Error::protocol(format!("a frame of version {version}")));
        }
        if length > self.limit {
            return Err(Error::protocol(format!("a control frame of {length} bytes")));
        }
        if input.len() < HEAD + length {
            return Ok(None);
        }
        let mut payload = input.split_to(HEAD + length).freeze();
        payload.advance(HEAD);
        let control = self.control(u16::try_from(kind).unwrap_or_default(), flags, payload)?;
        Ok(Some(Received::Control(control)))
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: Bytes) -> Result<Control, Error> {
        let fin = flags & FIN != 0;
        let short = |_| Error::protocol("a control frame that is too short");
        let stream = |payload: &mut Bytes| match payload.try_get_u32().map_err(short)? & ID_MASK {
            0 => Err(Error::protocol("a control frame of stream 0")),
            id => Ok(id),
        };
        Ok(match kind {
            SYN_STREAM => {
                let id = stream(&mut payload)?;
                payload.try_copy_to_slice(&mut [0; 6]).map_err(short)?;
                let unidirectional = flags & UNIDIRECTIONAL != 0;
                let headers = self.headers.decode(&payload)?;
                Control::SynStream { id, fin, unidirectional, headers }
            }
            SYN_REPLY => {
                let id = stream(&mut payload)?;
                Control::SynReply { id, fin, headers: self.headers.decode(&payload)? }
            }
            HEADERS => {
                let id = stream(&mut payload)?;
                Control::Headers { id, fin, headers: self.headers.decode(&payload)? }
            }
            RST_STREAM => {
                let id = stream(&mut payload)?;
                Control::RstStream { id, status: payload.try_get_u32().map_err(short)? }
            }
            PING => Control::Ping(payload.try_get_u32().map_err(short)?),
            GOAWAY => {
                let last = payload.try_get_u32().map_err(short)? & ID_MASK;
                Control::GoAway { last, status: payload.try_get_u32().map_err(short)? }
            }
            _ => Control::Ignored,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 4096;

    fn frames() -> Vec<Control> {
        let mut headers = HeaderMap::new();
        headers.insert("streamtype", "data".parse().unwrap());
        headers.insert("port", "8080".parse().unwrap());
        vec![
            Control::SynStream {
                id: 1,
                fin: false,
                unidirectional: true,
                headers: headers.clone(),
            },
            Control::SynStream {
                id: 3,
                fin: true,
                unidirectional: false,
                headers: headers.clone(),
            },
            Control::SynReply { id: 1, fin: false, headers: HeaderMap::new() },
            Control::RstStream { id: 1, status: CANCEL },
            Control::Ping(7),
            Control::GoAway { last: 3, status: GOAWAY_OK },
            Control::Headers { id: 0x7fff_ffff, fin: true, headers },
        ]
    }

    fn encoded() -> BytesMut {
        let (mut encoder, mut bytes) = (HeaderEncoder::default(), BytesMut::new());
        for frame in frames() {
            frame.encode(&mut encoder, &mut bytes);
        }
        bytes
    }

    #[test]
    fn frames_are_decoded_from_any_parts() {
        for part in [1, 7, 1000] {
            let (mut decoder, mut input, mut decoded) =
                (Decoder::new(LIMIT), BytesMut::new(), Vec::new());
            for bytes in encoded().chunks(part) {
                input.extend_from_slice(bytes);
                while let Some(frame) = decoder.decode(&mut input).unwrap() {
                    decoded.push(frame);
                }
            }
            let expected: Vec<_> = frames().into_iter().map(Received::Control).collect();
            assert_eq!(decoded, expected);
            assert!(input.is_empty());
        }
    }

    #[test]
    fn data_stays_in_the_input() {
        let mut input = BytesMut::new();
        encode_data(5, true, b"llama", &mut input);
        let data = Received::Data { id: 5, fin: true, length: 5 };
        assert_eq!(Decoder::new(LIMIT).decode(&mut input).unwrap(), Some(data));
        assert_eq!(&input[..], b"llama");
    }

    #[test]
    fn settings_and_window_updates_are_ignored() {
        for kind in [4, 9, 77] {
            let mut input = BytesMut::from(&[0x80, 3, 0, kind, 0, 0, 0, 2, 1, 1][..]);
            let decoded = Decoder::new(LIMIT).decode(&mut input).unwrap();
            assert_eq!(decoded, Some(Received::Control(Control::Ignored)));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn large_and_invalid_frames_are_refused() {
        let refused: [&[u8]; 5] = [
            &[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff],
            &[0x80, 2, 0, 1, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0],
            &[0x80, 3, 0, 6, 0, 0, 0, 1, 0],
            &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        for bytes in refused {
            let decoded = Decoder::new(LIMIT).decode(&mut BytesMut::from(bytes));
            assert!(matches!(decoded, Err(Error::Protocol(_))), "{bytes:?}: {decoded:?}");
        }
    }

    #[test]
    fn mutated_frames_are_no_panic() {
        fastrand::seed(2);
        for _ in 0..20_000 {
            let (mut decoder, mut input) = (Decoder::new(LIMIT), encoded());
            for _ in 0..fastrand::usize(1..5) {
                let at = fastrand::usize(..input.len());
                input[at] = fastrand::u8(..);
            }
            input.truncate(fastrand::usize(..=input.len()));
            while let Ok(Some(frame)) = decoder.decode(&mut input) {
                if let Received::Data { length, .. } = frame {
                    input.advance(length.min(input.len()));
                }
            }
        }
    }
}
