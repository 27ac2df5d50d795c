//! Validation of the definition of a stored kind, and its parts that are not enforced.

use std::cell::OnceCell;
use std::collections::HashSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::error::StartError;
use crate::kind::{Kind, Version};
use crate::write;

/// Rejects a definition with parts that this server does not support yet, unless `allow_partial` permits to omit them.
pub(super) fn check_stored(
    kind: &Kind,
    definition: &CustomResourceDefinition,
    allow_partial: bool,
) -> Result<(), StartError> {
    let mut faults = kind.faults_of_stored(definition);
    for (path, version) in versions(kind, definition) {
        faults.extend(faults_of_defaults_or_rules(version, &path, |faults| faults));
    }
    if faults.is_empty() && !allow_partial {
        faults = unenforced(kind, definition);
    } else if faults.is_empty() {
        warn_of_unenforced(kind, definition);
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(StartError::Kind { kind: kind.qualified(), faults }),
    }
}

/// The parts of a definition that are not enforced.
pub(super) fn unenforced(kind: &Kind, definition: &CustomResourceDefinition) -> Vec<String> {
    let of_version = |(path, version): (String, &Version)| {
        let keywords = version.schema.unenforced().into_iter();
        let fault = move |keyword: String| {
            format!("{path}{keyword}: is not enforced by this server; remove it")
        };
        keywords.map(fault).collect::<Vec<_>>()
    };
    versions(kind, definition).flat_map(of_version).collect()
}

/// Logs the parts of a definition that are not enforced.
pub(super) fn warn_of_unenforced(kind: &Kind, definition: &CustomResourceDefinition) {
    for error in unenforced(kind, definition) {
        tracing::warn!("kind {}: {error}", kind.qualified());
    }
}

/// The errors of a definition that replaces `old`, if there is an old one. Errors that the old definition has too are
/// allowed. It was accepted by less strict rules, and changes of its other parts must stay possible.
pub(super) fn faults(
    definition: &CustomResourceDefinition,
    old: Option<&CustomResourceDefinition>,
) -> Vec<String> {
    let mut lesser = Vec::new();
    let Ok(kind) = Kind::parse_kept(definition, &mut lesser) else {
        return match Kind::parse(definition, None) {
            Err(StartError::Kind { faults, .. }) => faults,
            Err(other) => vec![other.to_string()],
            Ok(_) => Vec::new(),
        };
    };
    let before = Before { old, parsed: OnceCell::new() };
    lesser.extend(kind.faults_of_stored(definition));
    let mut faults = before.new_of_whole(lesser, definition);
    for (path, version) in versions(&kind, definition) {
        // Defaults and rules are not checked where the schema has other errors.
        if !faults.iter().any(|fault| fault.starts_with(&path)) {
            let new = |faults| before.new_of_version(faults, version, &path);
            faults.extend(faults_of_defaults_or_rules(version, &path, new));
        }
    }
    faults
}

/// The versions of a definition with the paths of their schemas.
fn versions<'a>(
    kind: &'a Kind,
    definition: &CustomResourceDefinition,
) -> impl Iterator<Item = (String, &'a Version)> {
    let names = definition.spec.versions.iter().map(|version| &version.name).enumerate();
    names.filter_map(|(index, name)| {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        Some((path, &**kind.any_version(name)?))
    })
}

/// The errors in the defaults of a version or, if its defaults have none, the errors in its rules. Allowed errors are
/// omitted from both.
fn faults_of_defaults_or_rules(
    version: &Version,
    path: &str,
    without_allowed: impl Fn(Vec<String>) -> Vec<String>,
) -> Vec<String> {
    let of_defaults = without_allowed(faults_of_defaults(version, path));
    match of_defaults.is_empty() {
        true => without_allowed(faults_of_rules(version, path)),
        false => of_defaults,
    }
}

fn faults_of_defaults(version: &Version, path: &str) -> Vec<String> {
    let root = version.open_api_schema();
    let faults = write::validate_defaults(&version.schema, root.get("default"));
    faults.iter().map(|fault| format!("{path}{fault}")).collect()
}

fn faults_of_rules(version: &Version, path: &str) -> Vec<String> {
    version.faults_of_rules(path).iter().map(ToString::to_string).collect()
}

/// The replaced definition. It is parsed only if the new definition has an error.
struct Before<'a> {
    old: Option<&'a CustomResourceDefinition>,
    parsed: OnceCell<Option<(Kind, Vec<String>)>>,
}

impl Before<'_> {
    /// The kind of the replaced definition, and its errors outside of defaults and rules.
    fn parsed(&self) -> Option<&(Kind, Vec<String>)> {
        let parse = || {
            let (old, mut faults) = (self.old?, Vec::new());
            let kind = Kind::parse_kept(old, &mut faults).ok()?;
            faults.extend(kind.faults_of_stored(old));
            Some((kind, faults.iter().map(|fault| identity(fault, old)).collect()))
        };
        self.parsed.get_or_init(parse).as_ref()
    }

    /// The errors of the new definition that the replaced definition does not have.
    fn new_of_whole(
        &self,
        mut faults: Vec<String>,
        definition: &CustomResourceDefinition,
    ) -> Vec<String> {
        if !faults.is_empty()
            && let Some((_, before)) = self.parsed()
        {
            let before: HashSet<&String> = before.iter().collect();
            faults.retain(|fault| !before.contains(&identity(fault, definition)));
        }
        faults
    }

    /// The errors in the defaults or rules of a version that the same version of the replaced definition does not have.
    fn new_of_version(
        &self,
        mut faults: Vec<String>,
        version: &Version,
        path: &str,
    ) -> Vec<String> {
        if faults.is_empty() {
            return faults;
        }
        let old = self.parsed().and_then(|(kind, _)| kind.any_version(&version.name));
        if let Some(old) = old {
            let is_same = old.open_api_schema() == version.open_api_schema();
            let mut before: HashSet<String> = faults_of_defaults(old, path).into_iter().collect();
            before.extend(faults_of_rules(old, path));
            faults.retain(|fault| !before.contains(fault) || (!is_same && is_of_costs(fault)));
        }
        faults
    }
}

/// Whether an error is about the cost of rules. The message does not contain all of the cost, so such an error is the
/// same only if the schema has not changed.
fn is_of_costs(fault: &str) -> bool {
    fault.contains(" exceeds budget by factor of ")
        || fault.contains(": contributed to estimated rule cost total ")
}

/// A string that identifies an error across states of its definition. It contains the name of the version instead of
/// its index, because the order of versions may change. It omits a schema in the message, because the rest of the
/// schema may change.
fn identity(fault: &str, definition: &CustomResourceDefinition) -> String {
    let without_schema = || {
        let (field, rest) = fault.split_once(": Invalid value: {")?;
        let (_, detail) = rest.rsplit_once(": ")?;
        Some(format!("{field}: Invalid value: {detail}"))
    };
    let fault = without_schema().unwrap_or_else(|| fault.to_owned());
    let index = || {
        let (index, _) = fault.strip_prefix("spec.versions[")?.split_once(']')?;
        let version = definition.spec.versions.get(index.parse::<usize>().ok()?)?;
        Some((format!("spec.versions[{index}]"), format!("spec.versions[{}]", version.name)))
    };
    index().map_or_else(|| fault.clone(), |(counted, named)| fault.replace(&counted, &named))
}

#[cfg(test)]
mod tests;
