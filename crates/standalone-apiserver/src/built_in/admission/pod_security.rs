//! PodSecurity: Pods must meet the security level of their namespace.

mod annotations;
mod baseline;
mod checks;
mod configuration;
mod namespaces;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::admission::{
    AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Namespace, PodSpec};
use serde::Deserialize;
use serde_json::{Map, Value};

use annotations::{
    AUDIT_VIOLATIONS, ENFORCED_POLICY, ERROR, EXEMPT, annotate, annotate_label_errors,
};
use checks::violations;
pub(crate) use configuration::Configuration;
use policy::{Policy, UNRESTRICTED, policy_of};
use view::PodView;

type Tree = Map<String, Value>;

const NAMESPACES: &str = "namespaces";
const PODS: &str = "pods";
const UNREADABLE: &str = "failed to decode pod";

/// Subresources of a Pod whose writes change no field that a level restricts.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// The admission plugin PodSecurity of Kubernetes.
pub(super) struct PodSecurity(pub(super) Configuration);

impl AdmissionPlugin for PodSecurity {
    fn name(&self) -> &str {
        "PodSecurity"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        if request.operation == AdmissionOperation::Delete {
            return false;
        }
        match (request.group, request.resource) {
            ("", PODS) => !IGNORED_SUBRESOURCES.contains(&request.subresource),
            ("", NAMESPACES) => request.subresource.is_empty(),
            (group, resource) => {
                request.subresource.is_empty() && template_path(group, resource).is_some()
            }
        }
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let judged = object.map_or(Ok(()), |object| self.judge(request, object));
        Box::pin(ready(judged))
    }
}

impl PodSecurity {
    fn judge(&self, request: &AdmissionRequest<'_>, object: &Tree) -> Result<(), AdmissionError> {
        if (request.group, request.resource) == ("", NAMESPACES) {
            return namespaces::judge(&self.0, request, object);
        }
        if let Some(exempt) = self.exemption(request) {
            annotate(request, EXEMPT, exempt);
            return Ok(());
        }
        match (request.group, request.resource) {
            ("", PODS) => self.judge_pod(request, object),
            _ => self.warn_of_template(request, object),
        }
    }

    fn judge_pod(&self, request: &AdmissionRequest<'_>, pod: &Tree) -> Result<(), AdmissionError> {
        let Some((policy, errors)) = self.policy_of_namespace(request)? else {
            let why = format!("failed to lookup {}", of_namespace(request));
            annotate(
                request,
                ERROR,
                &format!("Internal error occurred: {why}: {}", missing(request)),
            );
            return Err(AdmissionError::internal(why));
        };
        if errors.is_empty() && policy.is_privileged() {
            annotate(request, ENFORCED_POLICY, &UNRESTRICTED.to_string());
            return Ok(());
        }
        // The namespace decides about the Pod, so a Pod that cannot be parsed is rejected.
        let read = |pod| {
            Templated::read(pod).map_err(|_| {
                annotate(request, ERROR, UNREADABLE);
                AdmissionError::bad_request(UNREADABLE)
            })
        };
        let pod = read(pod)?;
        if let Some(old) = request.old_object()
            && !changes_images(&pod.spec, &read(old)?.spec)
        {
            return Ok(());
        }
        if self.is_class_exempt(request, &pod.spec) {
            return Ok(());
        }
        annotate_label_errors(request, &errors);
        let view = pod.view();
        annotate(request, ENFORCED_POLICY, &policy.enforce.to_string());
        note_violations(request, &policy, &view);
        if let Some(violated) = violations(policy.enforce, &view) {
            let why = format!("violates PodSecurity \"{}\": {violated}", policy.enforce);
            return Err(AdmissionError::forbidden(why));
        }
        warn(request, &policy, &view);
        Ok(())
    }

    /// Warns about a Pod template whose Pods would be rejected. The template is stored nevertheless.
    fn warn_of_template(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Tree,
    ) -> Result<(), AdmissionError> {
        let Some((policy, errors)) = self.policy_of_namespace(request)? else {
            let why = format!("failed to lookup {}: {}", of_namespace(request), missing(request));
            annotate(request, ERROR, &why);
            return Ok(());
        };
        if errors.is_empty() && policy.is_silent() {
            return Ok(());
        }
        let path = template_path(request.group, request.resource).unwrap_or_default();
        let mut template = Some(object);
        for field in path {
            template = template.and_then(|tree| tree.get(*field)?.as_object());
        }
        let Some(template) = template else { return Ok(()) };
        let template = match Templated::read(template) {
            Ok(template) => template,
            Err(why) => {
                annotate(request, ERROR, &format!("failed to decode object: {why}"));
                return Ok(());
            }
        };
        if !self.is_class_exempt(request, &template.spec) {
            annotate_label_errors(request, &errors);
            let view = template.view();
            note_violations(request, &policy, &view);
            warn(request, &policy, &view);
        }
        Ok(())
    }

