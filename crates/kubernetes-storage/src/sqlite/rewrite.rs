//! Objects in a folder that would be written in another way now are written again, while no server serves
//! them.

use std::path::Path;
use std::sync::Arc;

use super::database::{Database, Value};
use crate::sealed::{Sealing, Unreadable};
use crate::{Encryption, Renewed, Revision, Rewritten};

/// Rows that are written in one transaction.
const GROUP: usize = 500;

/// Writes everything again that would be written in another way now, also what was replaced in the last
/// minutes. Revisions stay as they are, and nothing is left in the file of what was there before.
///
/// # Errors
/// When the folder cannot be used, or no key fits an object: nothing is written then.
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
    // Also where it was interrupted before.
    database.vacuum()?;
    Ok(Rewritten { rewritten: stale.len(), all, damaged })
}
