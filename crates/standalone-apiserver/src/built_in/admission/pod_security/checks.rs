//! The checks of each level, by release, and the message about their violations.

use std::collections::BTreeSet;

use super::policy::{Level, LevelVersion, Version};
use super::view::PodView;
use super::{baseline, restricted};

/// The newest release in which a check has changed. Later releases have the same rules.
const NEWEST: i64 = 35;

/// A rule that a Pod violates.
pub(super) struct Violation {
    pub reason: String,
    pub detail: String,
}

/// A check: a rule, which releases may have changed.
struct Check {
    name: &'static str,
    level: Level,
    /// The rules with the minor release since which each applies, oldest first.
    rules: &'static [(i64, Rule)],
    /// The baseline check that this restricted check replaces.
    replaces: Option<&'static str>,
}

pub(super) type Rule = fn(&PodView<'_>) -> Option<Violation>;

/// All checks, in the order in which messages list their violations: by level, then by name.
const CHECKS: [Check; 19] = [
    baseline("appArmorProfile", &[(0, baseline::app_armor)]),
    baseline("capabilities_baseline", &[(0, baseline::capabilities)]),
    baseline("hostNamespaces", &[(0, baseline::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, baseline::host_path_volumes)]),
    baseline("hostPorts", &[(0, baseline::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, baseline::probe_hosts)]),
    baseline("privileged", &[(0, baseline::privileged)]),
    baseline("procMount", &[(0, baseline::proc_mount), (35, baseline::proc_mount_1_35)]),
    baseline("seLinuxOptions", &[(0, baseline::se_linux), (31, baseline::se_linux_1_31)]),
    baseline(
        "seccompProfile_baseline",
        &[(0, baseline::seccomp_annotations), (19, baseline::seccomp)],
    ),
    baseline(
        "sysctls",
        &[
            (0, baseline::sysctls),
            (27, baseline::sysctls_1_27),
            (29, baseline::sysctls_1_29),
            (32, baseline::sysctls_1_32),
        ],
    ),
    baseline("windowsHostProcess", &[(0, baseline::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[(8, restricted::escalation), (25, restricted::escalation_1_25)],
        None,
    ),
    restricted(
        "capabilities_restricted",
        &[(22, restricted::capabilities), (25, restricted::capabilities_1_25)],
        Some("capabilities_baseline"),
    ),
    restricted("procMount_restricted", &[(35, baseline::proc_mount)], Some("procMount")),
    restricted("restrictedVolumes", &[(0, restricted::volumes)], Some("hostPathVolumes")),
    restricted("runAsNonRoot", &[(0, restricted::non_root), (35, restricted::non_root_1_35)], None),
    restricted("runAsUser", &[(23, restricted::user), (35, restricted::user_1_35)], None),
    restricted(
        "seccompProfile_restricted",
        &[(19, restricted::seccomp), (25, restricted::seccomp_1_25)],
        Some("seccompProfile_baseline"),
    ),
];

const fn baseline(name: &'static str, rules: &'static [(i64, Rule)]) -> Check {
    Check { name, level: Level::Baseline, rules, replaces: None }
}

const fn restricted(
    name: &'static str,
    rules: &'static [(i64, Rule)],
    replaces: Option<&'static str>,
) -> Check {
    Check { name, level: Level::Restricted, rules, replaces }
}

impl Check {
    /// The rule in a release, if the check exists there.
    fn rule(&self, minor: i64) -> Option<Rule> {
        let known = self.rules.iter().rev().find(|(since, _)| *since <= minor);
        known.map(|(_, rule)| *rule)
    }
}

/// The message about the rules of a level that a Pod violates, with details.
pub(super) fn violations(level: LevelVersion, pod: &PodView<'_>) -> Option<String> {
    let violated = violated(level, pod);
    let with_detail = violated.into_iter().map(|Violation { reason, detail }| match &*detail {
        "" => reason,
        detail => format!("{reason} ({detail})"),
    });
    joined(with_detail.collect())
}

/// The same message without details.
pub(super) fn reasons(level: LevelVersion, pod: &PodView<'_>) -> Option<String> {
    joined(violated(level, pod).into_iter().map(|violation| violation.reason).collect())
}

fn joined(all: Vec<String>) -> Option<String> {
    (!all.is_empty()).then(|| all.join(", "))
}

fn violated(level: LevelVersion, pod: &PodView<'_>) -> Vec<Violation> {
    let minor = match level.version {
        Version::Latest => NEWEST,
        Version::Minor(minor) => minor.min(NEWEST),
    };
    let applying = CHECKS.iter().filter(|check| check.level <= level.level);
    let applying: Vec<(&Check, Rule)> =
        applying.filter_map(|check| Some((check, check.rule(minor)?))).collect();
    let replaced: BTreeSet<&str> =
        applying.iter().filter_map(|(check, _)| check.replaces).collect();
    let rules = applying.iter().filter(|(check, _)| !replaced.contains(check.name));
    rules.filter_map(|(_, rule)| rule(pod)).collect()
}

/// A violation, with this detail.
pub(super) fn violation(reason: impl Into<String>, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.into(), detail: detail.into() })
}

/// Names in quotation marks, separated by commas.
pub(super) fn quoted<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<String> =
        names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    names.join(", ")
}

/// The singular or the plural of a word, depending on the count.
pub(super) fn plural<'a>(one: &'a str, several: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { several }
}

/// `container "a"`, or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// The part that sets a forbidden value: the Pod, containers, or both; `None` if neither does.
pub(super) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(containers(names)),
        (true, names) => Some(format!("pod and {}", containers(names))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    use super::*;

    fn reported(level: Level, minor: i64, annotations: &[(&str, &str)], spec: Value) -> String {
        let annotations = annotations.iter();
        let annotations: BTreeMap<String, String> =
            annotations.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let level = LevelVersion { level, version: Version::Minor(minor) };
        violations(level, &PodView::new(Some(&annotations), &spec)).unwrap_or_default()
    }

    #[test]
    fn checks_are_listed_by_level_and_name_with_their_rules_oldest_first() {
        let names: Vec<(Level, &str)> =
            CHECKS.iter().map(|check| (check.level, check.name)).collect();
        assert!(names.is_sorted());
        for check in &CHECKS {
            assert!(check.rules.is_sorted_by(|(one, _), (next, _)| one < next), "{}", check.name);
            assert!(check.rules.iter().all(|(since, _)| *since <= NEWEST), "{}", check.name);
            let is_known = |name| names.contains(&(Level::Baseline, name));
            assert!(check.replaces.is_none_or(is_known), "{}", check.name);
        }
    }

    #[test]
    fn forbidden_apparmor_annotations_are_reported_with_the_pod() {
        let annotations = [
            ("container.apparmor.security.beta.kubernetes.io/a", "unconfined"),
            ("container.apparmor.security.beta.kubernetes.io/b", "localhost/x"),
            ("other", "unconfined"),
        ];
        let spec = json!({
            "securityContext": {"appArmorProfile": {"type": "Unconfined"}},
            "containers": [{"name": "a"}],
        });
        let expected = "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \"Unconfined\", \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")";
        assert_eq!(reported(Level::Baseline, 30, &annotations, spec), expected);
    }

    #[test]
    fn ephemeral_containers_are_checked() {
        let spec = json!({
            "containers": [],
            "ephemeralContainers": [{"name": "e", "securityContext": {"privileged": true}}],
        });
        let expected = "privileged (container \"e\" must not set securityContext.privileged=true)";
        assert_eq!(reported(Level::Baseline, 30, &[], spec), expected);
    }
}
