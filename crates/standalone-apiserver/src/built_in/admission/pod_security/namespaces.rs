//! The labels of namespaces: the policy must be valid, and warnings list existing Pods that violate a new level.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::admission::{AdmissionError, AdmissionRequest};
use k8s_openapi::api::core::v1::Pod;

use super::checks::reasons;
use super::configuration::Configuration;
use super::policy::{Level, LevelVersion, Policy, policy_of};
use super::{PODS, Tree, view::PodView};

/// The largest number of Pods of a namespace that are checked; same as kube-apiserver.
const PODS_LIMIT: usize = 3000;

pub(super) fn judge(
    configuration: &Configuration,
    request: &AdmissionRequest<'_>,
    namespace: &Tree,
) -> Result<(), AdmissionError> {
    let defaults = &configuration.defaults;
    let labels = labels_of(namespace);
    let (policy, errors) = policy_of(defaults, |label| labels.get(label)?.as_str());
    let exempt = configuration.exemptions.namespaces.iter().any(|name| name == request.name);
    let Some(old) = request.old_object() else {
        if !errors.is_empty() {
            return Err(AdmissionError::invalid(errors));
        }
        if exempt {
            warn_of_exemption(defaults, request, &policy, &labels);
        }
        return Ok(());
    };
    let old = labels_of(old);
    let (old_policy, old_errors) = policy_of(defaults, |label| old.get(label)?.as_str());
    let shown = |errors: &[_]| errors.iter().map(ToString::to_string).collect::<Vec<String>>();
    if !errors.is_empty() && shown(&errors) != shown(&old_errors) {
        return Err(AdmissionError::invalid(errors));
    }
    let (new, old) = (policy.enforce, old_policy.enforce);
    let is_stricter = new.level != Level::Privileged
        && new != old
        && (new.version != old.version || new.level > old.level);
    match (is_stricter, exempt) {
        (false, _) => {}
        (true, true) => warn_of_exemption(defaults, request, &policy, &labels),
        (true, false) => warn_of_pods(configuration, request, new)?,
    }
    Ok(())
}

fn labels_of(namespace: &Tree) -> Tree {
    let labels = namespace.get("metadata").and_then(|metadata| metadata.get("labels"));
    labels.and_then(|labels| labels.as_object()).cloned().unwrap_or_default()
}

/// Warns that the labels of an exempt namespace have no effect.
fn warn_of_exemption(
    defaults: &Policy,
    request: &AdmissionRequest<'_>,
    policy: &Policy,
    labels: &Tree,
) {
    if policy.is_privileged() || policy.is_equivalent(defaults) {
        return;
    }
    let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
    let is_labelled = |mode: &str| {
        let label = format!("pod-security.kubernetes.io/{mode}");
        labels.contains_key(&label) || labels.contains_key(&format!("{label}-version"))
    };
    let ignored = modes
        .into_iter()
        .filter(|(mode, level)| level.level != Level::Privileged && is_labelled(mode));
    let ignored: Vec<String> = ignored.map(|(mode, level)| format!("{mode}={level}")).collect();
    request.warn(format!(
        "namespace {:?} is exempt from Pod Security, and the policy ({}) will be ignored",
        request.name,
        ignored.join(", ")
    ));
}

/// Warns about the Pods of a namespace that violate a level, with one warning for each reason.
fn warn_of_pods(
    configuration: &Configuration,
    request: &AdmissionRequest<'_>,
    level: LevelVersion,
) -> Result<(), AdmissionError> {
    let (mut pods, all): (Vec<Pod>, u64) =
        request.find_first("v1", PODS, Some(request.name), PODS_LIMIT)?;
    let exempt = &configuration.exemptions.runtime_classes;
    pods.retain(|pod| {
        let class = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_ref());
        class.is_none_or(|class| !exempt.contains(class))
    });
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in by_controller(pods) {
        let Some(spec) = &pod.spec else { continue };
        let view = PodView::new(pod.metadata.annotations.as_ref(), spec);
        if let Some(reasons) = reasons(level, &view) {
            by_reason.entry(reasons).or_default().push(pod.metadata.name.unwrap_or_default());
        }
    }
    if all > PODS_LIMIT as u64 {
        request.warn(format!(
            "new PodSecurity enforce level only checked against the first {PODS_LIMIT} of {all} existing pods"
        ));
    }
    if !by_reason.is_empty() {
        let namespace = request.name;
        request.warn(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
        ));
    }
    let warnings = by_reason.into_iter().map(|(reason, mut names)| {
        names.sort();
        let others = match names.len() {
            1 => String::new(),
            2 => " (and 1 other pod)".to_owned(),
            several => format!(" (and {} other pods)", several - 1),
        };
        format!("{}{others}: {reason}", names[0])
    });
    let warnings: BTreeSet<String> = warnings.collect();
    warnings.into_iter().for_each(|warning| request.warn(warning));
    Ok(())
}

/// Moves the first Pod of each controller to the front, because the other Pods of a controller are mostly equal to it.
fn by_controller(pods: Vec<Pod>) -> Vec<Pod> {
    let mut controllers = BTreeSet::new();
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for pod in pods {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        match controller.is_none_or(|controller| controllers.insert(controller.uid.clone())) {
            true => first.push(pod),
            false => others.push(pod),
        }
    }
    first.append(&mut others);
    first
}
