//! Possible improvements of a Pod, as codes. None of them is a problem yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::images::Reference;
use super::view::{ContainerView, PodView, VolumeView, given};

/// A possible improvement of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Finding {
    /// A container has no memory limit, so it may use memory that others need.
    NoLimits,
    /// A container requests no CPU or no memory, so the node may have none left for it.
    NoRequests,
    /// A container of a long-running Pod has no probe, so a hanging container is not detected.
    NoProbes,
    /// An image has no tag or the tag `latest`, and no digest, so it may change.
    LatestImage,
    /// No controller recreates the Pod when its node is lost.
    NakedPod,
    /// The Pod uses the default service account of its namespace.
    DefaultServiceAccount,
    /// The Pod mounts a directory of its node.
    HostPath,
    /// The Pod uses the network of its node, or sees other processes there.
    HostNamespaces,
    /// A container has all privileges of its node.
    Privileged,
    /// A container may run as root.
    Root,
}

impl Finding {
    /// The code as in the status of a farm pod.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoLimits => "NoLimits",
            Self::NoRequests => "NoRequests",
            Self::NoProbes => "NoProbes",
            Self::LatestImage => "LatestImage",
            Self::NakedPod => "NakedPod",
            Self::DefaultServiceAccount => "DefaultServiceAccount",
            Self::HostPath => "HostPath",
            Self::HostNamespaces => "HostNamespaces",
            Self::Privileged => "Privileged",
            Self::Root => "Root",
        }
    }
}

/// Returns all findings of a Pod, in the order of the enum.
pub fn findings(pod: &PodView) -> Vec<Finding> {
    let spec = &pod.spec;
    // Init containers that run to completion need no probes.
    let lasting = || {
        let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar());
        sidecars.chain(&spec.containers)
    };
    let all = || spec.init_containers.iter().chain(&spec.containers);
    // The resources of the Pod apply to each of its containers.
    let lacks = |resource: &str, is_limit: bool| {
        let amounts = |of: &super::view::RequirementsView| {
            let amounts = if is_limit { &of.limits } else { &of.requests };
            amounts.get(resource).is_some()
        };
        !amounts(&spec.resources) && lasting().any(|container| !amounts(&container.resources))
    };
    let runs_for_ever = matches!(spec.restart_policy.as_deref(), None | Some("Always"));
    let has_probe = |one: &ContainerView| {
        one.liveness_probe.or(one.readiness_probe).or(one.startup_probe).is_some()
    };
    let account = given(spec.service_account_name.as_ref());
    let found = [
        (Finding::NoLimits, lacks("memory", true)),
        (Finding::NoRequests, lacks("cpu", false) || lacks("memory", false)),
        (Finding::NoProbes, runs_for_ever && !lasting().all(has_probe)),
        (Finding::LatestImage, all().any(|one| Reference::parse(&one.image).is_latest())),
        (Finding::NakedPod, pod.metadata.owners.is_empty()),
        (Finding::DefaultServiceAccount, matches!(account, None | Some("default"))),
        (Finding::HostPath, spec.volumes.contains(&VolumeView::HostPath)),
        (Finding::HostNamespaces, spec.host_network || spec.host_pid || spec.host_ipc),
        (Finding::Privileged, all().any(|one| one.security_context.privileged == Some(true))),
        (Finding::Root, all().any(|container| may_be_root(container, pod))),
    ];
    found.into_iter().filter(|(_, is_so)| *is_so).map(|(finding, _)| finding).collect()
}

