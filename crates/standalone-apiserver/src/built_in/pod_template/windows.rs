//! Pods for Windows, and the fields that each operating system allows.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::NameRule;
use k8s_openapi::api::core::v1::{
    Container, PodSecurityContext, SecurityContext, WindowsSecurityContextOptions,
};

use super::scope::Scope;
use crate::built_in::checks::{FieldErrors, check_with, quote};

/// The largest credential spec, in KiB.
const CREDENTIAL_KIB: usize = 64;
/// The limit for the size of the domain of a user, in bytes; the size must be less.
const DOMAIN_LIMIT: usize = 256;
/// The largest size of the name of a user, in bytes.
const USER_LIMIT: usize = 104;

/// Validates the Windows options.
pub(crate) fn check_options(
    options: &WindowsSecurityContextOptions,
    at: &str,
    faults: &mut FieldErrors,
) {
    if let Some(name) = &options.gmsa_credential_spec_name {
        let check = |name: &str| NameRule::Dns1123Subdomain.check(name);
        check_with(&format!("{at}.gmsaCredentialSpecName"), name, check, faults);
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let at = format!("{at}.gmsaCredentialSpec");
        if spec.is_empty() {
            let why = "gmsaCredentialSpec cannot be an empty string";
            faults.push(FieldError::invalid(at, quote(spec), why));
        } else if spec.len() > CREDENTIAL_KIB * 1024 {
            let why = format!("gmsaCredentialSpec size must be under {CREDENTIAL_KIB} KiB");
            faults.push(FieldError::invalid(at, quote(spec), &why));
        }
    }
    if let Some(name) = &options.run_as_user_name {
        let at = format!("{at}.runAsUserName");
        let whys = faults_of_user_name(name);
        faults.extend(whys.iter().map(|why| FieldError::invalid(&*at, quote(name), why)));
    }
}

/// Returns the errors in the name of a user: `DOMAIN\USER` or `USER`.
fn faults_of_user_name(name: &str) -> Vec<String> {
    let only = |why: &str| vec![format!("runAsUserName {why}")];
    if name.is_empty() {
        return only("cannot be an empty string");
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return only("cannot contain control characters");
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return only("cannot contain more than one backslash"),
    };
    let mut faults = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN_LIMIT {
            faults.push(format!("Domain length must be under {DOMAIN_LIMIT} characters"));
        }
        if !is_net_bios(domain) && !domain.split('.').all(is_dns_label) {
            faults.push("Domain doesn't match the NetBios nor the DNS format".to_owned());
        }
    }
    if user.is_empty() {
        faults.push("User cannot be empty".to_owned());
    } else if user.len() > USER_LIMIT {
        faults.push(format!("User length must not be longer than {USER_LIMIT} characters"));
    }
    if !user.is_empty() && user.bytes().all(|byte| byte == b'.' || byte == b' ') {
        faults.push("User cannot contain only periods or spaces".to_owned());
    }
    if user.bytes().any(|byte| b"\"/\\:;|=,+*?<>@[]".contains(&byte)) {
        let all = "\"/\\:;|=,+*?<>@[]";
        faults.push(format!("User cannot contain the following characters: {all}"));
    }
    faults.into_iter().map(|why| format!("runAsUserName's {why}")).collect()
}

fn is_net_bios(domain: &str) -> bool {
    let count = domain.chars().count();
    (1..=15).contains(&count)
        && !domain.starts_with('.')
        && !domain.bytes().any(|byte| b"\\/:*?\"<>|".contains(&byte))
}

/// Whether a part of a domain consists of letters, digits and hyphens, without a hyphen at its ends.
fn is_dns_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// All containers of a Pod with their paths, init containers first.
pub(crate) fn containers<'a>(scope: &Scope<'a>, at: &str) -> Vec<(String, &'a Container)> {
    let init = scope.spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, one)| (format!("{at}.initContainers[{index}]"), one));
    let regular = scope.spec.containers.iter().enumerate();
    init.chain(regular.map(|(index, one)| (format!("{at}.containers[{index}]"), one))).collect()
}

