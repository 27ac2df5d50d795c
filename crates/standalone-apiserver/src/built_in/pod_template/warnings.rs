//! Warnings about Pods and templates: valid specs that are probably not intended.

mod overlaps;
mod ports;

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, NodeSelectorTerm, PodSpec, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::affinity::pod_terms;
use super::annotations::{APP_ARMOR_OF, SECCOMP_OF, SECCOMP_OF_POD};
use super::resources::canonical;
use super::security::check_app_armor;
use crate::built_in::amounts::milli_value;
use crate::built_in::checks::quote;
use crate::built_in::core::persistent_volume_claim;
use crate::built_in::networks::warning_of_address;

/// The largest number of warnings about an object, if each pair of its parts may cause one.
const LIMIT: usize = 1_000;

const NO_POD: &str = "a null labelSelector results in matching no pod";

/// A warning about a name that is not a DNS label, because host names are derived from it.
pub(crate) fn of_name(name: Option<&str>) -> Option<String> {
    let faults = names::check_dns_1123_label(name.unwrap_or_default());
    (!faults.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        )
    })
}

/// Warnings about a template at this path.
pub(crate) fn of_template(template: &PodTemplateSpec, at: &str) -> Vec<String> {
    let nothing = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&nothing);
    of_spec(spec, template.metadata.as_ref(), &format!("{at}."), true)
}

/// Warnings about a Pod.
pub(crate) fn of_pod(spec: &PodSpec, metadata: &ObjectMeta) -> Vec<String> {
    of_spec(spec, Some(metadata), "", false)
}

/// The subject of warnings.
struct Context<'a> {
    spec: &'a PodSpec,
    annotations: BTreeMap<&'a str, &'a str>,
    /// The path of the template, with a trailing dot; empty for a Pod.
    at: &'a str,
    is_template: bool,
}

fn of_spec(
    spec: &PodSpec,
    metadata: Option<&ObjectMeta>,
    at: &str,
    is_template: bool,
) -> Vec<String> {
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    let annotations =
        annotations.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    let context = Context { spec, annotations: annotations.collect(), at, is_template };
    let mut warnings = Vec::new();
    of_nodes(&context, &mut warnings);
    of_spread(&context, &mut warnings);
    of_annotations(&context, &mut warnings);
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        of_volume(volume, &format!("{at}spec.volumes[{index}]"), &mut warnings);
    }
    overlaps::of_volumes(spec, &mut warnings);
    of_duplicates(&context, &mut warnings);
    let overhead = spec.overhead.as_ref();
    of_fractions(overhead, &format!("{at}spec.overhead"), &mut warnings);
    of_containers(&context, &mut warnings);
    ports::of_containers(spec, at, &mut warnings);
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{at}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    of_affinity(&context, &mut warnings);
    of_addresses(&context, &mut warnings);
    warnings
}

/// Returns the reason for which a label of nodes is deprecated.
fn deprecation_of_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

fn of_nodes(context: &Context<'_>, warnings: &mut Vec<String>) {
    let at = format!("{}spec", context.at);
    for (key, _) in context.spec.node_selector.iter().flatten() {
        if let Some(why) = deprecation_of_label(key) {
            warnings.push(format!("{at}.nodeSelector[{key}]: {why}"));
        }
    }
    let affinity = context.spec.affinity.as_ref();
    let Some(nodes) = affinity.and_then(|affinity| affinity.node_affinity.as_ref()) else { return };
    let at = format!("{at}.affinity.nodeAffinity");
    let required = nodes.required_during_scheduling_ignored_during_execution.as_ref();
    let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
    for (index, term) in terms.enumerate() {
        let at = format!(
            "{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]"
        );
        of_term(term, false, &at, warnings);
    }
    let preferred = nodes.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    for (index, term) in preferred.enumerate() {
        let at =
            format!("{at}.preferredDuringSchedulingIgnoredDuringExecution[{index}].preference");
        of_term(&term.preference, true, &at, warnings);
    }
}

