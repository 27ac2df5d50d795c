//! Rewrites the objects in a directory that would be encoded differently now, while no server uses the directory.

use std::path::Path;
use std::sync::Arc;

use super::database::{Database, Value};
use crate::stored_value::{Sealing, Unreadable};
use crate::{Encryption, Renewed, Revision, Rewritten};

/// The number of rows in one transaction.
const GROUP: usize = 500;

/// Rewrites every object that would be encoded differently now, including those replaced in the last minutes. Revisions
/// do not change, and the file contains nothing of the old encodings afterwards.
///
/// # Errors
/// If the directory cannot be used, or the key of an object is missing. Then nothing is written.
pub fn rewrite(
    folder: &Path,
    encryption: Arc<Encryption>,
    renewed: &Renewed<'_>,
) -> Result<Rewritten, String> {
    let mut database = Database::open(folder, Sealing::new(encryption, ""))?;
    let (mut all, mut damaged, mut stale) = (0, Vec::new(), Vec::<Revision>::new());
    let mut locked = None;
    database.read(|row| {
        all += 1;
        let name = || format!("{} {}", row.collection, row.key);
        match &row.value {
            Value::Unreadable(why @ Unreadable::Locked(_)) => {
                locked.get_or_insert(format!("{} at revision {} {why}", name(), row.revision));
            }
            Value::Unreadable(Unreadable::Damaged(_)) => damaged.push(name()),
            Value::Object(object) => {
                if row.is_stale || renewed(&row.collection, object).is_some() {
                    stale.push(row.revision);
                }
            }
            Value::Nothing => {}
        }
    })?;
    if let Some(locked) = locked {
        return Err(locked);
    }
    for group in stale.chunks(GROUP) {
        database.rewrite(group, renewed)?;
    }
    // An earlier rewrite may have been interrupted before this, so the file is always rebuilt.
    database.vacuum()?;
    Ok(Rewritten { rewritten: stale.len(), all, damaged })
}
