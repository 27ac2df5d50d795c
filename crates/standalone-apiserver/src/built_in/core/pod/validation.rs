//! The validation of Pods.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::update;
use crate::built_in::checks::FieldErrors;
use crate::built_in::pod_template::scope::{Owner, Scope};
use crate::built_in::pod_template::{annotations, spec};

/// Validates a Pod, compared with the old one if there is any.
pub(super) fn validate(pod: &Pod, old: Option<&Pod>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let old_spec = old.map(|old| (old.spec.as_ref().unwrap_or(&nothing), Some(&old.metadata)));
    let scope = || Scope::new(spec, Owner::Pod, Some(&pod.metadata), old_spec);
    annotations::validate(&scope(), "metadata.annotations", &mut faults);
    spec::validate(scope(), "spec", &mut faults);
    match old_spec {
        None => check_creation(&scope(), &mut faults),
        Some((old_spec, old)) => {
            let old = old.and_then(|old| old.annotations.as_ref());
            annotations::check_change(pod.metadata.annotations.as_ref(), old, &mut faults);
            // kube-apiserver validates the annotations of an update twice.
            annotations::validate(&scope(), "metadata.annotations", &mut faults);
            update::validate(&scope(), old_spec, &mut faults);
        }
    }
    faults
}

/// Validates the constraints for new Pods.
fn check_creation(scope: &Scope<'_>, faults: &mut FieldErrors) {
    let spec = scope.spec;
    if spec.ephemeral_containers.as_ref().is_some_and(|containers| !containers.is_empty()) {
        let why = "cannot be set on create";
        faults.push(FieldError::forbidden("spec.ephemeralContainers", why));
    }
    let is_bound = spec.node_name.as_ref().is_some_and(|name| !name.is_empty());
    if is_bound && spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        let why = "cannot be set until all schedulingGates have been cleared";
        faults.push(FieldError::forbidden("spec.nodeName", why));
    }
    annotations::check_profiles(scope, "spec", faults);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Value {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    }

    #[test]
    fn invalid_pods_and_pod_updates_are_rejected() {
        assert_eq!(faults_of_new(validate, pod(json!({}))), [] as [&str; 0]);
        assert_eq!(faults_of_new(validate, json!({})), ["spec.containers: Required value"]);
        let gated = pod(json!({"nodeName": "n", "schedulingGates": [{"name": "a.b/c"}]}));
        assert_eq!(
            faults_of_new(validate, gated),
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]
        );
        let ephemeral = json!([{"name": "e", "image": "i"}]);
        assert_eq!(
            faults_of_new(validate, pod(json!({"ephemeralContainers": ephemeral}))),
            ["spec.ephemeralContainers: Forbidden: cannot be set on create"]
        );
        let moved = pod(json!({"nodeName": "n"}));
        let faults = faults_of_update(validate, pod(json!({})), moved.clone());
        assert!(faults[0].starts_with("spec: Forbidden: pod updates may not change"), "{faults:?}");
        assert_eq!(faults_of_update(validate, moved.clone(), moved), [] as [&str; 0]);
    }
}
