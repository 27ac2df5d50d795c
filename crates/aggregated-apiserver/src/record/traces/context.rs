//! The header `traceparent` of W3C Trace Context, which names the trace and the parent span of a request.

use http::{HeaderMap, HeaderName};

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A span of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// The trace; never 0.
    pub trace: u128,
    /// The span in the trace; never 0.
    pub span: u64,
    /// Whether the trace is sampled.
    pub is_sampled: bool,
}

/// The length of a header of version 00, in bytes: `00-` trace `-` span `-` flags.
const LENGTH: usize = 55;
/// The flag of sampled traces.
const SAMPLED: u8 = 1;

impl Remote {
    /// Returns the span in the header of a request. A malformed header is ignored.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(&TRACEPARENT)?.as_bytes())
    }

    fn parse(header: &[u8]) -> Option<Self> {
        let version = digits(header.get(..2)?)?;
        // Later versions can have further fields after another dash.
        let is_whole = match version {
            0 => header.len() == LENGTH,
            0xff => false,
            _ => header.len() == LENGTH || header.get(LENGTH) == Some(&b'-'),
        };
        let has_dashes = [2, 35, 52].iter().all(|&at| header.get(at) == Some(&b'-'));
        if !is_whole || !has_dashes {
            return None;
        }
        let trace = digits(header.get(3..35)?).filter(|&trace| trace != 0)?;
        let span = digits(header.get(36..52)?).filter(|&span| span != 0)?;
        let flags = digits(header.get(53..LENGTH)?)?;
        Some(Self {
            trace,
            span: u64::try_from(span).ok()?,
            is_sampled: flags & u128::from(SAMPLED) != 0,
        })
    }
}

/// Parses lower-case hexadecimal digits. The caller passes at most 32 of them.
fn digits(text: &[u8]) -> Option<u128> {
    text.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_headers_are_parsed_as_in_the_w3c_specification() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |text: &str| Remote::parse(text.as_bytes());
        let remote = Remote {
            trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span: 0xb7ad_6b71_6920_3331,
            is_sampled: true,
        };
        assert_eq!(read(good), Some(remote));
        assert_eq!(read(&good.replace("-01", "-00")), Some(Remote { is_sampled: false, ..remote }));
        assert_eq!(read(&good.replace("-01", "-ff")), Some(remote));
        let later = good.replace("00-0a", "01-0a");
        assert_eq!(read(&later), Some(remote));
        assert_eq!(read(&format!("{later}-more")), Some(remote));
        for hostile in [
            "",
            "00",
            "00-",
            &format!("{good}-more"),
            &format!("{later}more"),
            &good.replace("00-0a", "ff-0a"),
            &good.to_uppercase(),
            &good.replace('-', "_"),
            &good.replace("b7ad6b7169203331", "0000000000000000"),
            &good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &good.replace("0af7", "0ag7"),
            &good[..54],
            &"é".repeat(28),
            &"-".repeat(55),
            &"0".repeat(100_000),
        ] {
            assert_eq!(read(hostile), None, "{hostile:.80}");
        }
    }
}
