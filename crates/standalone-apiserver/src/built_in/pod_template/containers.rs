//! Containers.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, ResourceRequirements};

use super::images::default_pull_policy;
use super::ports::{check_host_ports, check_ports};
use super::resources::{self, round_up};
use super::scope::Scope;
use super::{environment, mounts, probes, restarts, security};
use crate::built_in::checks::{FieldErrors, check_given, check_one_of, check_with, quote};
use crate::built_in::defaulting::set_default;

/// Sets the defaults of a container.
pub(crate) fn set_defaults(container: &mut Container) {
    set_default(&mut container.termination_message_path, "/dev/termination-log");
    set_default(&mut container.termination_message_policy, "File");
    let resources = container.resources.get_or_insert_with(ResourceRequirements::default);
    for amounts in [&mut resources.limits, &mut resources.requests] {
        round_up(amounts);
    }
    let policy = default_pull_policy(container.image.as_deref().unwrap_or_default());
    set_default(&mut container.image_pull_policy, policy);
    for port in container.ports.iter_mut().flatten() {
        set_default(&mut port.protocol, "TCP");
    }
    for variable in container.env.iter_mut().flatten() {
        let from = variable.value_from.as_mut().and_then(|from| from.field_ref.as_mut());
        if let Some(field) = from {
            set_default(&mut field.api_version, "v1");
        }
        let file = variable.value_from.as_mut().and_then(|from| from.file_key_ref.as_mut());
        if let Some(file) = file {
            file.optional.get_or_insert(false);
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    probes.into_iter().flatten().for_each(probes::set_defaults);
    if let Some(lifecycle) = &mut container.lifecycle {
        let handlers = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
        let gets = handlers.into_iter().flatten().filter_map(|handler| handler.http_get.as_mut());
        gets.for_each(probes::set_http_get_defaults);
    }
}

/// Validates all containers of a PodSpec.
pub(crate) fn validate(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    check_regular(scope, &format!("{at}.containers"), faults);
    check_init(scope, &format!("{at}.initContainers"), faults);
    check_ephemeral(scope, &format!("{at}.ephemeralContainers"), faults);
}

/// Checks that images have no leading or trailing spaces, which are valid in templates.
pub(crate) fn check_images(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let init = scope.spec.init_containers.as_deref().unwrap_or_default();
    for (list, containers) in [("containers", &*scope.spec.containers), ("initContainers", init)] {
        for (index, container) in containers.iter().enumerate() {
            check_image(container, &format!("{at}.{list}[{index}]"), faults);
        }
    }
}

/// Checks that the image of a container has no leading or trailing spaces.
pub(crate) fn check_image(container: &Container, at: &str, faults: &mut FieldErrors) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.push(FieldError::invalid(format!("{at}.image"), quote(image), why));
    }
}

fn check_regular(scope: &Scope<'_>, list: &str, faults: &mut FieldErrors) {
    let containers = &scope.spec.containers;
    if containers.is_empty() {
        return faults.push(FieldError::required(list, ""));
    }
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let at = format!("{list}[{index}]");
        check_common(container, scope, &at, faults);
        if !names.insert(container.name.as_str()) {
            faults.push(FieldError::duplicate(format!("{at}.name"), quote(&container.name)));
        }
        probes::validate(container, scope, &at, faults);
        restarts::check_policy(container, &at, faults);
        all.push((at, container));
    }
    check_host_ports(&all, faults);
}

fn check_init(scope: &Scope<'_>, list: &str, faults: &mut FieldErrors) {
    let mut names: BTreeSet<&str> =
        scope.spec.containers.iter().map(|container| container.name.as_str()).collect();
    for (index, container) in scope.spec.init_containers.iter().flatten().enumerate() {
        let at = format!("{list}[{index}]");
        check_common(container, scope, &at, faults);
        restarts::check_policy_of_init(container, &at, faults);
        if names.contains(container.name.as_str()) {
            faults.push(FieldError::duplicate(format!("{at}.name"), quote(&container.name)));
        } else if !container.name.is_empty() {
            names.insert(container.name.as_str());
        }
        // Init containers run sequentially, so they may use the same ports. The path is that of a list with one
        // element.
        check_host_ports(&[(format!("{list}[0]"), container)], faults);
        if container.restart_policy.as_deref() == Some("Always") {
            probes::validate(container, scope, &at, faults);
            continue;
        }
        for (field, is_given) in [
            ("lifecycle", container.lifecycle.is_some()),
            ("livenessProbe", container.liveness_probe.is_some()),
            ("readinessProbe", container.readiness_probe.is_some()),
            ("startupProbe", container.startup_probe.is_some()),
        ] {
            if is_given {
                let why = "may not be set for init containers without restartPolicy=Always";
                faults.push(FieldError::forbidden(format!("{at}.{field}"), why));
            }
        }
        if scope.allowed.init_resize_restarts {
            continue;
        }
        for (number, policy) in container.resize_policy.iter().flatten().enumerate() {
            if policy.restart_policy == "RestartContainer" {
                let at = format!("{at}.resizePolicy[{number}].restartPolicy");
                let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                faults.push(FieldError::invalid(at, quote(&policy.restart_policy), why));
            }
        }
    }
}

