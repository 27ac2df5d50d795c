//! Compaction of etcd, which deletes values that were replaced long ago. It works like the compaction of kube-apiserver
//! and together with it: one key, which all servers share, holds the newest revision at the time of the last
//! compaction.

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

/// Compacts etcd regularly, for as long as the future is polled. Each turn deletes values that were replaced before the
/// previous turn. A turn starts at each interval, or earlier if many bytes were written.
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
            Err(fault) => tracing::debug!(error = %fault.text(), "cannot compact etcd"),
        }
    }
}

/// Compacts up to `newest`, unless another server has already done so in this turn. Returns the version of the key and
/// the current newest revision.
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
            // Another server, which does not use the key, has compacted etcd.
            Ok(()) | Err(Fault::Compacted) => {}
            Err(fault) => return Err(fault),
        }
        tracing::debug!(revision = %newest, "compacted etcd");
    }
    Ok((version + 1, now))
}
