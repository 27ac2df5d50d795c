//! Members of an object and what is said of them, for checks that are not a
//! schema's own: their paths tell members that are described from others.

use super::validate::join;
use crate::kind::{Additional, Schema};

/// The schema of a member and its path: `spec.known`, `spec.map[key]`. Nothing
/// if nothing is said of it.
pub(super) fn member<'a>(
    schema: &'a Schema,
    name: &str,
    path: &str,
) -> Option<(&'a Schema, String)> {
    match (schema.properties.get(name), &schema.additional) {
        (Some(member), _) => Some((member, join(path, name))),
        (None, Additional::Of(member)) => Some((member, format!("{path}[{name}]"))),
        _ => None,
    }
}
