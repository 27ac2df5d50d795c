//! Asks one webhook.

use aggregated_apiserver::{
    AdmissionError, AdmissionRequest, Webhook, WebhookBusy, WebhookCallError, WebhookCalls,
};
use uuid::Uuid;

use super::answer::{self, Answer, Asked};
use super::configured::Hook;
use super::review::Question;

/// So many calls at once. Each belongs to a request in flight, which may ask several webhooks at the same time.
const CALLS: usize = 256;
/// And so many of one program: a webhook that writes objects itself, about which it is asked again, must not wait for its own
/// calls to end.
const CALLS_OF_ONE: usize = 64;
/// So many answers that are read at once: each may take as much memory as one object.
const ANSWERS_READ: usize = 16;

/// The calls of a server.
pub(super) fn calls() -> WebhookCalls {
    WebhookCalls::new(CALLS, CALLS_OF_ONE, ANSWERS_READ)
}

/// Why a webhook has not allowed a write.
pub(super) enum Failure {
    /// The webhook was called and failed, or its configuration is invalid: why, in kube-apiserver's words behind the name of the
    /// webhook. The failure policy decides about the write.
    Call(String),
    /// The write is refused.
    Refused(AdmissionError),
}

/// Asks a webhook, adds its audit annotations to the audit event, and tells the client its warnings.
///
/// # Errors
/// When it refuses the write, or cannot be asked.
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
    // A call that was never made is no failure of the webhook: the write is refused whatever the failure policy.
    let busy = |why: WebhookBusy| {
        Failure::Refused(AdmissionError::busy(format!("cannot call webhook {name:?}: {why}")))
    };
    let failed = |error| match error {
        WebhookCallError::Failed(why) => Failure::Call(format!("failed to call webhook: {why}")),
        WebhookCallError::Busy(why) => busy(why),
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
    /// What becomes of the write: the failure policy of a webhook may let it pass, which an audit annotation of this key
    /// notes.
    ///
    /// # Errors
    /// When it is refused.
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
        tracing::debug!("a write is not held up: {why}");
        Ok(())
    }
}
