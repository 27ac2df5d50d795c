//! Policies: the security levels that the labels of a namespace name.

use std::fmt;

use aggregated_apiserver::FieldError;

/// The privileges of a Pod on its node, from all to few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The release of Kubernetes that defines the rules of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Latest,
    /// The minor release: `v1.` and this number.
    Minor(i64),
}

/// A level in the version of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

/// The levels of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// Pods that violate this level are rejected.
    pub enforce: LevelVersion,
    /// Violations of this level are recorded in the audit log.
    pub audit: LevelVersion,
    /// Clients get warnings about violations of this level.
    pub warn: LevelVersion,
}

/// The level of a mode without a configuration.
pub(super) const UNRESTRICTED: LevelVersion =
    LevelVersion { level: Level::Privileged, version: Version::Latest };

impl Policy {
    /// Whether two policies have the same effect for all Pods.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        let same = |one: LevelVersion, other: LevelVersion| {
            one == other || (one.level == Level::Privileged && other.level == Level::Privileged)
        };
        same(self.enforce, other.enforce)
            && same(self.audit, other.audit)
            && same(self.warn, other.warn)
    }

    /// Whether every Pod is allowed, without warnings and audit annotations.
    pub(super) fn is_privileged(&self) -> bool {
        self.enforce.level == Level::Privileged && self.is_silent()
    }

    /// Whether no Pod causes warnings or audit annotations.
    pub(super) fn is_silent(&self) -> bool {
        [self.audit, self.warn].iter().all(|one| one.level == Level::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// Parses the policy from labels, and returns the errors of invalid labels. An invalid level enforces the restricted
/// level, and neither audits nor warns.
pub(super) fn policy_of<'a>(
    defaults: &Policy,
    label: impl Fn(&str) -> Option<&'a str>,
) -> (Policy, Vec<FieldError>) {
    let mut errors = Vec::new();
    let mut level_of = |mode: &str, otherwise: Level| {
        let label_name = format!("pod-security.kubernetes.io/{mode}");
        let value = label(&label_name)?;
        let level = level(value);
        if level.is_none() {
            let detail = "must be one of privileged, baseline, restricted";
            errors.push(invalid(&label_name, value, detail));
        }
        Some((level.unwrap_or(otherwise), level.is_some()))
    };
    let enforce = level_of("enforce", Level::Restricted);
    let audit = level_of("audit", Level::Privileged);
    let warn = level_of("warn", Level::Privileged);
    let mut version_errors = Vec::new();
    let mut version_of = |mode: &str| {
        let label_name = format!("pod-security.kubernetes.io/{mode}-version");
        let value = label(&label_name)?;
        let version = version(value);
        if version.is_none() {
            let detail = "must be \"latest\" or \"v1.x\"";
            version_errors.push((mode.to_owned(), invalid(&label_name, value, detail)));
        }
        Some(version.unwrap_or(Version::Latest))
    };
    let versions = [version_of("enforce"), version_of("audit"), version_of("warn")];
    let at = |level: Option<(Level, bool)>, version: Option<Version>, default: LevelVersion| {
        LevelVersion {
            level: level.map_or(default.level, |(level, _)| level),
            version: version.unwrap_or(default.version),
        }
    };
    let mut policy = Policy {
        enforce: at(enforce, versions[0], defaults.enforce),
        audit: at(audit, versions[1], defaults.audit),
        warn: at(warn, versions[2], defaults.warn),
    };
    // If a namespace enforces a level and sets none for warnings, it warns about that level, for the workloads that
    // would create such Pods.
    let is_enforced = enforce.is_some_and(|(_, is_valid)| is_valid);
    if warn.is_none() && is_enforced && policy.enforce.level > policy.warn.level {
        policy.warn.level = policy.enforce.level;
        policy.warn.version = versions[2].unwrap_or(policy.enforce.version);
    }
    (policy, in_order_of_modes(errors, version_errors))
}

/// Sorts errors, so that the errors of a mode's level and version are adjacent.
fn in_order_of_modes(
    levels: Vec<FieldError>,
    mut versions: Vec<(String, FieldError)>,
) -> Vec<FieldError> {
    let mut levels = levels.into_iter().peekable();
    let mut all = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let field = format!("metadata.labels[pod-security.kubernetes.io/{mode}]");
        all.extend(levels.next_if(|error| error.field() == field));
        if let Some(at) = versions.iter().position(|(of, _)| of == mode) {
            all.push(versions.remove(at).1);
        }
    }
    all
}

fn invalid(label: &str, value: &str, detail: &str) -> FieldError {
    let value = Quoted(value);
    FieldError::invalid(format!("metadata.labels[{label}]"), value, detail)
}

/// A string in the format of messages.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The level of this name.
pub(super) fn level(name: &str) -> Option<Level> {
    match name {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

/// The version of this name.
pub(super) fn version(name: &str) -> Option<Version> {
    if name == "latest" {
        return Some(Version::Latest);
    }
    let minor = name.strip_prefix("v1.")?;
    let is_plain = minor.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = minor.len() > 1 && minor.starts_with('0');
    if !is_plain || has_leading_zero {
        return None;
    }
    minor.parse().ok().map(Version::Minor)
}
