//! Mutating webhooks: they are called sequentially, and each gets the object as the previous ones have changed it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::admission::{AdmissionError, AdmissionObject, AdmissionRequest, LazyNamespaces};

use super::annotations::Call;
use super::answer::{self, Answer};
use super::ask::{Failure, ask};
use super::hook::{Hook, Hooks};
use super::review::Question;
use super::{Tree, matching};

/// The calls of the webhooks for one write, for the second call of the plugins. A number is the index of a webhook in
/// `hooks`.
#[derive(Clone)]
struct Reinvocation {
    /// The webhooks of the first call.
    hooks: Arc<Hooks>,
    /// The webhooks with `reinvocationPolicy: IfNeeded` that were called and after which nothing has changed the object yet.
    called: BTreeSet<usize>,
    /// The webhooks of that policy after which something has changed the object: the second round calls only these.
    again: BTreeSet<usize>,
    /// The hash of the object that the webhooks have left, if one of them may be called again.
    left: Option<u64>,
}

/// Lets webhooks change an object. If one of them does, all plugins are called a second time.
///
/// # Errors
/// The refusal of a webhook, or why a webhook cannot be called.
pub(super) async fn mutate(
    hooks: Arc<Hooks>,
    namespaces: Option<&LazyNamespaces>,
    request: &AdmissionRequest<'_>,
    object: &mut AdmissionObject<'_>,
) -> Result<(), AdmissionError> {
    let first =
        || Reinvocation { hooks, called: BTreeSet::new(), again: BTreeSet::new(), left: None };
    let mut state = request.take_state().unwrap_or_else(first);
    let hooks = Arc::clone(&state.hooks);
    let is_reinvocation = request.is_reinvocation();
    if state.left.take().is_some_and(|left| left != hash(object)) {
        // Other plugins have changed the object since.
        state.again.append(&mut state.called);
    }
    for (number, hook) in hooks.iter().enumerate() {
        if is_reinvocation && !state.again.contains(&number) {
            continue;
        }
        let Some(version) = matching::version(hook, request) else { continue };
        if !matching::is_called((hook, version), request, Some(&*object), namespaces).await? {
            continue;
        }
        let call = Call { hook, request, round: usize::from(is_reinvocation), number };
        let changed = match ask_about(&call, version, object).await {
            Ok(changed) => changed,
            Err(failure) => {
                failure.judged(hook, request, || call.failed_open())?;
                false
            }
        };
        if changed {
            state.again.append(&mut state.called);
            request.reinvoke();
        }
        if hook.is_reinvoked {
            state.called.insert(number);
        }
    }
    state.left = (!state.called.is_empty()).then(|| hash(object));
    request.keep_state(state);
    Ok(())
}

fn hash(object: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}

/// Calls webhooks about a deletion, which they cannot change.
///
/// # Errors
/// The refusal of a webhook, or why a webhook cannot be called.
pub(super) async fn judge_deletion(
    hooks: &Hooks,
    namespaces: Option<&LazyNamespaces>,
    request: &AdmissionRequest<'_>,
) -> Result<(), AdmissionError> {
    for (number, hook) in hooks.iter().enumerate() {
        let Some(version) = matching::version(hook, request) else { continue };
        if !matching::is_called((hook, version), request, None, namespaces).await? {
            continue;
        }
        let old = request.shown_in_version(request.old_object(), version).await?;
        let question = Question { request, version, object: None, old: old.as_deref() };
        let judged = match ask(hook, &question, true).await {
            Ok(answer) => check_unchanged(hook, request, &answer),
            Err(failure) => Err(failure),
        };
        let call = Call { hook, request, round: 0, number };
        call.note_mutation(false);
        if let Err(failure) = judged {
            failure.judged(hook, request, || call.failed_open())?;
        }
    }
    Ok(())
}

fn check_unchanged(
    hook: &Hook,
    request: &AdmissionRequest<'_>,
    answer: &Answer,
) -> Result<(), Failure> {
    let Some(patch) = &answer.patch else { return Ok(()) };
    let read = request.read_json(patch).map(|(patch, _room)| patch);
    if answer::operations(read)?.is_empty() {
        return Ok(());
    }
    Err(Failure::Refused(AdmissionError::internal(format!(
        "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
        hook.name
    ))))
}

/// Calls a webhook about an object, and returns whether the webhook has changed the object.
async fn ask_about(
    call: &Call<'_>,
    version: &str,
    object: &mut AdmissionObject<'_>,
) -> Result<bool, Failure> {
    let request = call.request;
    let shown =
        request.shown_in_version(Some(&*object), version).await.map_err(Failure::Refused)?;
    let shown = shown.unwrap_or_default();
    let old =
        request.shown_in_version(request.old_object(), version).await.map_err(Failure::Refused)?;
    let question = Question { request, version, object: Some(&shown), old: old.as_deref() };
    let answer = ask(call.hook, &question, true).await;
    let patched = match answer {
        Ok(answer) => patched(request, &shown, answer),
        Err(failure) => Err(failure),
    };
    let is_changed = match &patched {
        Ok(Some((patched, _))) => {
            !request.is_same(&shown, patched, version).map_err(Failure::Refused)?
        }
        _ => false,
    };
    call.note_mutation(is_changed);
    let Some((patched, patch)) = patched? else { return Ok(false) };
    drop(shown);
    call.note_patch(&patch);
    let patched = match request.is_converted(version) {
        false => patched,
        true => request.in_version(&patched, request.version).await.map_err(Failure::Refused)?,
    };
    request.take_over(object, patched);
    object.set_defaults().map_err(unfit)?;
    Ok(is_changed)
}

/// An object with the patch of a webhook applied, and the patch as it was sent; `None` if the patch is empty or missing.
fn patched(
    request: &AdmissionRequest<'_>,
    shown: &Tree,
    answer: Answer,
) -> Result<Option<(Tree, Vec<u8>)>, Failure> {
    let Some(sent) = answer.patch else { return Ok(None) };
    let read = request.read_json(&sent);
    let (read, _room) = match read {
        Ok((read, room)) => (Ok(read), Some(room)),
        Err(why) => (Err(why), None),
    };
    let patch = answer::operations(read)?;
    if patch.is_empty() {
        return Ok(None);
    }
    if answer.patch_type != "JSONPatch" {
        let why = format!("unsupported patch type {:?}", answer.patch_type);
        return Err(Failure::Call(why));
    }
    let patched = request.patch(shown, &patch).map_err(unfit)?;
    Ok(Some((patched, sent)))
}

fn unfit(why: String) -> Failure {
    Failure::Refused(AdmissionError::internal(why))
}
