//! The security contexts of Pods and containers.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Sysctl,
};
use serde_json::json;

use super::paths::check_descending;
use super::resources::in_order;
use super::scope::Scope;
use super::windows;
use crate::built_in::checks::{FieldErrors, check_given, check_one_of, quote};

/// The largest size of the path of a profile, in bytes.
const PROFILE_LIMIT: u64 = 4095;
/// The largest size of the name of a sysctl, in bytes.
const SYSCTL_LIMIT: usize = 253;
const SYSCTL: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// Validates the security context of a container.
pub(crate) fn check_container(
    context: &SecurityContext,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    check_id(&format!("{at}.runAsUser"), context.run_as_user, faults);
    check_id(&format!("{at}.runAsGroup"), context.run_as_group, faults);
    if let Some(mount) = context.proc_mount.as_deref() {
        let at = format!("{at}.procMount");
        check_one_of(&*at, context.proc_mount.as_ref(), &["Default", "Unmasked"], faults);
        if scope.uses_host_users() && mount == "Unmasked" {
            let why = "`hostUsers` must be false to use `Unmasked`";
            faults.push(FieldError::invalid(at, quote(mount), why));
        }
    }
    check_seccomp(context.seccomp_profile.as_ref(), &format!("{at}.seccompProfile"), faults);
    if context.allow_privilege_escalation == Some(false) {
        if context.privileged == Some(true) {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            faults.push(FieldError::invalid(at, shown(context), why));
        }
        let added = context.capabilities.iter().flat_map(|all| all.add.iter().flatten());
        for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            faults.push(FieldError::invalid(at, shown(context), why));
        }
    }
    if let Some(options) = &context.windows_options {
        windows::check_options(options, &format!("{at}.windowsOptions"), faults);
    }
    check_app_armor(context.app_armor_profile.as_ref(), &format!("{at}.appArmorProfile"), faults);
}

/// Validates the security context of a Pod.
pub(crate) fn check_pod(scope: &Scope<'_>, spec_at: &str, faults: &mut FieldErrors) {
    let Some(context) = &scope.spec.security_context else { return };
    let at = format!("{spec_at}.securityContext");
    check_id(&format!("{at}.fsGroup"), context.fs_group, faults);
    check_id(&format!("{at}.runAsUser"), context.run_as_user, faults);
    check_id(&format!("{at}.runAsGroup"), context.run_as_group, faults);
    for (index, group) in context.supplemental_groups.iter().flatten().enumerate() {
        check_id(&format!("{at}.supplementalGroups[{index}]"), Some(*group), faults);
    }
    if scope.spec.share_process_namespace == Some(true) && scope.spec.host_pid == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        faults.push(FieldError::invalid(format!("{at}.shareProcessNamespace"), true, why));
    }
    check_sysctls(context, scope, &format!("{at}.sysctls"), faults);
    let policies = ["Always", "OnRootMismatch"];
    let policy = context.fs_group_change_policy.as_ref();
    check_one_of(format!("{at}.fsGroupChangePolicy"), policy, &policies, faults);
    check_seccomp(context.seccomp_profile.as_ref(), &format!("{at}.seccompProfile"), faults);
    if let Some(options) = &context.windows_options {
        windows::check_options(options, &format!("{at}.windowsOptions"), faults);
    }
    check_app_armor(context.app_armor_profile.as_ref(), &format!("{at}.appArmorProfile"), faults);
    let policy = context.supplemental_groups_policy.as_ref();
    check_one_of(format!("{at}.supplementalGroupsPolicy"), policy, &["Merge", "Strict"], faults);
    let policies: &[&str] = if scope.allowed.any_selinux_change_policy {
        &["MountOption", "Recursive"]
    } else {
        &["Recursive"]
    };
    let policy = context.se_linux_change_policy.as_ref();
    check_one_of(format!("{at}.seLinuxChangePolicy"), policy, policies, faults);
}

/// Checks the id of a user or a group.
pub(crate) fn check_id(at: &str, id: Option<i64>, faults: &mut FieldErrors) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        let why = format!("must be between 0 and {}, inclusive", i32::MAX);
        faults.push(FieldError::invalid(at, id, &why));
    }
}

