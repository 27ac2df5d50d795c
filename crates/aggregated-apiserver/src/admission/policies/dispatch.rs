//! Applies the policies of a server to one write.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Map, Value, json};

use super::decision::{Annotation, Annotations, Decision, Denial, note_failure};
use super::evaluate::evaluate;
use super::params::{self, ParamError};
use super::policy::{Action, Binding, Policy};
use super::registry::Bound;
use crate::admission::conditions::Variables;
use crate::admission::{
    AdmissionError, AdmissionRequest, LazyNamespaces, ReservedMemory, matching,
};
use crate::blocking;
use crate::cluster::KindReader;
use crate::object::Tree;
use crate::quota;

/// The message about a policy without constraints, which is invalid.
const NO_CONSTRAINTS: &str = "policy contained no match constraints, a required field";

/// A write, and the sources of the other objects that policies read.
#[derive(Clone, Copy)]
pub(super) struct Dispatch<'a> {
    pub request: &'a AdmissionRequest<'a>,
    /// The object that would be stored; `None` for a deletion.
    pub object: Option<&'a Tree>,
    pub namespaces: Option<&'a LazyNamespaces>,
    /// The parameters in the cluster.
    pub params: Option<&'a KindReader>,
}

/// The objects of a write in the version of a policy.
struct Versioned<'a> {
    object: Option<Cow<'a, Tree>>,
    old: Option<Cow<'a, Tree>>,
    data: Value,
    namespace: Option<Tree>,
    _memory: Vec<ReservedMemory>,
}

/// An error in the configuration of a policy or binding; its failure policy decides about the write.
type Misconfigured = String;

