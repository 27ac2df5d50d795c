//! GET of `scale`: reads the number of replicas of an object.

use super::{GetOptions, get};
use crate::conversion::known;
use crate::error::ApiError;
use crate::kind::Version;
use crate::object::Key;
use crate::quota::Account;
use crate::served_kind::ServedKind;
use crate::storage::Versioned;
use crate::write::scale_of;

/// Reads the Scale of an object.
///
/// # Errors
/// The errors of a GET, and 500 if the object has no wanted number of replicas.
pub async fn get_scale(
    served: &ServedKind,
    version: &Version,
    key: &Key,
    options: GetOptions,
    account: &Account,
) -> Result<Versioned, ApiError> {
    let versioned = get(served, key, options).await?;
    known(&served.kind, account, || scale_of(&served.kind, version, &versioned)).await?
}