fn check_seccomp(profile: Option<&SeccompProfile>, at: &str, faults: &mut FieldErrors) {
    let Some(profile) = profile else { return };
    let type_at = format!("{at}.type");
    if profile.type_.is_empty() {
        let why = "type is required when seccompProfile is set";
        faults.push(FieldError::required(type_at, why));
    } else {
        check_one_of(type_at, Some(&profile.type_), &PROFILE_TYPES, faults);
    }
    let at = format!("{at}.localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => {
            let why = "must be set when seccomp type is Localhost";
            faults.push(FieldError::required(at, why));
        }
        ("Localhost", Some(path)) => check_descending(&at, path, faults),
        (_, Some(path)) => {
            // The fields have the names of Go.
            let value = json!({"Type": profile.type_, "LocalhostProfile": path});
            let value = in_order(&value, &["Type", "LocalhostProfile"]);
            let why = "can only be set when seccomp type is Localhost";
            faults.push(FieldError::invalid(at, value, why));
        }
        (_, None) => {}
    }
}

/// Validates an AppArmor profile.
pub(crate) fn check_app_armor(
    profile: Option<&AppArmorProfile>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let Some(profile) = profile else { return };
    let path_at = format!("{at}.localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", path) => {
            let why = "must be set when AppArmor type is Localhost";
            match path.as_deref() {
                None | Some("") => faults.push(FieldError::required(&*path_at, why)),
                Some(path) if path.trim() != path => {
                    let why = "must not be padded with whitespace";
                    faults.push(FieldError::invalid(&*path_at, quote(path), why));
                }
                Some(_) => {}
            }
            if path.as_ref().is_some_and(|path| path.len() as u64 > PROFILE_LIMIT) {
                faults.push(FieldError::too_long(path_at, PROFILE_LIMIT));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(path)) => {
            let why = "can only be set when AppArmor type is Localhost";
            faults.push(FieldError::invalid(path_at, quote(path), why));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            let why = "type is required when appArmorProfile is set";
            faults.push(FieldError::required(format!("{at}.type"), why));
        }
        _ => check_one_of(format!("{at}.type"), Some(&profile.type_), &PROFILE_TYPES, faults),
    }
}

fn check_sysctls(
    context: &PodSecurityContext,
    scope: &Scope<'_>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let mut names = BTreeSet::new();
    for (index, Sysctl { name, .. }) in context.sysctls.iter().flatten().enumerate() {
        let at = format!("{at}[{index}].name");
        if check_given(&at, name, faults) {
            if !is_sysctl(name) {
                faults.push(FieldError::invalid(&*at, quote(name), SYSCTL));
            } else if names.contains(name) {
                faults.push(FieldError::duplicate(&*at, quote(name)));
            }
        }
        if let Some(why) = host_fault(name, scope.spec).filter(|_| !scope.allowed.host_sysctls) {
            faults.push(FieldError::invalid(at, quote(name), why));
        }
        names.insert(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let ends = [part.bytes().next(), part.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(is_inner))
            && part.bytes().all(|byte| is_inner(byte) || byte == b'-' || byte == b'_')
    };
    name.len() <= SYSCTL_LIMIT && name.split(['.', '/']).all(is_part)
}

/// Whether a PodSpec sets sysctls of the node.
pub(crate) fn has_host_sysctls(spec: &PodSpec) -> bool {
    let sysctls = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    sysctls.into_iter().any(|sysctl| host_fault(&sysctl.name, spec).is_some())
}

/// Returns the reason for which a sysctl cannot be set, because it belongs to a namespace of the node.
fn host_fault(name: &str, spec: &PodSpec) -> Option<&'static str> {
    const OF_IPC: [&str; 9] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
    ];
    let name = match name.find(['.', '/']) {
        Some(first) if name[first..].starts_with('/') => {
            let swapped = name.chars().map(|one| match one {
                '.' => '/',
                '/' => '.',
                other => other,
            });
            swapped.collect::<String>()
        }
        _ => name.to_owned(),
    };
    let name = name.split('*').next().unwrap_or_default();
    let is_of_ipc =
        OF_IPC.contains(&name) || name == "kernel.msg" || name.starts_with("fs.mqueue.");
    if spec.host_network == Some(true) && name.starts_with("net.") {
        Some("may not be specified when 'hostNetwork' is true")
    } else if spec.host_ipc == Some(true) && is_of_ipc {
        Some("may not be specified when 'hostIPC' is true")
    } else {
        None
    }
}

