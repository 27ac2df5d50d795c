//! Webhooks that judge an object: all of them at the same time.

use aggregated_apiserver::{AdmissionError, AdmissionRequest};
use futures::future::join_all;

use super::ask::ask;
use super::configured::Hook;
use super::mutating::in_version;
use super::review::Question;
use super::{Tree, annotations, matching};

/// Has webhooks judge an object, or the deletion of the one that is there.
///
/// # Errors
/// What the first of them refuses, or why it cannot be asked.
pub(super) async fn validate(
    hooks: &[Hook],
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
) -> Result<(), AdmissionError> {
    let mut asked = Vec::new();
    for hook in hooks {
        let Some(version) = matching::version(hook, request) else { continue };
        if matching::is_selected(hook, request, object)? {
            asked.push((hook, version));
        }
    }
    let judged = asked.into_iter().enumerate().map(|(number, (hook, version))| async move {
        let shown = in_version(request, object, version).await?;
        let old = in_version(request, request.old_object(), version).await?;
        let (shown, old) = (shown.as_deref(), old.as_deref());
        let question = Question { request, version, object: shown, old };
        match ask(hook, &question, false).await {
            Ok(_) => Ok(()),
            Err(failure) => failure.judged(hook, request, || annotations::failed_open(number)),
        }
    });
    join_all(judged).await.into_iter().collect()
}