/// Validates ephemeral containers, in which most fields are forbidden.
fn check_ephemeral(scope: &Scope<'_>, list: &str, faults: &mut FieldErrors) {
    const NOT_SET: &str = "cannot be set for an Ephemeral Container";
    let init = scope.spec.init_containers.iter().flatten();
    let others: BTreeSet<&str> =
        scope.spec.containers.iter().chain(init).map(|one| one.name.as_str()).collect();
    let mut names = others.clone();
    for (index, ephemeral) in scope.spec.ephemeral_containers.iter().flatten().enumerate() {
        let at = format!("{list}[{index}]");
        let container = as_container(ephemeral);
        check_common(&container, scope, &at, faults);
        check_image(&container, &at, faults);
        if !names.insert(ephemeral.name.as_str()) {
            faults.push(FieldError::duplicate(format!("{at}.name"), quote(&ephemeral.name)));
        }
        let target = ephemeral.target_container_name.as_deref().unwrap_or_default();
        if !target.is_empty() && !others.contains(target) {
            let at = format!("{at}.targetContainerName");
            faults.push(FieldError::not_found(at, quote(target)));
        }
        let has_resources = container.resources.as_ref().is_some_and(|resources| {
            resources.limits.is_some() || resources.requests.is_some() || resources.claims.is_some()
        });
        for (field, is_given) in [
            ("ports", container.ports.as_ref().is_some_and(|ports| !ports.is_empty())),
            ("resources", has_resources),
            ("resizePolicy", container.resize_policy.as_ref().is_some_and(|all| !all.is_empty())),
            ("restartPolicy", container.restart_policy.is_some()),
            (
                "restartPolicyRules",
                container.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty()),
            ),
            ("livenessProbe", container.liveness_probe.is_some()),
            ("readinessProbe", container.readiness_probe.is_some()),
            ("startupProbe", container.startup_probe.is_some()),
            ("lifecycle", container.lifecycle.is_some()),
        ] {
            if is_given {
                faults.push(FieldError::forbidden(format!("{at}.{field}"), NOT_SET));
            }
        }
        for (number, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let at = format!("{at}.volumeMounts[{number}]");
            let is_given =
                |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
            if is_given(&mount.sub_path) {
                faults.push(FieldError::forbidden(format!("{at}.subPath"), NOT_SET));
            }
            if is_given(&mount.sub_path_expr) {
                faults.push(FieldError::forbidden(format!("{at}.subPathExpr"), NOT_SET));
            }
        }
    }
}

/// Converts an ephemeral container to a container, which has the same fields.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let one = ephemeral.clone();
    Container {
        args: one.args,
        command: one.command,
        env: one.env,
        env_from: one.env_from,
        image: one.image,
        image_pull_policy: one.image_pull_policy,
        lifecycle: one.lifecycle,
        liveness_probe: one.liveness_probe,
        name: one.name,
        ports: one.ports,
        readiness_probe: one.readiness_probe,
        resize_policy: one.resize_policy,
        resources: one.resources,
        restart_policy: one.restart_policy,
        restart_policy_rules: one.restart_policy_rules,
        security_context: one.security_context,
        startup_probe: one.startup_probe,
        stdin: one.stdin,
        stdin_once: one.stdin_once,
        termination_message_path: one.termination_message_path,
        termination_message_policy: one.termination_message_policy,
        tty: one.tty,
        volume_devices: one.volume_devices,
        volume_mounts: one.volume_mounts,
        working_dir: one.working_dir,
    }
}

/// Validates the fields that all types of containers have.
fn check_common(container: &Container, scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let name_at = format!("{at}.name");
    if check_given(&name_at, &container.name, faults) {
        check_with(&name_at, &container.name, names::check_dns_1123_label, faults);
    }
    check_given(&format!("{at}.image"), container.image.as_deref().unwrap_or_default(), faults);
    let policies = ["File", "FallbackToLogsOnError"];
    let policy = container.termination_message_policy.as_ref();
    check_one_of(format!("{at}.terminationMessagePolicy"), policy, &policies, faults);
    check_ports(container.ports.as_deref().unwrap_or_default(), at, faults);
    environment::validate(container, at, faults);
    mounts::validate(container, scope, at, faults);
    let policies = ["Always", "IfNotPresent", "Never"];
    let policy = container.image_pull_policy.as_ref();
    check_one_of(format!("{at}.imagePullPolicy"), policy, &policies, faults);
    if let Some(resources) = &container.resources {
        resources::validate(resources, scope, &format!("{at}.resources"), faults);
    }
    let policies = container.resize_policy.as_deref().unwrap_or_default();
    let restart = scope.spec.restart_policy.as_deref();
    restarts::check_resize(policies, restart, &format!("{at}.resizePolicy"), faults);
    if let Some(context) = &container.security_context {
        security::check_container(context, scope, &format!("{at}.securityContext"), faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::prepared;
    use serde_json::json;

    #[test]
    fn defaults() {
        let filled = prepared(
            set_defaults,
            json!({
                "name": "c", "image": "i", "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}],
                "livenessProbe": {"tcpSocket": {"port": 1}},
                "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
                "resources": {"limits": {"cpu": "0.1"}},
            }),
        );
        assert_eq!(filled["imagePullPolicy"], "Always");
        assert_eq!(filled["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
        assert_eq!(filled["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(filled["livenessProbe"]["periodSeconds"], 10);
        assert_eq!(filled["lifecycle"]["preStop"]["httpGet"]["path"], "/");
        assert_eq!(filled["resources"], json!({"limits": {"cpu": "100m"}}));
    }
}