/// A security context in the format of messages, with the field names of Go.
fn shown(context: &SecurityContext) -> String {
    let capabilities = context
        .capabilities
        .as_ref()
        .map(|all| in_order(&json!({"Add": all.add, "Drop": all.drop}), &["Add", "Drop"]));
    let se_linux = context.se_linux_options.as_ref().map(|options| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let value = json!({
            "User": text(&options.user), "Role": text(&options.role),
            "Type": text(&options.type_), "Level": text(&options.level),
        });
        in_order(&value, &["User", "Role", "Type", "Level"])
    });
    let windows = context.windows_options.as_ref().map(|options| {
        let value = json!({
            "GMSACredentialSpecName": options.gmsa_credential_spec_name,
            "GMSACredentialSpec": options.gmsa_credential_spec,
            "RunAsUserName": options.run_as_user_name, "HostProcess": options.host_process,
        });
        in_order(
            &value,
            &["GMSACredentialSpecName", "GMSACredentialSpec", "RunAsUserName", "HostProcess"],
        )
    });
    let profile = |type_: &str, path: &Option<String>| {
        let value = json!({"Type": type_, "LocalhostProfile": path});
        in_order(&value, &["Type", "LocalhostProfile"])
    };
    let seccomp =
        context.seccomp_profile.as_ref().map(|one| profile(&one.type_, &one.localhost_profile));
    let app_armor =
        context.app_armor_profile.as_ref().map(|one| profile(&one.type_, &one.localhost_profile));
    let fields = [
        ("Capabilities", capabilities),
        ("Privileged", context.privileged.map(|value| value.to_string())),
        ("SELinuxOptions", se_linux),
        ("WindowsOptions", windows),
        ("RunAsUser", context.run_as_user.map(|value| value.to_string())),
        ("RunAsGroup", context.run_as_group.map(|value| value.to_string())),
        ("RunAsNonRoot", context.run_as_non_root.map(|value| value.to_string())),
        (
            "ReadOnlyRootFilesystem",
            context.read_only_root_filesystem.map(|value| value.to_string()),
        ),
        (
            "AllowPrivilegeEscalation",
            context.allow_privilege_escalation.map(|value| value.to_string()),
        ),
        ("ProcMount", context.proc_mount.as_deref().map(quote)),
        ("SeccompProfile", seccomp),
        ("AppArmorProfile", app_armor),
    ];
    let fields = fields.into_iter().map(|(field, value)| {
        format!("{}:{}", quote(field), value.unwrap_or_else(|| "null".to_owned()))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;

    #[test]
    fn names_of_kernel_parameters() {
        for (name, is_one) in [
            ("net.ipv4.tcp_syncookies", true),
            ("net/ipv4/conf/eth0.1", true),
            ("a..b", false),
            ("A", false),
            ("a-", false),
            ("*", false),
        ] {
            assert_eq!(is_sysctl(name), is_one, "{name}");
        }
    }

    #[test]
    fn parameters_of_the_node() {
        let on_host: PodSpec =
            object(json!({"hostNetwork": true, "hostIPC": true, "containers": []}));
        for (name, is_of_node) in [
            ("net.a", true),
            ("net/a", true),
            ("kernel.sem", true),
            ("fs.mqueue.x", true),
            ("vm.x", false),
        ] {
            assert_eq!(host_fault(name, &on_host).is_some(), is_of_node, "{name}");
            assert_eq!(host_fault(name, &PodSpec::default()), None, "{name}");
        }
    }
}
