//! Pods, and the templates that they are made from.

use std::collections::BTreeSet;

use aggregated_apiserver::{FieldError, NameRule, Rules, names};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec, Toleration, Volume};

use super::{Faults, check_one_of, check_with, containers, quote, selectors, shown};

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(in super::super) fn pods(rules: Rules<Pod>) -> Rules<Pod> {
    rules.validate(|pod: &Pod, old, _| {
        let mut faults = Vec::new();
        let nothing = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        check(spec, "spec", Of::Pod, &mut faults);
        if let Some(old) = old.and_then(|old| old.spec.as_ref()) {
            check_change(spec, old, &mut faults);
        }
        faults
    })
}

/// What is wrong with a template.
pub(super) fn check_template(template: &PodTemplateSpec, at: &str, faults: &mut Faults) {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    selectors::check_labels(labels, &format!("{at}.metadata.labels"), faults);
    let nothing = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&nothing);
    check(spec, &format!("{at}.spec"), Of::Template, faults);
}

/// What a spec is of: less is demanded of one that Pods are made from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Pod,
    Template,
}

fn check(spec: &PodSpec, at: &str, of: Of, faults: &mut Faults) {
    let volumes = check_volumes(spec, at, of, faults);
    containers::check_all(spec, at, of, &volumes, faults);
    if let Some(policy) = &spec.restart_policy
        && !["Always", "OnFailure", "Never"].contains(&policy.as_str())
    {
        let all = ["Always", "OnFailure", "Never"];
        faults.push(FieldError::not_supported(format!("{at}.restartPolicy"), quote(policy), &all));
    }
    let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    check_one_of(format!("{at}.dnsPolicy"), spec.dns_policy.as_ref(), &policies, faults);
    if spec.dns_policy.as_deref() == Some("None") {
        let servers = spec.dns_config.as_ref().map(|config| config.nameservers.clone());
        match servers.map(Option::unwrap_or_default) {
            None => {
                let why = "must provide `dnsConfig` when `dnsPolicy` is None";
                faults.push(FieldError::required(format!("{at}.dnsConfig"), why));
            }
            Some(servers) if servers.is_empty() => {
                let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
                faults.push(FieldError::required(format!("{at}.dnsConfig.nameservers"), why));
            }
            Some(_) => {}
        }
    }
    selectors::check_labels(spec.node_selector.as_ref(), &format!("{at}.nodeSelector"), faults);
    for (field, name) in
        [("serviceAccountName", &spec.service_account_name), ("nodeName", &spec.node_name)]
    {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            check_with(
                &format!("{at}.{field}"),
                name,
                |name| NameRule::Subdomain.check(name),
                faults,
            );
        }
    }
    for (field, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            check_with(&format!("{at}.{field}"), name, names::check_label, faults);
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = format!("must be between 1 and {}, inclusive", i32::MAX);
        faults.push(FieldError::invalid(format!("{at}.activeDeadlineSeconds"), seconds, &why));
    }
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check_toleration(toleration, &format!("{at}.tolerations[{index}]"), faults);
    }
    for (index, spread) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let at = format!("{at}.topologySpreadConstraints[{index}]");
        if spread.max_skew <= 0 {
            let why = "must be greater than zero";
            faults.push(FieldError::invalid(format!("{at}.maxSkew"), spread.max_skew, why));
        }
        if spread.topology_key.is_empty() {
            faults.push(FieldError::required(format!("{at}.topologyKey"), "can not be empty"));
        }
        let all = ["DoNotSchedule", "ScheduleAnyway"];
        let given = Some(&spread.when_unsatisfiable);
        check_one_of(format!("{at}.whenUnsatisfiable"), given, &all, faults);
    }
}

