//! Annotations of Pods and templates that Kubernetes defines.

use std::collections::BTreeMap;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{AppArmorProfile, SeccompProfile, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::paths::check_descending;
use super::scope::Scope;
use super::tolerations;
use super::windows::containers;
use crate::built_in::checks::{FieldErrors, quote};

/// The annotation with the deletion cost of a Pod.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotation of static Pods, which a kubelet creates from a file.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
/// The annotation with the seccomp profile of a Pod.
pub(crate) const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The prefix of the annotation with the seccomp profile of a container, followed by the name of the container.
pub(crate) const SECCOMP_OF: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The prefix of the annotation with the AppArmor profile of a container, followed by the name of the container.
pub(crate) const APP_ARMOR_OF: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Validates annotations.
pub(crate) fn validate(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let Some(all) = scope.metadata.and_then(|metadata| metadata.annotations.as_ref()) else {
        return;
    };
    if let Some(mirrored) = all.get(MIRROR)
        && scope.spec.node_name.as_ref().is_none_or(String::is_empty)
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        faults.push(FieldError::invalid(format!("{at}[{MIRROR}]"), quote(mirrored), why));
    }
    if let Some(text) = all.get(TOLERATIONS).filter(|text| !text.is_empty()) {
        check_tolerations(text, scope, at, faults);
    }
    if !scope.allowed.deletion_cost
        && let Some(cost) = all.get(DELETION_COST).filter(|cost| !is_cost(cost))
    {
        let why = "must be a 32bit integer";
        faults.push(FieldError::invalid(format!("{at}[{DELETION_COST}]"), quote(cost), why));
    }
    for (key, value) in all {
        if key == SECCOMP_OF_POD || key.starts_with(SECCOMP_OF) {
            check_seccomp(value, &format!("{at}.{key}"), faults);
        }
    }
    check_app_armor(all, scope, at, faults);
}

fn check_tolerations(text: &str, scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    match serde_json::from_str::<Vec<Toleration>>(text) {
        Ok(all) => tolerations::validate(&all, scope, &format!("{at}.{TOLERATIONS}"), faults),
        Err(error) => {
            faults.push(FieldError::invalid(at, quote(TOLERATIONS), &error.to_string()));
        }
    }
}

fn check_seccomp(profile: &str, at: &str, faults: &mut FieldErrors) {
    match profile.strip_prefix("localhost/") {
        Some(path) => check_descending(at, path, faults),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => {
            let why = "must be a valid seccomp profile";
            faults.push(FieldError::invalid(at, quote(profile), why));
        }
    }
}

fn check_app_armor(
    all: &BTreeMap<String, String>,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let names: Vec<&str> =
        containers(scope, "").into_iter().map(|(_, container)| container.name.as_str()).collect();
    for (key, profile) in all {
        let Some(container) = key.strip_prefix(APP_ARMOR_OF) else { continue };
        let at = format!("{at}[{key}]");
        if !names.contains(&container) {
            faults.push(FieldError::invalid(&*at, quote(container), "container not found"));
        }
        let is_known = matches!(profile.as_str(), "" | "runtime/default" | "unconfined");
        if !is_known && !profile.starts_with("localhost/") {
            let why = format!("invalid AppArmor profile name: {}", quote(profile));
            faults.push(FieldError::invalid(at, quote(profile), &why));
        }
    }
}

/// Whether a string is a valid deletion cost: a number without leading zeros and without a plus.
fn is_cost(text: &str) -> bool {
    let begins_well =
        text == "0" || text.starts_with(|first: char| matches!(first, '-' | '1'..='9'));
    begins_well && text.parse::<i32>().is_ok()
}

/// Whether metadata have a deletion cost that is not a number.
pub(crate) fn has_invalid_deletion_cost(metadata: Option<&ObjectMeta>) -> bool {
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    annotations.and_then(|all| all.get(DELETION_COST)).is_some_and(|cost| !is_cost(cost))
}