fn of_term(term: &NodeSelectorTerm, judges_values: bool, at: &str, warnings: &mut Vec<String>) {
    for (index, one) in term.match_expressions.iter().flatten().enumerate() {
        let at = format!("{at}.matchExpressions[{index}]");
        if let Some(why) = deprecation_of_label(&one.key) {
            warnings.push(format!("{at}.key: {} is {why}", one.key));
        }
        let values = one.values.iter().flatten().enumerate().filter(|_| judges_values);
        for (number, value) in values {
            for why in names::check_label_value(value) {
                warnings.push(format!("{at}.values[{number}]: {value} is invalid, {why}"));
            }
        }
    }
}

fn of_spread(context: &Context<'_>, warnings: &mut Vec<String>) {
    let all = context.spec.topology_spread_constraints.iter().flatten();
    for (index, one) in all.enumerate() {
        let at = format!("{}spec.topologySpreadConstraints[{index}]", context.at);
        if let Some(why) = deprecation_of_label(&one.topology_key) {
            warnings.push(format!("{at}.topologyKey: {} is {why}", one.topology_key));
        }
        if one.label_selector.is_none() {
            warnings.push(format!("{at}.labelSelector: {NO_POD}"));
        }
    }
}

fn of_annotations(context: &Context<'_>, warnings: &mut Vec<String>) {
    for (key, why) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/unsafe-sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
    ] {
        if context.annotations.contains_key(key) {
            warnings.push(format!("{}metadata.annotations[{key}]: {why}", context.at));
        }
    }
}

fn of_volume(volume: &Volume, at: &str, warnings: &mut Vec<String>) {
    for (field, is_there, why) in [
        (
            "photonPersistentDisk",
            volume.photon_persistent_disk.is_some(),
            "deprecated in v1.11, non-functional in v1.16+",
        ),
        (
            "gitRepo",
            volume.git_repo.is_some(),
            "deprecated in v1.11, and disabled by default in v1.33+",
        ),
        ("scaleIO", volume.scale_io.is_some(), "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", volume.flocker.is_some(), "deprecated in v1.22, non-functional in v1.25+"),
        ("storageOS", volume.storageos.is_some(), "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", volume.quobyte.is_some(), "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", volume.glusterfs.is_some(), "deprecated in v1.25, non-functional in v1.26+"),
    ] {
        if is_there {
            warnings.push(format!("{at}.{field}: {why}"));
        }
    }
    let template = volume.ephemeral.as_ref().and_then(|one| one.volume_claim_template.as_ref());
    if let Some(template) = template {
        let at = format!("{at}.ephemeral.volumeClaimTemplate.spec");
        warnings.extend(persistent_volume_claim::warnings_of_sizes(Some(&template.spec), &at));
    }
    for (field, is_there) in [("cephfs", volume.cephfs.is_some()), ("rbd", volume.rbd.is_some())] {
        if is_there {
            warnings.push(format!("{at}.{field}: deprecated in v1.28, non-functional in v1.31+"));
        }
    }
}

fn of_duplicates(context: &Context<'_>, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, alias) in context.spec.host_aliases.iter().flatten().enumerate() {
        if !seen.insert(&alias.ip) {
            let ip = quote(&alias.ip);
            let at = context.at;
            warnings.push(format!("{at}spec.hostAliases[{index}].ip: duplicate ip {ip}"));
        }
    }
    let secrets = context.spec.image_pull_secrets.as_deref().unwrap_or_default();
    let at = |index: usize| format!("{}spec.imagePullSecrets[{index}].name", context.at);
    let mut seen = BTreeSet::new();
    for (index, secret) in secrets.iter().enumerate() {
        if !seen.insert(&secret.name) {
            warnings.push(format!("{}: duplicate name {}", at(index), quote(&secret.name)));
        }
    }
    for (index, _) in secrets.iter().enumerate().filter(|(_, secret)| secret.name.is_empty()) {
        warnings.push(format!("{}: invalid empty name \"\"", at(index)));
    }
}

