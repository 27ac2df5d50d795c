//! Reads everything in etcd, page by page.

use std::sync::Arc;

use bytes::Bytes;

use super::client::{Client, Fault};
use super::keys::{Prefix, Row};
use super::messages::{RangeRequest, RangeResponse};
use crate::object::{Key, Object};
use crate::{Collection, Revision};

/// The largest number of objects in a page. `PAGE_BYTES` is the largest size of a page in bytes, if its objects are as
/// large as those of the page before. Two pages are in memory: one is decoded while the next one is fetched.
const PAGE: i64 = 20_000;
const PAGE_BYTES: i64 = 4 << 20;
const FIRST_PAGE: i64 = 50;

/// Reads everything in its state at a revision; 0 is the newest. Objects that are already in memory are not decoded
/// again.
pub(super) async fn list(
    client: &Client,
    prefix: &Prefix,
    at: i64,
    known: impl Fn(&Collection, &Key, Revision) -> Option<Arc<Object>> + Send + Sync,
) -> Result<Vec<Row>, Fault> {
    let range = (prefix.first(), prefix.end());
    let mut rows = Rows { prefix, known, all: Vec::new() };
    if pages(client, range.clone(), at, true, &mut rows).await? == Pages::Incomplete {
        // A server that implements etcd's protocol may not support every range.
        rows.all.clear();
        pages(client, range, at, false, &mut rows).await?;
    }
    Ok(rows.all)
}

/// The source of pages.
trait Reader: Sync {
    fn page(
        &self,
        request: RangeRequest,
    ) -> impl Future<Output = Result<RangeResponse, Fault>> + Send;
}

impl Reader for Client {
    fn page(
        &self,
        request: RangeRequest,
    ) -> impl Future<Output = Result<RangeResponse, Fault>> + Send {
        self.page(request)
    }
}

/// The consumer of pages.
trait Taker: Send {
    fn take(&mut self, page: &RangeResponse) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// Decodes the rows of pages.
struct Rows<'a, K> {
    prefix: &'a Prefix,
    known: K,
    all: Vec<Row>,
}

impl<K: Fn(&Collection, &Key, Revision) -> Option<Arc<Object>> + Send + Sync> Taker
    for Rows<'_, K>
{
    async fn take(&mut self, page: &RangeResponse) -> Result<(), Fault> {
        self.prefix.learn(page.kvs.iter()).await.map_err(Fault::Unavailable)?;
        let row = |kept| self.prefix.row_or_known(kept, &self.known);
        self.all.extend(page.kvs.iter().filter_map(row));
        Ok(())
    }
}

/// Whether as many keys were read as the first page reported.
#[derive(Debug, PartialEq, Eq)]
enum Pages {
    Whole,
    Incomplete,
}

/// Reads a range page by page. If `is_narrowed`, the range is requested in parts.
async fn pages(
    reader: &impl Reader,
    (first, end): (Bytes, Bytes),
    at: i64,
    is_narrowed: bool,
    taker: &mut impl Taker,
) -> Result<Pages, Fault> {
    let (mut limit, mut at, mut found) = (FIRST_PAGE, at, 0_i64);
    let mut ranges = Ranges::new(first, end);
    let mut page = read_page(reader, &ranges, &mut limit, at).await?;
    let all = page.count;
    loop {
        if at == 0 {
            // All pages are read at the same revision.
            at = page.header.take().unwrap_or_default().revision;
        }
        if let (Some(first), Some(last)) = (page.kvs.first(), page.kvs.last()) {
            let bytes: usize = page.kvs.iter().map(|kept| kept.value.len()).sum();
            let each = i64::try_from(bytes / page.kvs.len()).unwrap_or(PAGE_BYTES).max(1);
            limit = (PAGE_BYTES / each).clamp(1, PAGE);
            found = found.saturating_add(i64::try_from(page.kvs.len()).unwrap_or(i64::MAX));
            ranges.read += page.kvs.len();
            if page.more {
                ranges.follow(&first.key, &last.key, is_narrowed);
            }
        } else if page.more {
            return Err(Fault::Unknown("it says that there is more, and shows nothing".to_owned()));
        }
        let is_much = ranges.read >= usize::try_from(limit / 2).unwrap_or_default().max(1);
        if !page.more && !ranges.finish(is_much) {
            taker.take(&page).await?;
            let is_whole = !is_narrowed || found == all;
            return Ok(if is_whole { Pages::Whole } else { Pages::Incomplete });
        }
        // The next page is fetched while this one is decoded.
        let next = read_page(reader, &ranges, &mut limit, at);
        let (next, taken) = tokio::join!(next, taker.take(&page));
        taken?;
        page = next?;
    }
}