fn check_toleration(toleration: &Toleration, at: &str, faults: &mut Faults) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    if !key.is_empty() {
        check_with(&format!("{at}.key"), key, names::check_label_key, faults);
    } else if operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        faults.push(FieldError::invalid(format!("{at}.operator"), quote(operator), why));
    }
    match operator {
        "" | "Equal" => {
            check_with(&format!("{at}.operator"), value, names::check_label_value, faults);
        }
        "Exists" => {
            if !value.is_empty() {
                let why = "value must be empty when `operator` is 'Exists'";
                faults.push(FieldError::invalid(format!("{at}.operator"), quote(value), why));
            }
        }
        other => {
            let all = ["Equal", "Exists"];
            faults.push(FieldError::not_supported(format!("{at}.operator"), quote(other), &all));
        }
    }
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.push(FieldError::invalid(format!("{at}.effect"), quote(effect), why));
    }
    if let Some(effect) = toleration.effect.as_ref().filter(|effect| !effect.is_empty()) {
        let all = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        check_one_of(format!("{at}.effect"), Some(effect), &all, faults);
    }
}

/// What is wrong with volumes; answers with the names of those that are right.
fn check_volumes<'a>(
    spec: &'a PodSpec,
    at: &str,
    of: Of,
    faults: &mut Faults,
) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let at = format!("{at}.volumes[{index}]");
        let mut own = Vec::new();
        check_source(volume, spec, &at, of, &mut own);
        if volume.name.is_empty() {
            own.push(FieldError::required(format!("{at}.name"), ""));
        } else {
            check_with(&format!("{at}.name"), &volume.name, names::check_label, &mut own);
        }
        if names.contains(volume.name.as_str()) {
            own.push(FieldError::duplicate(format!("{at}.name"), quote(&volume.name)));
        }
        if own.is_empty() {
            names.insert(volume.name.as_str());
        }
        faults.extend(own);
    }
    names
}

fn check_source(volume: &Volume, spec: &PodSpec, at: &str, of: Of, faults: &mut Faults) {
    let tree = serde_json::to_value(volume).unwrap_or_default();
    let mut sources: Vec<&str> =
        tree.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    sources.retain(|name| *name != "name");
    // In the order in which they are looked at.
    sources.sort_by_key(|name| ORDER.iter().position(|one| one == name).unwrap_or(ORDER.len()));
    for name in sources.iter().skip(1) {
        let why = "may not specify more than 1 volume type";
        faults.push(FieldError::forbidden(format!("{at}.{name}"), why));
    }
    let mut need = |field: &str, text: Option<&String>| {
        if text.is_none_or(String::is_empty) {
            faults.push(FieldError::required(format!("{at}.{field}"), ""));
        }
    };
    match sources.first() {
        None => {
            let why = "must specify a volume type";
            faults.push(FieldError::required(at.to_owned(), why));
        }
        Some(&"hostPath") => {
            need("hostPath.path", volume.host_path.as_ref().map(|source| &source.path));
        }
        Some(&"secret") => {
            let name = volume.secret.as_ref().and_then(|source| source.secret_name.as_ref());
            need("secret.secretName", name);
        }
        Some(&"configMap") => {
            need("configMap.name", volume.config_map.as_ref().map(|source| &source.name));
        }
        Some(&"persistentVolumeClaim") => {
            let claim = volume.persistent_volume_claim.as_ref();
            need("persistentVolumeClaim.claimName", claim.map(|source| &source.claim_name));
        }
        Some(&"csi") => need("csi.driver", volume.csi.as_ref().map(|source| &source.driver)),
        Some(&"projected") => {
            let sources = volume.projected.as_ref().and_then(|one| one.sources.as_ref());
            for (index, source) in sources.into_iter().flatten().enumerate() {
                let has_account =
                    spec.service_account_name.as_ref().is_some_and(|name| !name.is_empty());
                if let Some(token) = source.service_account_token.as_ref() {
                    let at = format!("{at}.projected.sources[{index}].serviceAccountToken");
                    if of == Of::Pod && !has_account {
                        let why = "must not be specified when serviceAccountName is not set";
                        faults.push(FieldError::forbidden(at, why));
                    } else if token.path.is_empty() {
                        faults.push(FieldError::required(format!("{at}.path"), ""));
                    }
                }
            }
        }
        Some(_) => {}
    }
}

