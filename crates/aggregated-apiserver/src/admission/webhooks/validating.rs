//! Validating webhooks: they are called concurrently.

use crate::admission::{AdmissionError, AdmissionRequest, LazyNamespaces};
use futures::future::join_all;

use super::ask::ask;
use super::hook::Hooks;
use super::review::Question;
use super::{Tree, annotations, matching};

/// Calls webhooks to validate an object, or its deletion.
///
/// # Errors
/// The first rejection, or the reason for which a webhook cannot be called.
pub(super) async fn validate(
    hooks: &Hooks,
    namespaces: Option<&LazyNamespaces>,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
) -> Result<(), AdmissionError> {
    let mut asked = Vec::new();
    for hook in hooks {
        let Some(version) = matching::version(hook, request) else { continue };
        if matching::is_called((hook, version), request, object, namespaces).await? {
            asked.push((hook, version));
        }
    }
    let judged = asked.into_iter().enumerate().map(|(number, (hook, version))| async move {
        let shown = request.shown_in_version(object, version).await?;
        let old = request.shown_in_version(request.old_object(), version).await?;
        let (shown, old) = (shown.as_deref(), old.as_deref());
        let question = Question { request, version, object: shown, old };
        match ask(hook, &question, false).await {
            Ok(_) => Ok(()),
            Err(failure) => failure.judged(hook, request, || annotations::failed_open(number)),
        }
    });
    join_all(judged).await.into_iter().collect()
}