/// Reads a page of the remaining range, and a smaller one if it is too large.
async fn read_page(
    reader: &impl Reader,
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
        match reader.page(request).await {
            Err(Fault::AnswerTooLarge) if *limit > 1 => *limit = (*limit / 8).max(1),
            page => return page,
        }
    }
}

/// The rest of a range of keys, and the part of it that is requested next.
///
/// For each page, etcd counts all keys that are left in the requested range. For a million objects, counting takes
/// longer than reading. So the request after a page is limited to a part: the keys that begin with the common prefix of
/// the page's keys and the next byte. A part with many keys is followed by a part of the same width. A part with few
/// keys is followed by a part that reaches up to the next change of an earlier byte.
struct Ranges {
    /// The first key that has not been read.
    key: Bytes,
    /// The ends of nested parts, the nearest last. Each part lies within the one before it.
    ends: Vec<Bytes>,
    /// The end of the range.
    end: Bytes,
    /// The number of keys that were read of this part.
    read: usize,
    /// The number of nested parts that end with the next part that holds few keys. It grows, because only few keys
    /// share the whole common prefix of long names.
    widening: usize,
}

impl Ranges {
    fn new(key: Bytes, end: Bytes) -> Self {
        Self { key, ends: Vec::new(), end, read: 0, widening: 1 }
    }

    /// The end of the part that is requested next.
    fn end(&self) -> Bytes {
        self.ends.last().unwrap_or(&self.end).clone()
    }

    /// Continues after a page with these keys. The part has more keys after the page.
    fn follow(&mut self, first: &[u8], last: &[u8], is_narrowed: bool) {
        self.key = Bytes::from([last, &[0]].concat());
        self.widening = 1;
        if !is_narrowed {
            return;
        }
        let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
        for length in 1..=(common + 1).min(last.len()) {
            self.narrow(&last[..length]);
        }
    }

    /// Continues after the part that was requested last. Returns whether the range has more parts.
    fn finish(&mut self, is_much: bool) -> bool {
        let Some(end) = self.ends.pop() else { return false };
        if is_much {
            self.narrow(&end);
            self.widening = 1;
        } else {
            let left = self.ends.len().saturating_sub(self.widening - 1);
            self.ends.truncate(left);
            self.widening *= 2;
        }
        (self.key, self.read) = (end, 0);
        true
    }

    /// Ends the part after all keys that begin like this, unless it already ends before.
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
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;
    use crate::etcd::messages::{KeyValue, ResponseHeader};

    /// The keys in a simulated etcd, with the size of their values in bytes.
    type Kept = BTreeMap<Vec<u8>, usize>;

    /// The largest response, in bytes.
    const ANSWER: usize = 32 << 20;

    #[derive(Debug, Default)]
    struct Work {
        /// The number of keys that etcd would count.
        counted: usize,
        asked: usize,
    }

    fn range() -> (Bytes, Bytes) {
        (Bytes::from_static(b"/p/"), Bytes::from_static(b"/p0"))
    }

