//! Lets etcd forget what was replaced long ago, as kube-apiserver does it and together with it: one
//! key says who has done so last, and what was the newest revision then.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use super::Shared;
use super::client::{Client, Fault};
use super::messages::{
    Compare, CompareTarget, Compared, Operation, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

/// The key that all servers at one etcd share.
const KEY: &[u8] = b"compact_rev_key";

/// Compacts, for as long as it is polled: each time what was replaced before the time before. A turn comes after some time, or
/// earlier if much was written.
pub(super) async fn run(client: Arc<Client>, shared: Arc<Shared>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut version, mut newest) = (0, 0);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.compact.notified() => ticks.reset(),
        }
        match turn(&client, version, newest).await {
            Ok(next) => (version, newest) = next,
            Err(fault) => tracing::debug!("etcd is not compacted: {}", fault.text()),
        }
    }
}

/// Compacts up to what was the newest revision, unless another server has taken this turn. Answers
/// with the version of the key, and what is the newest revision now.
async fn turn(client: &Client, version: i64, newest: i64) -> Result<(i64, i64), Fault> {
    let key = Bytes::from_static(KEY);
    let put = PutRequest { key: key.clone(), value: newest.to_string().into() };
    let get = RangeRequest { key: key.clone(), ..RangeRequest::default() };
    let request = TxnRequest {
        compare: vec![Compare {
            target: CompareTarget::Version.into(),
            key,
            with: Some(Compared::Version(version)),
        }],
        success: vec![RequestOp { request: Some(Operation::Put(put)) }],
        failure: vec![RequestOp { request: Some(Operation::Range(get)) }],
    };
    let answer = client.transaction(request).await?;
    let now = answer.header.unwrap_or_default().revision;
    if !answer.succeeded {
        let others = answer.into_found().map_or(0, |kept| kept.version);
        return Ok((others, now));
    }
    if newest > 0 {
        match client.compact(newest).await {
            // It was compacted by somebody else who needs no key for it.
            Ok(()) | Err(Fault::Compacted) => {}
            Err(fault) => return Err(fault),
        }
        tracing::debug!("etcd has forgotten what was replaced before {newest}");
    }
    Ok((version + 1, now))
}