/// Whether a container may run as root. The security context of the container takes precedence over that of its Pod.
fn may_be_root(container: &ContainerView, pod: &PodView) -> bool {
    let (own, common) = (&container.security_context, &pod.spec.security_context);
    match own.run_as_user.or(common.run_as_user) {
        Some(user) => user == 0,
        None => own.run_as_non_root.or(common.run_as_non_root) != Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A Pod without findings.
    fn clean() -> Value {
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        json!({
            "metadata": {"name": "p", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "u", "controller": true},
            ]},
            "spec": {
                "serviceAccountName": "feeder", "restartPolicy": "Always",
                "securityContext": {"runAsNonRoot": true},
                "containers": [{
                    "name": "c", "image": "i:1", "readinessProbe": {"httpGet": {"port": 1}},
                    "resources": {"limits": amounts, "requests": amounts},
                }],
            },
        })
    }

    fn check(change: impl Fn(&mut Value), expected: &[&str]) {
        let mut pod = clean();
        change(&mut pod);
        let pod: PodView = serde_json::from_value(pod).unwrap();
        let found = findings(&pod);
        let codes: Vec<&str> = found.iter().map(|finding| finding.code()).collect();
        assert_eq!(codes, expected);
        let written = serde_json::to_value(&found).unwrap();
        assert_eq!(written, json!(codes));
    }

    #[test]
    fn each_has_a_code() {
        check(|_| (), &[]);
        let container = |pod: &mut Value, field: &str, value: Value| {
            pod["spec"]["containers"][0][field] = value;
        };
        check(|pod| container(pod, "resources", json!({})), &["NoLimits", "NoRequests"]);
        check(
            |pod| {
                container(
                    pod,
                    "resources",
                    json!({"requests": {"cpu": "1"}, "limits": {"memory": "1"}}),
                );
            },
            &["NoRequests"],
        );
        check(|pod| container(pod, "readinessProbe", json!(null)), &["NoProbes"]);
        check(|pod| container(pod, "startupProbe", json!({})), &[]);
        check(|pod| container(pod, "image", json!("i")), &["LatestImage"]);
        check(|pod| container(pod, "image", json!("i:latest")), &["LatestImage"]);
        check(|pod| container(pod, "image", json!("i:latest@sha256:1")), &[]);
        check(|pod| pod["metadata"]["ownerReferences"] = json!([]), &["NakedPod"]);
        check(
            |pod| pod["spec"]["serviceAccountName"] = json!("default"),
            &["DefaultServiceAccount"],
        );
        check(
            |pod| pod["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": "/"}}]),
            &["HostPath"],
        );
        check(|pod| pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]), &[]);
        check(|pod| pod["spec"]["hostPID"] = json!(true), &["HostNamespaces"]);
        check(
            |pod| container(pod, "securityContext", json!({"privileged": true})),
            &["Privileged"],
        );
    }

    #[test]
    fn a_container_not_forbidden_to_run_as_root_is_a_finding() {
        let security = |of_pod: Value, own: Value, expected: &[&str]| {
            check(
                |pod| {
                    pod["spec"]["securityContext"] = of_pod.clone();
                    pod["spec"]["containers"][0]["securityContext"] = own.clone();
                },
                expected,
            );
        };
        security(json!({}), json!({}), &["Root"]);
        security(json!({"runAsUser": 0}), json!({}), &["Root"]);
        security(json!({"runAsUser": 7}), json!({}), &[]);
        security(json!({"runAsUser": 7}), json!({"runAsUser": 0}), &["Root"]);
        security(json!({"runAsNonRoot": true}), json!({"runAsNonRoot": false}), &["Root"]);
        security(json!({}), json!({"runAsNonRoot": true}), &[]);
    }

    #[test]
    fn containers_that_run_to_completion_need_no_probes_but_sidecars_do() {
        let bare = json!([{"name": "i", "image": "i:1"}]);
        check(|pod| pod["spec"]["initContainers"] = bare.clone(), &[]);
        check(
            |pod| {
                pod["spec"]["initContainers"] = bare.clone();
                pod["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
            },
            &["NoLimits", "NoRequests", "NoProbes"],
        );
        check(
            |pod| {
                pod["spec"]["restartPolicy"] = json!("OnFailure");
                pod["spec"]["containers"][0]["readinessProbe"] = json!(null);
            },
            &[],
        );
    }

    #[test]
    fn pod_level_resources_count_for_containers_without_resources() {
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        check(
            |pod| {
                pod["spec"]["containers"][0]["resources"] = json!({});
                pod["spec"]["resources"] = json!({"limits": amounts, "requests": amounts});
            },
            &[],
        );
    }
}
