//! PodSecurity: Pods must meet the security level of their namespace.

mod baseline;
mod checks;
mod configuration;
mod namespaces;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;
mod view;

use aggregated_apiserver::{AdmissionError, AdmissionOperation, AdmissionPlugin, AdmissionRequest};
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Namespace, PodSpec};
use serde::Deserialize;
use serde_json::{Map, Value};

use checks::violations;
pub(crate) use configuration::Configuration;
use policy::{Policy, policy_of};
use view::PodView;

type Tree = Map<String, Value>;

const NAMESPACES: &str = "namespaces";
const PODS: &str = "pods";

/// Writes to these subresources of a Pod change nothing that a level restricts.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Kubernetes' admission plugin of this name.
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
        if self.is_exempt(request) {
            return Ok(());
        }
        match (request.group, request.resource) {
            ("", PODS) => self.judge_pod(request, object),
            _ => self.warn_of_template(request, object),
        }
    }

    fn judge_pod(&self, request: &AdmissionRequest<'_>, pod: &Tree) -> Result<(), AdmissionError> {
        let policy = self.policy_of_namespace(request)?;
        if policy.is_privileged() {
            return Ok(());
        }
        let pod = Templated::read(pod)?;
        if let Some(old) = request.old_object()
            && !changes_images(&pod.spec, &Templated::read(old)?.spec)
        {
            return Ok(());
        }
        if self.is_class_exempt(&pod.spec) {
            return Ok(());
        }
        let view = pod.view();
        if let Some(violated) = violations(policy.enforce, &view) {
            let why = format!("violates PodSecurity \"{}\": {violated}", policy.enforce);
            return Err(AdmissionError::forbidden(why));
        }
        warn(request, &policy, &view);
        Ok(())
    }

    /// Warns of a Pod template from which no Pod could be created. The template is stored all the same.
    fn warn_of_template(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Tree,
    ) -> Result<(), AdmissionError> {
        let policy = self.policy_of_namespace(request)?;
        if policy.is_privileged() {
            return Ok(());
        }
        let path = template_path(request.group, request.resource).unwrap_or_default();
        let mut template = Some(object);
        for field in path {
            template = template.and_then(|tree| tree.get(*field)?.as_object());
        }
        let Some(template) = template else { return Ok(()) };
        let template = Templated::read(template)?;
        if !self.is_class_exempt(&template.spec) {
            warn(request, &policy, &template.view());
        }
        Ok(())
    }

    fn is_exempt(&self, request: &AdmissionRequest<'_>) -> bool {
        let exemptions = &self.0.exemptions;
        let namespace = request.namespace.unwrap_or_default();
        exemptions.namespaces.iter().any(|exempt| exempt == namespace)
            || exemptions.usernames.contains(&request.user.name)
    }

    fn is_class_exempt(&self, spec: &PodSpec) -> bool {
        let class = spec.runtime_class_name.as_ref().filter(|class| !class.is_empty());
        class.is_some_and(|class| self.0.exemptions.runtime_classes.contains(class))
    }

    fn policy_of_namespace(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Result<Policy, AdmissionError> {
        let name = request.namespace.unwrap_or_default();
        let namespace: Option<Namespace> = request.find("v1", NAMESPACES, None, name)?;
        let missing = || AdmissionError::internal(format!("failed to lookup namespace {name:?}"));
        let labels = namespace.ok_or_else(missing)?.metadata.labels.unwrap_or_default();
        // Labels that are invalid were reported when they were written.
        let (policy, _) =
            policy_of(&self.0.defaults, |label| labels.get(label).map(String::as_str));
        Ok(policy)
    }
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
    fn read(tree: &Tree) -> Result<Self, AdmissionError> {
        // The namespace decides about the Pod, so one that cannot be read is refused.
        serde_json::from_value(Value::Object(tree.clone()))
            .map_err(|_| AdmissionError::bad_request("failed to decode pod"))
    }

    fn view(&self) -> PodView<'_> {
        PodView::new(self.metadata.annotations.as_ref(), &self.spec)
    }
}

/// Whether an update may turn an allowed Pod into one that is not: of a Pod's containers only the images may
/// change, and ephemeral containers may be added.
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
