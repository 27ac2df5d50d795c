//! All that is in etcd, page by page.

use bytes::Bytes;

use super::client::{Client, Fault};
use super::messages::RangeRequest;
use super::place::{Prefix, Row};

/// Objects of a page, and what they may take together if they are as large as those before. For each page etcd
/// counts all that comes behind it, too: of a million objects, small pages take minutes.
const PAGE: i64 = 20_000;
const PAGE_BYTES: i64 = 16 << 20;
const FIRST_PAGE: i64 = 50;

/// Everything there was at a revision; 0 is the newest.
pub(super) async fn list(client: &Client, prefix: &Prefix, at: i64) -> Result<Vec<Row>, Fault> {
    let (mut rows, mut key, mut limit, mut at) = (Vec::new(), prefix.first(), FIRST_PAGE, at);
    loop {
        let request = RangeRequest {
            key: key.clone(),
            range_end: prefix.end(),
            limit,
            revision: at,
            ..RangeRequest::default()
        };
        let page = match client.page(request).await {
            Err(Fault::AnswerTooLarge) if limit > 1 => {
                limit = (limit / 8).max(1);
                continue;
            }
            page => page?,
        };
        if at == 0 {
            // All pages are of one moment.
            at = page.header.unwrap_or_default().revision;
        }
        let Some(last) = page.kvs.last() else { return Ok(rows) };
        key = Bytes::from([&last.key[..], &[0]].concat());
        let bytes: usize = page.kvs.iter().map(|kept| kept.value.len()).sum();
        let each = i64::try_from(bytes / page.kvs.len()).unwrap_or(PAGE_BYTES).max(1);
        limit = (PAGE_BYTES / each).clamp(1, PAGE);
        prefix.learn(page.kvs.iter()).await.map_err(Fault::Unavailable)?;
        rows.extend(page.kvs.iter().filter_map(|kept| prefix.row(kept, false)));
        if !page.more {
            return Ok(rows);
        }
    }
}