const ORDER: [&str; 28] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
];

/// Of a Pod that is there next to nothing changes.
fn check_change(spec: &PodSpec, old: &PodSpec, faults: &mut Faults) {
    let same_length = |a: &Option<Vec<_>>, b: &Option<Vec<_>>| {
        a.as_ref().map_or(0, Vec::len) == b.as_ref().map_or(0, Vec::len)
    };
    let names = |spec: &PodSpec| {
        let all = spec.containers.iter().map(|container| container.name.clone());
        all.collect::<Vec<String>>()
    };
    if names(spec).len() != names(old).len() {
        let why = "pod updates may not add or remove containers";
        return faults.push(FieldError::forbidden("spec.containers", why));
    }
    if !same_length(&spec.init_containers, &old.init_containers) {
        let why = "pod updates may not add or remove containers";
        return faults.push(FieldError::forbidden("spec.initContainers", why));
    }
    match (spec.active_deadline_seconds, old.active_deadline_seconds) {
        (Some(new), Some(old)) if new > old => {
            let why = "must be less than or equal to previous value";
            return faults.push(FieldError::invalid("spec.activeDeadlineSeconds", new, why));
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            return faults.push(FieldError::invalid("spec.activeDeadlineSeconds", "null", why));
        }
        _ => {}
    }
    let before = old.tolerations.as_deref().unwrap_or_default();
    let now = spec.tolerations.as_deref().unwrap_or_default();
    // How long they hold may change.
    let lasting = |one: &Toleration| shown(&Toleration { toleration_seconds: None, ..one.clone() });
    let now: BTreeSet<String> = now.iter().map(lasting).collect();
    if !before.iter().map(lasting).all(|one| now.contains(&one)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        faults.push(FieldError::forbidden("spec.tolerations", why));
    }
    let mut rest = spec.clone();
    for (new, old) in rest.containers.iter_mut().zip(&old.containers) {
        new.image.clone_from(&old.image);
    }
    let both = rest.init_containers.iter_mut().flatten().zip(old.init_containers.iter().flatten());
    for (new, old) in both {
        new.image.clone_from(&old.image);
    }
    rest.active_deadline_seconds = old.active_deadline_seconds;
    check_gates(&mut rest, old, faults);
    rest.tolerations.clone_from(&old.tolerations);
    if old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        rest.termination_grace_period_seconds = old.termination_grace_period_seconds;
    }
    if rest != *old {
        faults.push(FieldError::forbidden("spec", MAY_CHANGE));
    }
}

/// Gates may be opened. While one is shut, it may still be said where a Pod is to
/// run.
fn check_gates(rest: &mut PodSpec, old: &PodSpec, faults: &mut Faults) {
    let before = old.scheduling_gates.as_deref().unwrap_or_default();
    let now = rest.scheduling_gates.as_deref().unwrap_or_default();
    let known: BTreeSet<&str> = before.iter().map(|gate| gate.name.as_str()).collect();
    let added = now.iter().enumerate().filter(|(_, gate)| !known.contains(gate.name.as_str()));
    for (index, gate) in added {
        let at = format!("spec.schedulingGates[{index}].name");
        let name = &gate.name;
        let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        faults.push(FieldError::forbidden(at, &why));
    }
    rest.scheduling_gates.clone_from(&old.scheduling_gates);
    if before.is_empty() {
        return;
    }
    let kept = |(key, value): (&String, &String)| {
        rest.node_selector.as_ref().and_then(|selector| selector.get(key)) == Some(value)
    };
    if !old.node_selector.iter().flatten().all(kept) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        let value = shown(&rest.node_selector);
        faults.push(FieldError::invalid("spec.nodeSelector", value, why));
    }
    rest.node_selector.clone_from(&old.node_selector);
    if let Some(affinity) = &mut rest.affinity {
        let before = old.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
        affinity.node_affinity = before;
        if old.affinity.is_none() && *affinity == Default::default() {
            rest.affinity = None;
        }
    }
}