/// Warnings about sizes that are not a whole number of bytes.
fn of_fractions(amounts: Option<&BTreeMap<String, Amount>>, at: &str, warnings: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        let Some(amount) = amounts.and_then(|amounts| amounts.get(name)) else { continue };
        let is_whole = Quantity::parse(&amount.0).is_ok_and(|one| milli_value(one) % 1_000 == 0);
        if !is_whole {
            let value = quote(&canonical(amount));
            warnings.push(format!(
                "{at}[{name}]: fractional byte value {value} is invalid, must be an integer"
            ));
        }
    }
}

fn of_containers(context: &Context<'_>, warnings: &mut Vec<String>) {
    let at = format!("{}metadata.annotations", context.at);
    let own = context.spec.security_context.as_ref();
    if own.is_none_or(|own| own.seccomp_profile.is_none())
        && context.annotations.contains_key(SECCOMP_OF_POD)
    {
        warnings.push(format!("{at}[{SECCOMP_OF_POD}]: {NO_SECCOMP}"));
    }
    let init = context.spec.init_containers.iter().flatten().enumerate();
    let regular = context.spec.containers.iter().enumerate();
    let all = init.map(|one| ("initContainers", one));
    for (list, (index, container)) in all.chain(regular.map(|one| ("containers", one))) {
        of_profiles(container, context, &at, warnings);
        let at = format!("{}spec.{list}[{index}]", context.at);
        of_memory(container, &at, warnings);
        of_variables(container, &at, warnings);
    }
}

const NO_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

fn of_profiles(container: &Container, context: &Context<'_>, at: &str, warnings: &mut Vec<String>) {
    let own = container.security_context.as_ref();
    let key = format!("{SECCOMP_OF}{}", container.name);
    if own.is_none_or(|own| own.seccomp_profile.is_none())
        && context.annotations.contains_key(&*key)
    {
        warnings.push(format!("{at}[{key}]: {NO_SECCOMP}"));
    }
    let key = format!("{APP_ARMOR_OF}{}", container.name);
    let Some(annotation) = context.annotations.get(&*key) else { return };
    let of_pod = context.spec.security_context.as_ref();
    let of_pod = of_pod.and_then(|own| own.app_armor_profile.as_ref());
    let profile = app_armor_profile(annotation);
    let own = own.and_then(|own| own.app_armor_profile.as_ref());
    let is_warned = if context.is_template {
        own.is_none() && (of_pod.is_none() || of_pod != profile.as_ref())
    } else {
        // In a Pod, defaulting has already turned the annotation into the field.
        let is_windows = context.spec.os.as_ref().is_some_and(|os| os.name == "windows");
        let is_made = own.is_some() && own == profile.as_ref() && own != of_pod;
        !is_windows && (is_made || (own.is_none() && profile.is_none()))
    };
    if is_warned {
        let why = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
        warnings.push(format!("{at}[{key}]: {why}"));
    }
}

/// The AppArmor profile of an annotation, if the annotation is valid.
pub(crate) fn app_armor_profile(annotation: &str) -> Option<AppArmorProfile> {
    let (type_, path) = match annotation.strip_prefix("localhost/") {
        Some(path) if !path.is_empty() => ("Localhost", Some(path.to_owned())),
        None if annotation == "unconfined" => ("Unconfined", None),
        None if annotation == "runtime/default" => ("RuntimeDefault", None),
        _ => return None,
    };
    let profile = AppArmorProfile { type_: type_.to_owned(), localhost_profile: path };
    let mut faults = Vec::new();
    check_app_armor(Some(&profile), "", &mut faults);
    faults.is_empty().then_some(profile)
}

