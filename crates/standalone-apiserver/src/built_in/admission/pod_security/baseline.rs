//! The checks of the baseline level.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{HTTPGetAction, SELinuxOptions, TCPSocketAction};

use super::checks::{Violation, containers, plural, quoted, setters, violation};
use super::view::{ContainerView, PodView};

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The sysctls that are allowed, in the order in which releases have added them.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    // 1.27
    "net.ipv4.ip_local_reserved_ports",
    // 1.29
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    // 1.32
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// The allowed SELinux types; the last one since 1.31.
const SE_LINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

const APP_ARMOR_ANNOTATIONS: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINERS: &str = "container.seccomp.security.alpha.kubernetes.io/";

pub(super) fn app_armor(pod: &PodView<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |kind: Option<&str>| {
        let bad = kind.filter(|kind| !["RuntimeDefault", "Localhost"].contains(kind));
        values.extend(bad.map(str::to_owned));
        bad.is_some()
    };
    let of_pod = pod.security.and_then(|context| context.app_armor_profile.as_ref());
    let by_pod = is_bad(of_pod.map(|profile| profile.type_.as_str()));
    let bad = pod.containers_that(|container| {
        let profile = container.security.and_then(|context| context.app_armor_profile.as_ref());
        is_bad(profile.map(|profile| profile.type_.as_str()))
    });
    let is_allowed = |value: &str| {
        value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")
    };
    let annotations = pod.annotations.into_iter().flatten();
    let annotations = annotations
        .filter(|(key, value)| key.starts_with(APP_ARMOR_ANNOTATIONS) && !is_allowed(value));
    let annotations: BTreeSet<String> =
        annotations.map(|(key, value)| format!("{key}={value:?}")).collect();
    let mut all_setters: Vec<String> = setters(by_pod, &bad).into_iter().collect();
    if !annotations.is_empty() {
        all_setters.push(plural("annotation", "annotations", annotations.len()).to_owned());
    }
    if all_setters.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    violation(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        format!(
            "{} must not set AppArmor profile type to {}",
            all_setters.join(" and "),
            quoted(&values)
        ),
    )
}

pub(super) fn capabilities(pod: &PodView<'_>) -> Option<Violation> {
    let mut forbidden = BTreeSet::new();
    let bad = pod.containers_that(|container| {
        let added = added_capabilities(container);
        let mut added = added.filter(|one| !CAPABILITIES.contains(one)).peekable();
        let is_bad = added.peek().is_some();
        forbidden.extend(added);
        is_bad
    });
    if bad.is_empty() {
        return None;
    }
    let (bad, forbidden) = (containers(&bad), quoted(&forbidden));
    violation(
        "non-default capabilities",
        format!("{bad} must not include {forbidden} in securityContext.capabilities.add"),
    )
}

/// The capabilities that a container adds.
pub(super) fn added_capabilities<'a>(
    container: &ContainerView<'a>,
) -> impl Iterator<Item = &'a str> {
    let capabilities = container.security.and_then(|context| context.capabilities.as_ref());
    let added = capabilities.and_then(|capabilities| capabilities.add.as_deref());
    added.unwrap_or_default().iter().map(String::as_str)
}

pub(super) fn host_namespaces(pod: &PodView<'_>) -> Option<Violation> {
    let spec = pod.spec;
    let shared = [
        (spec.host_network, "hostNetwork=true"),
        (spec.host_pid, "hostPID=true"),
        (spec.host_ipc, "hostIPC=true"),
    ];
    let shared = shared.into_iter().filter(|(is_shared, _)| *is_shared == Some(true));
    let shared: Vec<&str> = shared.map(|(_, name)| name).collect();
    if shared.is_empty() {
        return None;
    }
    violation("host namespaces", shared.join(", "))
}

