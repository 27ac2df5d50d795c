//! Rewrites the objects in etcd that would be encoded differently now. Servers can serve them at the same time.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};

use super::client::{Client, Fault};
use super::feed::check_form;
use super::keys::{Prefix, Row};
use super::list::list;
use super::messages::RangeRequest;
use super::transaction;
use crate::stored_value::Unreadable;
use crate::{Commit, Encryption, EtcdOptions, Precondition, Renewed, Rewritten};

/// The number of concurrent writes.
const AT_ONCE: usize = 16;
/// The largest number of passes. A later pass finds what servers have written during an earlier one.
const ROUNDS: usize = 5;

/// Rewrites every object that would be encoded differently now. Each rewritten object gets a new revision, as with any
/// other write.
///
/// # Errors
/// If etcd cannot be read or written, the key of an object is missing, or servers keep writing objects in another
/// encoding.
pub async fn rewrite(
    etcd: &EtcdOptions,
    encryption: Arc<Encryption>,
    renewed: &Renewed<'_>,
) -> Result<Rewritten, String> {
    let prefix = Prefix::new(&etcd.prefix, encryption)?;
    let client = Client::new(etcd)?;
    let failed = |fault: Fault| format!("etcd: {}", fault.text());
    let noted = RangeRequest { key: prefix.store(), ..RangeRequest::default() };
    check_form(&prefix, &client.key(noted).await.map_err(failed)?)?;
    let mut rewritten = 0;
    for _ in 0..ROUNDS {
        let rows = list(&client, &prefix, 0, |_, _, _| None).await.map_err(failed)?;
        let (mut all, mut damaged, mut stale) = (0, Vec::new(), Vec::new());
        for mut row in rows {
            all += 1;
            if let Ok(Some(object)) = &mut row.value
                && let Some(renewed) = renewed(&row.collection, object)
            {
                *object = renewed;
                row.is_stale = true;
            }
            let Row { collection, key, revision, .. } = &row;
            match &row.value {
                Err(why @ Unreadable::Locked(_)) => {
                    return Err(format!("{collection} {key} in etcd at revision {revision} {why}"));
                }
                Err(Unreadable::Damaged(_)) => damaged.push(format!("{collection} {key}")),
                Ok(_) if row.is_stale => stale.push(row),
                Ok(_) => {}
            }
        }
        if stale.is_empty() {
            return Ok(Rewritten { rewritten, all, damaged });
        }
        let writes = stale.iter().map(|row| write(&client, &prefix, row));
        let written: Vec<bool> =
            stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await?;
        rewritten += written.into_iter().filter(|is_written| *is_written).count();
    }
    Err("servers go on writing in another way: they must have the same configuration".to_owned())
}

/// Writes an object without changes. Returns whether it was still at its revision.
async fn write(client: &Client, prefix: &Prefix, row: &Row) -> Result<bool, String> {
    let Ok(Some(object)) = &row.value else { return Ok(false) };
    let commit = Commit {
        collection: row.collection.clone(),
        key: row.key.clone(),
        expected: Precondition::At(row.revision),
        object: Some(Arc::clone(object)),
        marks: false,
    };
    match client.transaction(transaction(prefix, &commit)?).await {
        Ok(answer) => Ok(answer.succeeded),
        Err(fault) => Err(format!("{} {} in etcd: {}", row.collection, row.key, fault.text())),
    }
}