impl Dispatch<'_> {
    /// Validates the write by all policies.
    ///
    /// # Errors
    /// The first denial.
    pub(super) async fn validate(&self, bound: &[Bound]) -> Result<(), AdmissionError> {
        let mut denial = Denial::default();
        for Bound { policy, bindings } in bound {
            let matched = match &policy.constraints {
                Some(all) => {
                    let matched = all.matched(self.request, self.object, self.namespaces).await;
                    matched.map_err(|error| error.message())
                }
                None => Err(NO_CONSTRAINTS.to_owned()),
            };
            let misconfigured = match matched {
                Ok(None) => continue,
                Ok(Some(version)) => {
                    let applied = self.apply(policy, bindings, version, &mut denial).await?;
                    applied.err()
                }
                Err(why) => Some(why),
            };
            if let Some(why) = misconfigured.filter(|_| policy.fails_closed) {
                denial.add(policy, None, &format!("failed to configure policy: {why}"), None);
            }
        }
        denial.into_result(self.request, self.object)
    }

    /// Applies a policy that matches the write in a version. The inner error is that of the policy.
    async fn apply(
        &self,
        policy: &Policy,
        bindings: &[std::sync::Arc<Binding>],
        version: &str,
        denial: &mut Denial,
    ) -> Result<Result<(), Misconfigured>, AdmissionError> {
        if let Some(kind) = &policy.param_kind {
            match params::check_kind(self.request, self.params, kind).await {
                Ok(()) => {}
                Err(ParamError::Rejected(error)) => return Err(error),
                Err(ParamError::Kind(why) | ParamError::Binding(why)) => return Ok(Err(why)),
            }
        }
        let (mut versioned, mut annotations) = (None, Annotations::default());
        for binding in bindings {
            let matched = match &binding.constraints {
                Some(all) => all.matched(self.request, self.object, self.namespaces).await,
                None => Ok(Some(version)),
            };
            let params = match matched {
                Ok(None) => continue,
                Ok(Some(_)) => {
                    let (kind, given) = (policy.param_kind.as_ref(), binding.param_ref.as_ref());
                    params::collect(self.request, self.params, kind, given).await
                }
                Err(error) => Err(ParamError::Binding(error.message())),
            };
            let params = match params {
                Ok(params) => params,
                Err(ParamError::Rejected(error)) => return Err(error),
                Err(ParamError::Kind(why) | ParamError::Binding(why)) => {
                    misconfigured(policy, binding, &why, denial);
                    continue;
                }
            };
            if versioned.is_none() && !params.objects.is_empty() {
                match self.versioned(policy, version).await? {
                    Ok(objects) => versioned = Some(objects),
                    Err(why) => misconfigured(policy, binding, &why, denial),
                }
            }
            let Some(versioned) = &versioned else { continue };
            for (index, params) in params.objects.iter().enumerate() {
                if index > 0 {
                    tokio::task::yield_now().await;
                }
                self.judge((policy, binding), versioned, params.as_ref(), denial, &mut annotations);
            }
        }
        annotations.publish(policy, self.request);
        Ok(Ok(()))
    }

    /// Evaluates a policy for one parameter object, and takes the actions of the binding.
    fn judge(
        &self,
        (policy, binding): (&Policy, &Binding),
        versioned: &Versioned<'_>,
        params: Option<&Tree>,
        denial: &mut Denial,
        annotations: &mut Annotations,
    ) {
        let variables = Variables {
            object: versioned.object.as_deref(),
            old: versioned.old.as_deref(),
            request: &versioned.data,
            namespace: versioned.namespace.as_ref(),
            params,
        };
        // Expressions may use one second of CPU time.
        let evaluated = blocking::run(|| evaluate(policy, &variables));
        for (index, decision) in evaluated.decisions.into_iter().enumerate() {
            let Decision::Deny { message, reason } = decision else { continue };
            for action in &binding.actions {
                match action {
                    Action::Deny => denial.add(policy, Some(binding), &message, reason.clone()),
                    Action::Audit => note_failure(self.request, binding, index, &message),
                    Action::Warn => self.request.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    )),
                }
            }
        }
        for annotation in evaluated.annotations {
            match annotation {
                Annotation::Publish { key, value } => annotations.add(self.request, key, value),
                Annotation::Exclude => {}
                Annotation::Deny(why) => denial.add(policy, Some(binding), &why, None),
            }
        }
    }

    /// The objects of the write in a version. The inner error is that of an object that cannot be converted.
    ///
    /// # Errors
    /// If an object exceeds a memory limit, or the namespace is missing or cannot be read.
    async fn versioned(
        &self,
        policy: &Policy,
        version: &str,
    ) -> Result<Result<Versioned<'_>, Misconfigured>, AdmissionError> {
        let request = self.request;
        if !policy.is_compiled() {
            // Large expressions take long to compile.
            blocking::run(|| _ = policy.compiled());
        }
        let object = request.shown_in_version(self.object, version).await;
        let old = match object.is_ok() {
            true => request.shown_in_version(request.old_object(), version).await,
            false => Ok(None),
        };
        let (mut object, mut old) = match (object, old) {
            (Ok(object), Ok(old)) => (object, old),
            (Err(error), _) | (_, Err(error)) if error.is_of_limit() => return Err(error),
            (Err(error), _) | (_, Err(error)) => {
                return Ok(Err(format!("failed to convert object version: {}", error.message())));
            }
        };
        let mut memory = Vec::new();
        let (new_version, old_version) = request.resource_versions();
        for (tree, version) in [(&mut object, new_version), (&mut old, old_version)] {
            if let (Some(tree), Some(version)) = (tree, version) {
                memory.push(request.reserve(quota::of_tree(tree))?);
                matching::set_resource_version(tree.to_mut(), version);
            }
        }
        let namespace = match matching::namespace(request) {
            name if policy.compiled().uses_namespace
                && !name.is_empty()
                && !matching::is_namespace(request) =>
            {
                let found = matching::find_namespace(name, request, self.namespaces).await?;
                Some(shown_namespace(&found))
            }
            _ => None,
        };
        let data = request.attributes(version);
        Ok(Ok(Versioned { object, old, data, namespace, _memory: memory }))
    }
}

/// Denies the write because of a misconfigured binding, unless the failure policy is `Ignore`.
fn misconfigured(policy: &Policy, binding: &Binding, why: &str, denial: &mut Denial) {
    if policy.fails_closed {
        let why = format!("failed to configure binding: {why}");
        denial.add(policy, Some(binding), &why, None);
    }
}

/// A Namespace with the fields that expressions can use.
fn shown_namespace(namespace: &Namespace) -> Tree {
    let mut metadata = serde_json::to_value(&namespace.metadata).unwrap_or_default();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|name, _| {
            !matches!(name.as_str(), "managedFields" | "ownerReferences" | "selfLink")
        });
    }
    let part = |part: Option<Value>| part.unwrap_or_else(|| json!({}));
    let spec = namespace.spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok());
    let status = namespace.status.as_ref().and_then(|status| serde_json::to_value(status).ok());
    Map::from_iter([
        ("metadata".to_owned(), metadata),
        ("spec".to_owned(), part(spec)),
        ("status".to_owned(), part(status)),
    ])
}