    /// The property that exempts the request from all levels.
    fn exemption(&self, request: &AdmissionRequest<'_>) -> Option<&'static str> {
        let exemptions = &self.0.exemptions;
        let namespace = request.namespace.unwrap_or_default();
        if exemptions.namespaces.iter().any(|exempt| exempt == namespace) {
            return Some("namespace");
        }
        exemptions.usernames.contains(&request.user.name).then_some("user")
    }

    /// Whether the RuntimeClass of a Pod exempts it. If so, an audit annotation records it.
    fn is_class_exempt(&self, request: &AdmissionRequest<'_>, spec: &PodSpec) -> bool {
        let class = spec.runtime_class_name.as_ref().filter(|class| !class.is_empty());
        let exempt = class.is_some_and(|class| self.0.exemptions.runtime_classes.contains(class));
        if exempt {
            annotate(request, EXEMPT, "runtimeClass");
        }
        exempt
    }

    /// The policy of the namespace of the request, with the errors of its labels; `None` if the namespace does not
    /// exist.
    fn policy_of_namespace(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Result<Option<(Policy, Vec<FieldError>)>, AdmissionError> {
        let name = request.namespace.unwrap_or_default();
        let namespace: Option<Namespace> = request.find("v1", NAMESPACES, None, name)?;
        let labels = namespace.map(|namespace| namespace.metadata.labels.unwrap_or_default());
        let defaults = &self.0.defaults;
        let policy = |labels: BTreeMap<String, String>| {
            policy_of(defaults, |label| labels.get(label).map(String::as_str))
        };
        Ok(labels.map(policy))
    }
}

fn of_namespace(request: &AdmissionRequest<'_>) -> String {
    format!("namespace {:?}", request.namespace.unwrap_or_default())
}

fn missing(request: &AdmissionRequest<'_>) -> String {
    format!("namespaces {:?} not found", request.namespace.unwrap_or_default())
}

/// The fields that lead to the Pod template of a kind.
fn template_path(group: &str, resource: &str) -> Option<&'static [&'static str]> {
    match (group, resource) {
        ("", "podtemplates") => Some(&["template"]),
        ("batch", "cronjobs") => Some(&["spec", "jobTemplate", "spec", "template"]),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some(&["spec", "template"]),
        _ => None,
    }
}

/// Records violations of the level of the mode `audit`.
fn note_violations(request: &AdmissionRequest<'_>, policy: &Policy, pod: &PodView<'_>) {
    if request.is_audited()
        && let Some(violated) = violations(policy.audit, pod)
    {
        let text = format!("would violate PodSecurity \"{}\": {violated}", policy.audit);
        annotate(request, AUDIT_VIOLATIONS, &text);
    }
}

fn warn(request: &AdmissionRequest<'_>, policy: &Policy, pod: &PodView<'_>) {
    if let Some(violated) = violations(policy.warn, pod) {
        request.warn(format!("would violate PodSecurity \"{}\": {violated}", policy.warn));
    }
}

/// A Pod, or a Pod template: both have metadata and a spec.
#[derive(Deserialize)]
struct Templated {
    #[serde(default)]
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
}

impl Templated {
    fn read(tree: &Tree) -> Result<Self, serde_json::Error> {
        serde_json::from_value(Value::Object(tree.clone()))
    }

    fn view(&self) -> PodView<'_> {
        PodView::new(self.metadata.annotations.as_ref(), &self.spec)
    }
}

/// Whether an update may turn an allowed Pod into a violating one. Only the images of a Pod's containers can change,
/// and ephemeral containers can be added.
fn changes_images(pod: &PodSpec, old: &PodSpec) -> bool {
    let changed = |new: &[Container], old: &[Container]| {
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new.image != old.image)
    };
    let ephemeral = |spec: &PodSpec| spec.ephemeral_containers.clone().unwrap_or_default();
    let old_ephemeral = ephemeral(old);
    let differs = |new: &EphemeralContainer| {
        let old = old_ephemeral.iter().find(|old| old.name == new.name);
        old.is_none_or(|old| old.image != new.image)
    };
    let init = |spec: &PodSpec| spec.init_containers.clone().unwrap_or_default();
    changed(&pod.containers, &old.containers)
        || changed(&init(pod), &init(old))
        || ephemeral(pod).iter().any(differs)
}