pub(super) fn host_path_volumes(pod: &PodView<'_>) -> Option<Violation> {
    let volumes = pod.spec.volumes.iter().flatten().filter(|volume| volume.host_path.is_some());
    let names: Vec<&str> = volumes.map(|volume| volume.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let word = plural("volume", "volumes", names.len());
    violation("hostPath volumes", format!("{word} {}", quoted(&names)))
}

pub(super) fn host_ports(pod: &PodView<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let bad = pod.containers_that(|container| {
        let used = container.ports.iter().filter_map(|port| port.host_port);
        let mut used = used.filter(|port| *port != 0).peekable();
        let is_bad = used.peek().is_some();
        // Sorted as strings, which is the order in the message.
        ports.extend(used.map(|port| port.to_string()));
        is_bad
    });
    if bad.is_empty() {
        return None;
    }
    let uses = plural("uses", "use", bad.len());
    let word = plural("hostPort", "hostPorts", ports.len());
    let ports: Vec<String> = ports.into_iter().collect();
    violation("hostPort", format!("{} {uses} {word} {}", containers(&bad), ports.join(", ")))
}

pub(super) fn probe_hosts(pod: &PodView<'_>) -> Option<Violation> {
    let (mut bad, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in &pod.containers {
        let probes = container.probes.into_iter().flatten();
        let probes = probes.map(|probe| (probe.http_get.as_ref(), probe.tcp_socket.as_ref()));
        let handlers = container
            .lifecycle
            .into_iter()
            .flat_map(|lifecycle| [&lifecycle.post_start, &lifecycle.pre_stop])
            .flatten();
        let handlers =
            handlers.map(|handler| (handler.http_get.as_ref(), handler.tcp_socket.as_ref()));
        for host in probes.chain(handlers).flat_map(hosts_of) {
            bad.insert(container.name);
            hosts.insert(host);
        }
    }
    if bad.is_empty() {
        return None;
    }
    let bad: Vec<&str> = bad.into_iter().collect();
    let uses = plural("uses", "use", bad.len());
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    violation(
        "probe or lifecycle host",
        format!("{} {uses} {word} {}", containers(&bad), quoted(&hosts)),
    )
}

fn hosts_of<'a>(
    (http, tcp): (Option<&'a HTTPGetAction>, Option<&'a TCPSocketAction>),
) -> impl Iterator<Item = &'a str> {
    let http = http.and_then(|action| action.host.as_deref());
    let tcp = tcp.and_then(|action| action.host.as_deref());
    [http, tcp].into_iter().flatten().filter(|host| !host.is_empty())
}

pub(super) fn privileged(pod: &PodView<'_>) -> Option<Violation> {
    let bad = pod.containers_that(|container| {
        container.security.and_then(|context| context.privileged) == Some(true)
    });
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.privileged=true", containers(&bad));
    violation("privileged", detail)
}

pub(super) fn proc_mount(pod: &PodView<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let bad = pod.containers_that(|container| {
        let value = container.security.and_then(|context| context.proc_mount.as_deref());
        let value = value.filter(|value| *value != "Default");
        values.extend(value);
        value.is_some()
    });
    if bad.is_empty() {
        return None;
    }
    let (bad, values) = (containers(&bad), quoted(&values));
    violation("procMount", format!("{bad} must not set securityContext.procMount to {values}"))
}

pub(super) fn proc_mount_1_35(pod: &PodView<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { proc_mount(pod) }
}

pub(super) fn se_linux(pod: &PodView<'_>) -> Option<Violation> {
    se_linux_types(pod, &SE_LINUX_TYPES[..4])
}

pub(super) fn se_linux_1_31(pod: &PodView<'_>) -> Option<Violation> {
    se_linux_types(pod, &SE_LINUX_TYPES)
}

fn se_linux_types(pod: &PodView<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut sets_user, mut sets_role) = (BTreeSet::new(), false, false);
    let mut is_bad = |options: Option<&SELinuxOptions>| {
        let Some(options) = options else { return false };
        let type_ = options.type_.as_deref().unwrap_or_default();
        let is_set = |value: &Option<String>| value.as_ref().is_some_and(|text| !text.is_empty());
        let (user, role) = (is_set(&options.user), is_set(&options.role));
        let is_other_type = !allowed.contains(&type_);
        if is_other_type {
            types.insert(type_.to_owned());
        }
        sets_user |= user;
        sets_role |= role;
        is_other_type || user || role
    };
    let by_pod = is_bad(pod.security.and_then(|context| context.se_linux_options.as_ref()));
    let bad = pod.containers_that(|container| {
        is_bad(container.security.and_then(|context| context.se_linux_options.as_ref()))
    });
    let setters = setters(by_pod, &bad)?;
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    if sets_user {
        what.push("user may not be set".to_owned());
    }
    if sets_role {
        what.push("role may not be set".to_owned());
    }
    let what = what.join("; ");
    violation(
        "seLinuxOptions",
        format!("{setters} set forbidden securityContext.seLinuxOptions: {what}"),
    )
}