/// Checks that annotations are consistent with the fields that have replaced them.
pub(crate) fn check_profiles(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let Some(all) = scope.metadata.and_then(|metadata| metadata.annotations.as_ref()) else {
        return;
    };
    let of_pod = scope.spec.security_context.as_ref();
    let own = of_pod.and_then(|context| context.seccomp_profile.as_ref());
    if let (Some(profile), Some(annotation)) = (own, all.get(SECCOMP_OF_POD)) {
        let at = format!("{at}.securityContext.seccompProfile");
        faults.extend(seccomp_fault(annotation, profile, &at));
    }
    let all_containers = containers(scope, at);
    for (at, container) in &all_containers {
        let context = container.security_context.as_ref();
        let own = context.and_then(|context| context.seccomp_profile.as_ref());
        let annotation = all.get(&format!("{SECCOMP_OF}{}", container.name));
        if let (Some(profile), Some(annotation)) = (own, annotation) {
            let at = format!("{at}.securityContext.seccompProfile");
            faults.extend(seccomp_fault(annotation, profile, &at));
        }
    }
    if scope.os() == Some("windows") {
        return;
    }
    let shared = of_pod.and_then(|context| context.app_armor_profile.as_ref());
    for (at, container) in &all_containers {
        let context = container.security_context.as_ref();
        let own = context.and_then(|context| context.app_armor_profile.as_ref()).or(shared);
        let annotation = all.get(&format!("{APP_ARMOR_OF}{}", container.name));
        if let (Some(profile), Some(annotation)) = (own, annotation) {
            let at = format!("{at}.securityContext.appArmorProfile");
            faults.extend(app_armor_fault(annotation, profile, &at));
        }
    }
}

fn seccomp_fault(annotation: &str, profile: &SeccompProfile, at: &str) -> Option<FieldError> {
    let is_same_type = match profile.type_.as_str() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => matches!(annotation, "runtime/default" | "docker/default"),
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    mismatch("seccomp", is_same_type, annotation, &profile.type_, &profile.localhost_profile, at)
}

fn app_armor_fault(annotation: &str, profile: &AppArmorProfile, at: &str) -> Option<FieldError> {
    let is_same_type = match profile.type_.as_str() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default",
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    mismatch("apparmor", is_same_type, annotation, &profile.type_, &profile.localhost_profile, at)
}

fn mismatch(
    what: &str,
    is_same_type: bool,
    annotation: &str,
    type_: &str,
    path: &Option<String>,
    at: &str,
) -> Option<FieldError> {
    if !is_same_type {
        let why = format!("{what} type in annotation and field must match");
        return Some(FieldError::forbidden(format!("{at}.type"), &why));
    }
    let is_other = type_ == "Localhost" && annotation.strip_prefix("localhost/") != path.as_deref();
    is_other.then(|| {
        let why = format!("{what} profile in annotation and field must match");
        FieldError::forbidden(format!("{at}.localhostProfile"), &why)
    })
}

/// Validates the change of annotations of a Pod.
pub(crate) fn check_change(
    new: Option<&BTreeMap<String, String>>,
    old: Option<&BTreeMap<String, String>>,
    faults: &mut FieldErrors,
) {
    let nothing = BTreeMap::new();
    let (new, old) = (new.unwrap_or(&nothing), old.unwrap_or(&nothing));
    let mut check = |key: &str, verb: &str| {
        let what = if key.starts_with(APP_ARMOR_OF) {
            "AppArmor annotations"
        } else if key == MIRROR {
            "mirror pod annotation"
        } else {
            return;
        };
        let why = format!("may not {verb} {what}");
        faults.push(FieldError::forbidden(format!("metadata.annotations[{key}]"), &why));
    };
    for (key, _) in old.iter().filter(|(key, value)| new.get(*key) != Some(value)) {
        check(key, "remove or update");
    }
    for key in new.keys().filter(|key| !old.contains_key(*key)) {
        check(key, "add");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs() {
        for (text, is_one) in [
            ("0", true),
            ("-5", true),
            ("2147483647", true),
            ("2147483648", false),
            ("+1", false),
            ("01", false),
            ("", false),
            ("x", false),
        ] {
            assert_eq!(is_cost(text), is_one, "{text}");
        }
    }
}