/// Checks that either all containers are host processes, or none.
pub(crate) fn check_host_process(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let context = scope.spec.security_context.as_ref();
    let of_pod = context.and_then(|context| context.windows_options.as_ref()?.host_process);
    let all = containers(scope, at);
    let mut count = 0;
    for (at, container) in &all {
        let context = container.security_context.as_ref();
        let own = context.and_then(|context| context.windows_options.as_ref()?.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let at = format!("{at}.securityContext.windowsOptions.hostProcess");
            let why = format!(
                "pod hostProcess value must be identical if both are specified, was {of_pod}"
            );
            faults.push(FieldError::invalid(at, own, &why));
        }
        count += usize::from(own.or(of_pod) == Some(true));
    }
    if count == 0 {
        return;
    }
    if count != all.len() {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        faults.push(FieldError::invalid(at, "\"\"", why));
    }
    if !scope.uses_host_network() {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        faults.push(FieldError::invalid(format!("{at}.hostNetwork"), false, why));
    }
}

/// Validates the operating system, and the fields that it allows.
pub(crate) fn check_os(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    match scope.os() {
        None => {}
        Some("") => faults.push(FieldError::required(format!("{at}.os.name"), "")),
        Some("linux") => check_linux(scope, at, faults),
        Some("windows") => check_windows(scope, at, faults),
        Some(other) => {
            let all = ["linux", "windows"];
            faults.push(FieldError::not_supported(format!("{at}.os"), quote(other), &all));
        }
    }
}

fn check_linux(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let why = "windows options cannot be set for a linux pod";
    let context = scope.spec.security_context.as_ref();
    if context.is_some_and(|context| context.windows_options.is_some()) {
        faults.push(FieldError::forbidden(format!("{at}.securityContext.windowsOptions"), why));
    }
    for (at, container) in containers(scope, at) {
        let context = container.security_context.as_ref();
        if context.is_some_and(|context| context.windows_options.is_some()) {
            let at = format!("{at}.securityContext.windowsOptions");
            faults.push(FieldError::forbidden(at, why));
        }
    }
}

fn check_windows(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let why = "cannot be set for a windows pod";
    let nothing = PodSecurityContext::default();
    let spec = scope.spec;
    let context = spec.security_context.as_ref().unwrap_or(&nothing);
    for (field, is_given) in [
        ("securityContext.appArmorProfile", context.app_armor_profile.is_some()),
        ("securityContext.seLinuxOptions", context.se_linux_options.is_some()),
        ("hostUsers", spec.host_users.is_some()),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        ("securityContext.seccompProfile", context.seccomp_profile.is_some()),
        ("securityContext.fsGroup", context.fs_group.is_some()),
        ("securityContext.fsGroupChangePolicy", context.fs_group_change_policy.is_some()),
        ("securityContext.sysctls", context.sysctls.as_ref().is_some_and(|all| !all.is_empty())),
        ("shareProcessNamespace", spec.share_process_namespace.is_some()),
        ("securityContext.runAsUser", context.run_as_user.is_some()),
        ("securityContext.runAsGroup", context.run_as_group.is_some()),
        ("securityContext.supplementalGroups", context.supplemental_groups.is_some()),
        ("securityContext.supplementalGroupsPolicy", context.supplemental_groups_policy.is_some()),
        ("securityContext.seLinuxChangePolicy", context.se_linux_change_policy.is_some()),
    ] {
        if is_given {
            faults.push(FieldError::forbidden(format!("{at}.{field}"), why));
        }
    }
    for (at, container) in containers(scope, at) {
        let nothing = SecurityContext::default();
        let context = container.security_context.as_ref().unwrap_or(&nothing);
        for (field, is_given) in [
            ("appArmorProfile", context.app_armor_profile.is_some()),
            ("seLinuxOptions", context.se_linux_options.is_some()),
            ("seccompProfile", context.seccomp_profile.is_some()),
            ("capabilities", context.capabilities.is_some()),
            ("readOnlyRootFilesystem", context.read_only_root_filesystem.is_some()),
            ("privileged", context.privileged.is_some()),
            ("allowPrivilegeEscalation", context.allow_privilege_escalation.is_some()),
            ("procMount", context.proc_mount.is_some()),
            ("runAsUser", context.run_as_user.is_some()),
            ("runAsGroup", context.run_as_group.is_some()),
        ] {
            if is_given {
                let at = format!("{at}.securityContext.{field}");
                faults.push(FieldError::forbidden(at, why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users() {
        for (name, count) in [
            ("Administrator", 0),
            ("DOMAIN\\user", 0),
            ("a.example.com\\user", 0),
            ("", 1),
            ("a\\b\\c", 1),
            ("\\", 2),
            ("..", 1),
            ("a@b", 1),
            ("a\tb", 1),
        ] {
            assert_eq!(faults_of_user_name(name).len(), count, "{name}");
        }
    }
}