/// Seccomp profiles were annotations until 1.19.
pub(super) fn seccomp_annotations(pod: &PodView<'_>) -> Option<Violation> {
    let of_containers = pod.containers.iter().map(|container| container.name);
    let keys = of_containers.map(|name| format!("{SECCOMP_OF_CONTAINERS}{name}"));
    let is_allowed = |value: &str| {
        ["runtime/default", "docker/default"].contains(&value) || value.starts_with("localhost/")
    };
    let forbidden = [SECCOMP_OF_POD.to_owned()].into_iter().chain(keys).filter_map(|key| {
        let value = pod.annotations?.get(&key).filter(|value| !is_allowed(value))?;
        Some(format!("{key}={value:?}"))
    });
    let forbidden: BTreeSet<String> = forbidden.collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    let forbidden: Vec<String> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {word} {}", forbidden.join(", ")))
}

pub(super) fn seccomp(pod: &PodView<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |profile: Option<&str>| {
        let bad = profile.filter(|profile| !is_seccomp_allowed(profile));
        values.extend(bad.map(str::to_owned));
        bad.is_some()
    };
    let by_pod = is_bad(seccomp_of_pod(pod));
    let bad = pod.containers_that(|container| is_bad(seccomp_of(container)));
    let setters = setters(by_pod, &bad)?;
    let values = quoted(&values);
    violation(
        "seccompProfile",
        format!("{setters} must not set securityContext.seccompProfile.type to {values}"),
    )
}

pub(super) fn is_seccomp_allowed(profile: &str) -> bool {
    ["Localhost", "RuntimeDefault"].contains(&profile)
}

/// The type of the seccomp profile of a Pod.
pub(super) fn seccomp_of_pod<'a>(pod: &PodView<'a>) -> Option<&'a str> {
    let profile = pod.security.and_then(|context| context.seccomp_profile.as_ref());
    profile.map(|profile| profile.type_.as_str())
}

/// The type of the seccomp profile of a container.
pub(super) fn seccomp_of<'a>(container: &ContainerView<'a>) -> Option<&'a str> {
    let profile = container.security.and_then(|context| context.seccomp_profile.as_ref());
    profile.map(|profile| profile.type_.as_str())
}

pub(super) fn sysctls(pod: &PodView<'_>) -> Option<Violation> {
    other_sysctls(pod, &SYSCTLS[..5])
}

pub(super) fn sysctls_1_27(pod: &PodView<'_>) -> Option<Violation> {
    other_sysctls(pod, &SYSCTLS[..6])
}

pub(super) fn sysctls_1_29(pod: &PodView<'_>) -> Option<Violation> {
    other_sysctls(pod, &SYSCTLS[..10])
}

pub(super) fn sysctls_1_32(pod: &PodView<'_>) -> Option<Violation> {
    other_sysctls(pod, &SYSCTLS)
}

fn other_sysctls(pod: &PodView<'_>, allowed: &[&str]) -> Option<Violation> {
    let sysctls = pod.security.and_then(|context| context.sysctls.as_deref());
    let names = sysctls.unwrap_or_default().iter().map(|sysctl| sysctl.name.as_str());
    let other: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    if other.is_empty() {
        return None;
    }
    violation("forbidden sysctls", other.join(", "))
}

pub(super) fn windows_host_process(pod: &PodView<'_>) -> Option<Violation> {
    let of_pod = pod.security.and_then(|context| context.windows_options.as_ref());
    let by_pod = of_pod.and_then(|options| options.host_process) == Some(true);
    let bad = pod.containers_that(|container| {
        let options = container.security.and_then(|context| context.windows_options.as_ref());
        options.and_then(|options| options.host_process) == Some(true)
    });
    let setters = setters(by_pod, &bad)?;
    violation(
        "hostProcess",
        format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}