    /// Simulates etcd.
    struct Played<'a> {
        kept: &'a Kept,
        work: Mutex<Work>,
    }

    impl Reader for Played<'_> {
        async fn page(&self, request: RangeRequest) -> Result<RangeResponse, Fault> {
            assert!(request.key < request.range_end, "{request:?}");
            assert!([0, 7].contains(&request.revision));
            let range = request.key.to_vec()..request.range_end.to_vec();
            let all: Vec<_> = self.kept.range(range).collect();
            let mut work = self.work.lock().unwrap();
            (work.counted, work.asked) = (work.counted + all.len(), work.asked + 1);
            let limit = usize::try_from(request.limit).unwrap();
            let shown = &all[..all.len().min(limit)];
            if shown.iter().map(|(_, size)| **size).sum::<usize>() > ANSWER {
                return Err(Fault::AnswerTooLarge);
            }
            let kvs = shown.iter().map(|(key, size)| KeyValue {
                key: key.to_vec().into(),
                value: Bytes::from_static(&[0; 1 << 24]).slice(..**size),
                ..KeyValue::default()
            });
            Ok(RangeResponse {
                header: Some(ResponseHeader { revision: 7, ..ResponseHeader::default() }),
                kvs: kvs.collect(),
                more: all.len() > limit,
                count: all.len().try_into().unwrap(),
            })
        }
    }

    /// Always returns the same response.
    struct Says(RangeResponse);

    impl Reader for Says {
        async fn page(&self, _: RangeRequest) -> Result<RangeResponse, Fault> {
            Ok(self.0.clone())
        }
    }

    /// Collects the keys that were read.
    impl Taker for Vec<Vec<u8>> {
        async fn take(&mut self, page: &RangeResponse) -> Result<(), Fault> {
            self.extend(page.kvs.iter().map(|kept| kept.key.to_vec()));
            Ok(())
        }
    }

    /// Reads everything, and compares it with the stored keys.
    async fn read_all(kept: &Kept) -> Work {
        let played = Played { kept, work: Mutex::default() };
        let mut found = Vec::new();
        let listed = pages(&played, range(), 0, true, &mut found).await;
        assert_eq!(listed.ok(), Some(Pages::Whole));
        assert_eq!(found, kept.keys().cloned().collect::<Vec<_>>());
        played.work.into_inner().unwrap()
    }

    #[tokio::test]
    async fn every_etcd_key_is_read_once_for_any_key_format() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..300 {
            let alphabet =
                *random.choice(&[&b"ab"[..], b"\x00a\xfe\xff", b"0123456789-/"]).unwrap();
            let common = "x".repeat(random.usize(..80));
            let most = *random.choice(&[100, 1 << 20, 1 << 24]).unwrap();
            let keys = (0..random.usize(..200)).map(|_| {
                let length = random.usize(1..6);
                let name = (0..length).map(|_| alphabet[random.usize(..alphabet.len())]);
                let key: Vec<u8> =
                    b"/p/".iter().copied().chain(common.bytes()).chain(name).collect();
                (key, random.usize(1..most))
            });
            let kept: Kept = keys.collect();
            let work = read_all(&kept).await;
            assert!(work.asked <= 20 + 20 * kept.len(), "{work:?} of {}", kept.len());
        }
        assert_eq!(read_all(&Kept::new()).await.asked, 1);
    }

    #[tokio::test]
    async fn paged_etcd_reads_count_few_keys_beyond_the_read_keys() {
        let numbered = |number| format!("/p/things/ns-{}/thing-{number:07}", number % 5);
        let hashed = |number: u64| {
            format!("/p/things/ns/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        // A page holds a thousand of them.
        let size = usize::try_from(PAGE_BYTES).unwrap() / 1_000;
        let numbered = (0..100_000).map(|number| (numbered(number).into_bytes(), size));
        let hashed = (0..100_000).map(|number| (hashed(number).into_bytes(), size));
        for kept in [numbered.collect::<Kept>(), hashed.collect()] {
            let work = read_all(&kept).await;
            // If a hundred pages requested the whole range, etcd would count five million keys.
            assert!(work.counted < 1_250_000 && work.asked < 300, "{work:?}");
        }
    }

    #[tokio::test]
    async fn empty_etcd_pages_that_report_more_keys_do_not_end_the_list() {
        let says = Says(RangeResponse { more: true, ..RangeResponse::default() });
        let listed = pages(&says, range(), 0, true, &mut Vec::new()).await;
        assert!(matches!(listed, Err(Fault::Unknown(_))));
        let says = Says(RangeResponse { count: 3, ..RangeResponse::default() });
        let listed = pages(&says, range(), 0, true, &mut Vec::new()).await;
        assert_eq!(listed.ok(), Some(Pages::Incomplete));
    }
}
