//! Checks group versions whose paths code of the user handles, and their conflicts with kinds.

use std::sync::Arc;

use crate::definition::Kinds;
use crate::error::StartError;
use crate::kind::Kind;
use crate::paths::ParsedGroupVersion;

/// Parses the paths of all group versions, and checks them for conflicts with each other and with kinds.
pub(super) fn parse(
    kinds: &Kinds,
    parsed: &[Arc<Kind>],
) -> Result<Vec<ParsedGroupVersion>, StartError> {
    let mut all: Vec<ParsedGroupVersion> = Vec::new();
    for described in kinds.own_group_versions() {
        let name = described.to_string();
        if all.iter().any(|other| other.described().to_string() == name) {
            let why = format!("{name} was already added as a group version with paths");
            return Err(described.error(vec![why]));
        }
        let paths = described.parsed()?;
        if let Some(why) = parsed.iter().find_map(|kind| conflict(&paths, kind)) {
            return Err(described.error(vec![why]));
        }
        all.push(paths);
    }
    Ok(all)
}

/// The conflict between the paths of a group version and a kind, if there is one.
pub(super) fn conflict(paths: &ParsedGroupVersion, kind: &Kind) -> Option<String> {
    let described = paths.described();
    if kind.group != described.group() || kind.version(described.version()).is_none() {
        return None;
    }
    let (pattern, _) =
        paths.paths().find(|(pattern, _)| pattern.may_have_resource(&kind.names.plural))?;
    let (text, kind) = (pattern.text(), kind.qualified());
    Some(format!("path {text:?} has paths of the kind {kind}; remove one of them"))
}