fn of_memory(container: &Container, at: &str, warnings: &mut Vec<String>) {
    let Some(resources) = &container.resources else { return };
    for name in ["memory", "ephemeral-storage"] {
        for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
            let of_name = amounts.as_ref().and_then(|amounts| amounts.get_key_value(name));
            let of_name = of_name.map(|(name, amount)| (name.clone(), amount.clone()));
            let of_name: BTreeMap<String, Amount> = of_name.into_iter().collect();
            of_fractions(Some(&of_name), &format!("{at}.resources.{list}"), warnings);
        }
    }
}

/// Warnings about variables that hide another one, unless they extend its value.
fn of_variables(container: &Container, at: &str, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in container.env.iter().flatten().enumerate() {
        if seen.insert(variable.name.as_str()) {
            continue;
        }
        let reference = format!("$({})", variable.name);
        let value = variable.value.as_deref().unwrap_or_default();
        if variable.value_from.is_some() || value == reference || !value.contains(&reference) {
            let name = quote(&variable.name);
            warnings.push(format!(
                "{at}.env[{index}]: hides previous definition of {name}, which may be dropped when using apply"
            ));
        }
    }
}

fn of_affinity(context: &Context<'_>, warnings: &mut Vec<String>) {
    let Some(affinity) = &context.spec.affinity else { return };
    for (field, required, preferred) in pod_terms(affinity) {
        let at = format!("{}spec.affinity.{field}", context.at);
        for (index, term) in required.iter().enumerate() {
            if term.label_selector.is_none() {
                let list = "requiredDuringSchedulingIgnoredDuringExecution";
                warnings.push(format!("{at}.{list}[{index}].labelSelector: {NO_POD}"));
            }
        }
        for (index, weighted) in preferred.iter().enumerate() {
            if weighted.pod_affinity_term.label_selector.is_none() {
                let list = "preferredDuringSchedulingIgnoredDuringExecution";
                warnings
                    .push(format!("{at}.{list}[{index}].podAffinityTerm.labelSelector: {NO_POD}"));
            }
        }
    }
}

fn of_addresses(context: &Context<'_>, warnings: &mut Vec<String>) {
    let at = format!("{}spec", context.at);
    let config = context.spec.dns_config.as_ref();
    let servers = config.into_iter().flat_map(|config| config.nameservers.iter().flatten());
    for (index, server) in servers.enumerate() {
        warnings
            .extend(warning_of_address(&format!("{at}.dnsConfig.nameservers[{index}]"), server));
    }
    for (index, alias) in context.spec.host_aliases.iter().flatten().enumerate() {
        warnings.extend(warning_of_address(&format!("{at}.hostAliases[{index}].ip"), &alias.ip));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    fn warnings(spec: Value, annotations: Value) -> Vec<String> {
        let metadata = object(json!({"annotations": annotations}));
        of_pod(&object(spec), &metadata)
    }

    #[test]
    fn variables() {
        let of =
            |env: Value| warnings(json!({"containers": [{"name": "c", "env": env}]}), json!({}));
        let hidden = "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply";
        let both =
            |value: &str| json!([{"name": "A", "value": "a"}, {"name": "A", "value": value}]);
        assert_eq!(of(both("b")), [hidden]);
        assert_eq!(of(both("$(A)")), [hidden]);
        assert!(of(both("$(A)b")).is_empty());
    }

    #[test]
    fn profiles_in_annotations() {
        let annotations = json!({(format!("{APP_ARMOR_OF}c")): "unconfined"});
        let made = json!({"appArmorProfile": {"type": "Unconfined"}});
        let of = |own: &Value, of_pod: &Value| {
            let spec = json!({
                "containers": [{"name": "c", "securityContext": own}], "securityContext": of_pod,
            });
            warnings(spec, annotations.clone()).len()
        };
        assert_eq!(of(&made, &json!({})), 1);
        assert_eq!(of(&json!({}), &made), 0);
        assert_eq!(of(&json!({"appArmorProfile": {"type": "RuntimeDefault"}}), &json!({})), 0);
    }
}
