//! May an object be made where it shall be? What Kubernetes calls
//! NamespaceLifecycle: not in a namespace that is missing or going, or the
//! deletion of namespaces would never end.

use crate::cluster::{NamespaceState, Namespaces};
use crate::error::ApiError;
use crate::kind::Kind;
use crate::object::Tree;

/// Refuses an object whose namespace takes none.
pub(super) async fn admit(
    namespaces: &Namespaces,
    kind: &Kind,
    namespace: &str,
    tree: &Tree,
) -> Result<(), ApiError> {
    let state = namespaces.state(namespace).await;
    let state = state.map_err(|error| ApiError::internal(&error).caused_by(error.why()))?;
    let text = |field: &str| {
        let text = tree.get("metadata").and_then(|metadata| metadata[field].as_str());
        text.filter(|text| !text.is_empty())
    };
    let name = text("name").or_else(|| text("generateName")).unwrap_or("Unknown");
    let forbidden = |why: &str| ApiError::forbidden(&kind.group, &kind.names.plural, name, why);
    match state {
        NamespaceState::Active => Ok(()),
        NamespaceState::Unknown => Err(forbidden("not yet ready to handle request")),
        NamespaceState::Missing => Err(ApiError::not_found("", "namespaces", namespace)),
        NamespaceState::Terminating => {
            let error = forbidden(&format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            ));
            Err(error.with_cause(
                "NamespaceTerminating",
                &format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ))
        }
    }
}

/// Namespaces that a cluster is not without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses the deletion of a namespace that must stay.
pub(super) fn admit_deletion(kind: &Kind, name: &str) -> Result<(), ApiError> {
    let is_namespace = kind.group.is_empty() && kind.names.plural == "namespaces";
    if is_namespace && IMMORTAL.contains(&name) {
        return Err(ApiError::forbidden(
            "",
            "namespaces",
            name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}
