//! All that is in etcd, page by page.

use bytes::Bytes;

use super::client::{Client, Fault};
use super::messages::{RangeRequest, RangeResponse};
use super::place::{Prefix, Row};

/// Objects of a page, and what they may take together if they are as large as those before.
const PAGE: i64 = 20_000;
const PAGE_BYTES: i64 = 16 << 20;
const FIRST_PAGE: i64 = 50;

/// Everything there was at a revision; 0 is the newest.
pub(super) async fn list(client: &Client, prefix: &Prefix, at: i64) -> Result<Vec<Row>, Fault> {
    let (mut rows, mut limit, mut at) = (Vec::new(), FIRST_PAGE, at);
    let mut ranges = Ranges::new(prefix.first(), prefix.end());
    let mut page = read(client, &ranges, &mut limit, at).await?;
    loop {
        if at == 0 {
            // All pages are of one moment.
            at = page.header.take().unwrap_or_default().revision;
        }
        if let (Some(first), Some(last)) = (page.kvs.first(), page.kvs.last()) {
            let bytes: usize = page.kvs.iter().map(|kept| kept.value.len()).sum();
            let each = i64::try_from(bytes / page.kvs.len()).unwrap_or(PAGE_BYTES).max(1);
            limit = (PAGE_BYTES / each).clamp(1, PAGE);
            ranges.read += page.kvs.len();
            if page.more {
                ranges.follow(&first.key, &last.key);
            }
        }
        let is_much = ranges.read >= usize::try_from(limit / 2).unwrap_or_default();
        if !page.more && !ranges.finish(is_much) {
            take(&page, prefix, &mut rows).await?;
            return Ok(rows);
        }
        // etcd makes the next one meanwhile.
        let next = read(client, &ranges, &mut limit, at);
        let (next, taken) = tokio::join!(next, take(&page, prefix, &mut rows));
        taken?;
        page = next?;
    }
}

/// Reads a page of what is left, a smaller one if that is too large.
async fn read(
    client: &Client,
    ranges: &Ranges,
    limit: &mut i64,
    at: i64,
) -> Result<RangeResponse, Fault> {
    loop {
        let request = RangeRequest {
            key: ranges.key.clone(),
            range_end: ranges.end(),
            limit: *limit,
            revision: at,
            ..RangeRequest::default()
        };
        match client.page(request).await {
            Err(Fault::AnswerTooLarge) if *limit > 1 => *limit = (*limit / 8).max(1),
            page => return page,
        }
    }
}

/// Makes out what is in a page.
async fn take(page: &RangeResponse, prefix: &Prefix, rows: &mut Vec<Row>) -> Result<(), Fault> {
    prefix.learn(page.kvs.iter()).await.map_err(Fault::Unavailable)?;
    rows.extend(page.kvs.iter().filter_map(|kept| prefix.row(kept, false)));
    Ok(())
}

/// What is left of a range of keys, and the part of it that is asked for next.
///
/// For each page etcd counts everything that comes behind it in its range. So that it does not count a
/// million objects for each ten thousand, what follows a page is asked for up to where the first byte
/// changes in which the keys of that page differed: a part. Where that held much, the next one is as wide,
/// and otherwise it reaches to where the byte before that one changes, and so on.
struct Ranges {
    key: Bytes,
    /// Where parts end, the nearest last.
    ends: Vec<Bytes>,
    end: Bytes,
    /// How many keys were read of this part.
    read: usize,
}

impl Ranges {
    fn new(key: Bytes, end: Bytes) -> Self {
        Self { key, ends: Vec::new(), end, read: 0 }
    }

    /// Where the part ends that is asked for next.
    fn end(&self) -> Bytes {
        self.ends.last().unwrap_or(&self.end).clone()
    }

    /// Goes on behind a page with these keys, behind which there is more in its part.
    fn follow(&mut self, first: &[u8], last: &[u8]) {
        self.key = Bytes::from([last, &[0]].concat());
        let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
        for length in 1..=(common + 1).min(last.len()) {
            self.narrow(&last[..length]);
        }
    }

    /// Goes on behind the part that was asked for last. Whether there is anything.
    fn finish(&mut self, is_much: bool) -> bool {
        let Some(end) = self.ends.pop() else { return false };
        if is_much {
            self.narrow(&end);
        }
        (self.key, self.read) = (end, 0);
        true
    }

    /// Lets the part end behind all keys that begin so, if it does not end before that.
    fn narrow(&mut self, beginning: &[u8]) {
        let Some((byte, before)) = beginning.split_last() else { return };
        let Some(byte) = byte.checked_add(1) else { return };
        let end = [before, &[byte]].concat();
        if *end < *self.end() {
            self.ends.push(end.into());
            self.read = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// How many keys etcd would count, and how often it would be asked.
    fn read_all(keys: &BTreeSet<Vec<u8>>, page: usize) -> (usize, usize) {
        let (mut counted, mut asked, mut found) = (0, 0, Vec::new());
        let mut ranges = Ranges::new(Bytes::from_static(b"/p/"), Bytes::from_static(b"/p0"));
        loop {
            asked += 1;
            let range = ranges.key.to_vec()..ranges.end().to_vec();
            assert!(range.start <= range.end, "{range:?}");
            let in_range: Vec<_> = keys.range(range).collect();
            counted += in_range.len();
            let read = &in_range[..in_range.len().min(page)];
            found.extend(read.iter().map(|key| key.to_vec()));
            ranges.read += read.len();
            let is_more = in_range.len() > page;
            if let (true, Some(first), Some(last)) = (is_more, read.first(), read.last()) {
                ranges.follow(first, last);
            }
            if !is_more && !ranges.finish(ranges.read >= page / 2) {
                break;
            }
        }
        assert_eq!(found, keys.iter().cloned().collect::<Vec<_>>());
        (counted, asked)
    }

    #[test]
    fn everything_is_read_once_whatever_keys_look_like() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..2_000 {
            let alphabet =
                *random.choice(&[&b"ab"[..], b"\x00a\xfe\xff", b"0123456789-/"]).unwrap();
            let keys = (0..random.usize(..60)).map(|_| {
                let length = random.usize(1..6);
                let name = (0..length).map(|_| alphabet[random.usize(..alphabet.len())]);
                b"/p/".iter().copied().chain(name).collect()
            });
            let keys: BTreeSet<Vec<u8>> = keys.collect();
            let page = random.usize(1..8);
            read_all(&keys, page);
        }
        assert_eq!(read_all(&BTreeSet::new(), 1), (0, 1));
    }

    #[test]
    fn little_is_counted_beyond_what_is_read() {
        let numbered =
            |number| format!("/p/things/ns-{}/thing-{number:07}", number % 5).into_bytes();
        let hashed = |number: u64| {
            format!("/p/things/ns/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
        };
        for keys in [(0..100_000).map(numbered).collect(), (0..100_000).map(hashed).collect()] {
            let (counted, asked) = read_all(&keys, 1_000);
            // A hundred pages of the whole range would count five million.
            assert!(counted < 1_250_000, "{counted}");
            assert!(asked < 400, "{asked}");
        }
    }
}
