//! Containers.

use std::collections::BTreeSet;

use aggregated_apiserver::{FieldError, names};
use k8s_openapi::api::core::v1::{Container, Lifecycle, PodSpec, ResourceRequirements};

use super::environment::check_variable;
use super::images::default_pull_policy;
use super::ports::check_ports;
use super::probes::{self, check_handler, check_probe};
use super::resources::{self, round_up};
use super::spec::Owner;
use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
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

/// Validates all containers of a PodSpec. They may mount these volumes.
pub(crate) fn validate(
    spec: &PodSpec,
    at: &str,
    owner: Owner,
    volumes: &BTreeSet<&str>,
    faults: &mut FieldErrors,
) {
    if spec.containers.is_empty() {
        faults.push(FieldError::required(format!("{at}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    let nothing = Vec::new();
    let first = spec.init_containers.as_ref().unwrap_or(&nothing);
    for (list, containers) in [("containers", &spec.containers), ("initContainers", first)] {
        for (index, container) in containers.iter().enumerate() {
            let at = format!("{at}.{list}[{index}]");
            if container.name.is_empty() {
                faults.push(FieldError::required(format!("{at}.name"), ""));
            } else {
                let at = format!("{at}.name");
                check_with(&at, &container.name, names::check_dns_1123_label, faults);
                if !names.insert(container.name.as_str()) {
                    faults.push(FieldError::duplicate(at, quote(&container.name)));
                }
            }
            check(container, &at, owner, volumes, faults);
        }
    }
}

fn check(
    container: &Container,
    at: &str,
    owner: Owner,
    volumes: &BTreeSet<&str>,
    faults: &mut FieldErrors,
) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        faults.push(FieldError::required(format!("{at}.image"), ""));
    } else if owner == Owner::Pod && image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.push(FieldError::invalid(format!("{at}.image"), quote(image), why));
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    let policy = container.image_pull_policy.as_ref();
    check_one_of(format!("{at}.imagePullPolicy"), policy, &policies, faults);
    let policies = ["FallbackToLogsOnError", "File"];
    let policy = container.termination_message_policy.as_ref();
    check_one_of(format!("{at}.terminationMessagePolicy"), policy, &policies, faults);
    check_ports(container.ports.as_deref().unwrap_or_default(), at, faults);
    for (index, variable) in container.env.iter().flatten().enumerate() {
        check_variable(variable, &format!("{at}.env[{index}]"), faults);
    }
    let mut paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = format!("{at}.volumeMounts[{index}]");
        if mount.name.is_empty() {
            faults.push(FieldError::required(format!("{at}.name"), ""));
        } else if !volumes.contains(mount.name.as_str()) {
            faults.push(FieldError::not_found(format!("{at}.name"), quote(&mount.name)));
        }
        if mount.mount_path.is_empty() {
            faults.push(FieldError::required(format!("{at}.mountPath"), ""));
        } else if !paths.insert(mount.mount_path.as_str()) {
            let why = "must be unique";
            let value = quote(&mount.mount_path);
            faults.push(FieldError::invalid(format!("{at}.mountPath"), value, why));
        }
    }
    for (field, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        if let Some(probe) = probe {
            let is_of_readiness = field == "readinessProbe";
            check_probe(probe, is_of_readiness, &format!("{at}.{field}"), faults);
        }
    }
    if let Some(Lifecycle { post_start, pre_stop, .. }) = &container.lifecycle {
        for (field, handler) in [("postStart", post_start), ("preStop", pre_stop)] {
            if let Some(handler) = handler {
                check_handler(handler, &format!("{at}.lifecycle.{field}"), faults);
            }
        }
    }
    if let Some(resources) = &container.resources {
        resources::validate(resources, &format!("{at}.resources"), faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{object, prepared, texts};
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

    #[test]
    fn faults() {
        let volumes = BTreeSet::from(["v"]);
        for (spec, of, expected) in [
            (json!({"containers": [{"name": "c", "image": "i"}]}), Owner::Pod, vec![]),
            (json!({}), Owner::Pod, vec!["s.containers: Required value"]),
            (
                json!({
                    "containers": [{"name": "c", "image": ""}],
                    "initContainers": [{"name": "c", "image": "i"}, {"image": "i"}],
                }),
                Owner::Pod,
                vec![
                    "s.containers[0].image: Required value",
                    "s.initContainers[0].name: Duplicate value: \"c\"",
                    "s.initContainers[1].name: Required value",
                ],
            ),
            (
                json!({"containers": [{"name": "c", "image": " i"}]}),
                Owner::Pod,
                vec![
                    "s.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
                ],
            ),
            (json!({"containers": [{"name": "c", "image": " i"}]}), Owner::Template, vec![]),
            (
                json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [
                    {"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a"}, {},
                ]}]}),
                Owner::Pod,
                vec![
                    "s.containers[0].volumeMounts[1].name: Not found: \"w\"",
                    "s.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique",
                    "s.containers[0].volumeMounts[2].name: Required value",
                    "s.containers[0].volumeMounts[2].mountPath: Required value",
                ],
            ),
        ] {
            let mut faults = Vec::new();
            validate(&object(spec.clone()), "s", of, &volumes, &mut faults);
            assert_eq!(texts(&faults), expected, "{spec}");
        }
    }
}
