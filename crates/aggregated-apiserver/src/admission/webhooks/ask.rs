//! Calls one webhook.

use crate::admission::{AdmissionError, AdmissionRequest};
use crate::webhook::{Busy, CallError, Calls, Webhook};
use uuid::Uuid;

use super::answer::{self, Answer, Asked};
use super::hook::Hook;
use super::review::Question;

/// The largest number of concurrent calls. Each belongs to a request in flight, which may call several webhooks
/// concurrently.
const CALLS: usize = 256;
/// The largest number of concurrent calls of one program. A webhook may write objects for which it is called again, so
/// these calls must not wait for its first calls to end.
const CALLS_OF_ONE: usize = 64;
/// The largest number of responses that are read concurrently; each may use as much memory as one object.
const ANSWERS_READ: usize = 16;

/// The limits of the calls of a server.
pub fn calls() -> Calls {
    Calls::new(CALLS, CALLS_OF_ONE, ANSWERS_READ)
}

/// The reason for which a webhook has not allowed a write.
pub(super) enum Failure {
    /// The call has failed, or the configuration of the webhook is invalid. The message is the part of kube-apiserver's
    /// message after the name of the webhook. The failure policy decides about the write.
    Call(String),
    /// The write is rejected.
    Refused(AdmissionError),
}

/// Calls a webhook, adds its annotations to the audit event, and its warnings to the response for the client.
///
/// # Errors
/// The reason, if the webhook rejects the write or cannot be called.
pub(super) async fn ask(
    hook: &Hook,
    question: &Question<'_>,
    mutates: bool,
) -> Result<Answer, Failure> {
    let (name, request) = (&hook.name, question.request);
    if request.dry_run && !hook.takes_dry_runs {
        let why = format!("admission webhook {name:?} does not support dry run");
        return Err(Failure::Refused(AdmissionError::bad_request(why)));
    }
    let Some(version) = hook.review_version else {
        let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(Failure::Call(format!("could not create admission objects: {why}")));
    };
    // If the webhook was not called, it has not failed. The write is rejected regardless of the failure policy.
    let busy = |why: Busy| {
        Failure::Refused(AdmissionError::busy(format!("cannot call webhook {name:?}: {why}")))
    };
    let failed = |error| match error {
        CallError::Failed(why) => Failure::Call(format!("failed to call webhook: {why}")),
        CallError::Busy(why) => busy(why),
    };
    let webhook = Webhook { url: &hook.url, ca_bundle: hook.ca_bundle.as_deref() };
    let address = webhook.address();
    let turn = hook.calls.turn(&address, &request.user.name, hook.timeout).await.map_err(busy)?;
    let uid = Uuid::new_v4().to_string();
    let body = question.review(version, &uid);
    let room = request.reserve(body.len()).map_err(Failure::Refused)?;
    let sent = hook.calls.post(webhook, body, &turn).await.map_err(failed)?;
    drop((turn, room));
    let room = request.reserve(2 * sent.len()).map_err(Failure::Refused)?;
    let answer = answer::read(&sent, Asked { uid: &uid, version, mutates }, request)?;
    drop((sent, room));
    for (key, value) in answer.audit_annotations.iter() {
        request.annotate(&format!("{name}/{key}"), value);
    }
    for warning in &answer.warnings {
        request.warn(warning.as_str());
    }
    match answer.allowed {
        true => Ok(answer),
        false => Err(Failure::Refused(answer::refusal(name, answer.result))),
    }
}

impl Failure {
    /// Applies the failure policy of a webhook. If it allows the write, an audit annotation with this key records the
    /// failure.
    ///
    /// # Errors
    /// The rejection of the write.
    pub(super) fn judged(
        self,
        hook: &Hook,
        request: &AdmissionRequest<'_>,
        key: impl FnOnce() -> String,
    ) -> Result<(), AdmissionError> {
        let why = match self {
            Self::Refused(refused) => return Err(refused),
            Self::Call(why) => format!("failed calling webhook {:?}: {why}", hook.name),
        };
        if hook.fails_closed {
            return Err(AdmissionError::internal(why));
        }
        if request.is_audited() {
            request.annotate(&key(), &hook.name);
        }
        tracing::debug!(error = %why, "webhook failed; the write continues");
        Ok(())
    }
}
