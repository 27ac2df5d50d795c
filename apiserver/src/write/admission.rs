//! The two stages of admission, and what follows from the first.

use super::attributes::{Attributes, Origin};
use super::decode::{check_identity, check_namespace};
use super::draft::Draft;
use super::live::Live;
use super::{reset, text};
use crate::admission::{
    Admission, AdmissionObject, AdmissionOperation, AdmissionRequest, KindRules,
};
use crate::error::ApiError;
use crate::object::{Key, Tree, metadata};
use crate::quota::{self, Room};
use crate::schema::{self, Malformed};

/// So much is told of many deletions, each text once.
const WARNINGS_LIMIT: usize = 100;

/// Lets plugins change an object. What they have touched is pruned and gets its defaults
/// again.
///
/// # Errors
/// What a plugin refuses; 500 when one makes something that is no object of the kind, 413
/// and 429 when there is no room for it.
pub(super) async fn mutate(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
    room: &mut Room,
) -> Result<(), ApiError> {
    let name = metadata::name(&draft.tree).to_owned();
    let before = draft_type(draft);
    let request = request(attributes, live, &name);
    let mut object = AdmissionObject::new(&mut draft.tree);
    let mut outcome = Ok(());
    for plugin in plugins(attributes, rules(attributes).as_ref()) {
        if outcome.is_ok() && plugin.handles(&request) {
            outcome = plugin.mutate(&request, &mut object).await;
        }
    }
    let is_touched = object.is_touched();
    draft.warnings.extend(request.take_warnings());
    outcome.map_err(|error| error.into_answer(&request, &draft.tree))?;
    if !is_touched {
        return Ok(());
    }
    room.grow_to(quota::of_tree(&draft.tree))?;
    if draft_type(draft) != before {
        return Err(broken("apiVersion and kind may not change"));
    }
    take_in_again(attributes, live, draft)
}

/// Holds an object that plugins have touched to what the path and the type say.
fn take_in_again(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    match live {
        None => check_namespace(&mut draft.tree, attributes.namespace)?,
        Some(_) => check_identity(&mut draft.tree, &attributes.key())?,
    }
    if draft.is_kind {
        let of = attributes.version.schema.root();
        let taken = schema::take_in(of, &mut draft.tree, Malformed::Refused);
        taken.map_err(|why| broken(&why))?;
    }
    let coerced = schema::coerce_metadata(&mut draft.tree, Malformed::Refused);
    coerced.map_err(|why| broken(&why))?;
    reset::reset(attributes, live, draft);
    Ok(())
}

/// What an object says that it is.
fn draft_type(draft: &Draft) -> (String, String) {
    (text(&draft.tree, "apiVersion"), text(&draft.tree, "kind"))
}

/// What is said of an object that a plugin has broken.
fn broken(why: &str) -> ApiError {
    ApiError::internal(format!("admission has made an object that cannot be kept: {why}"))
}

/// Asks plugins about an object as it would be kept.
///
/// # Errors
/// What a plugin refuses.
pub(super) async fn validate(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    let name = metadata::name(&draft.tree).to_owned();
    let request = request(attributes, live, &name);
    let outcome = ask(attributes, &request, Some(&draft.tree)).await;
    draft.warnings.extend(request.take_warnings());
    outcome
}

/// Asks plugins about the deletion of this object. `warnings` gains what the client is to be
/// told.
///
/// # Errors
/// What a plugin refuses.
pub async fn validate_deletion(
    attributes: &Attributes<'_>,
    key: &Key,
    live: impl FnOnce() -> Tree,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let request = attributes.admission_request(AdmissionOperation::Delete, key.name());
    let is_asked = plugins(attributes, None).any(|plugin| plugin.handles(&request));
    if !is_asked {
        return Ok(());
    }
    let tree = live();
    let request = request.about(Some(&tree));
    let outcome = ask(attributes, &request, None).await;
    let left = WARNINGS_LIMIT.saturating_sub(warnings.len());
    let told = request.take_warnings().into_iter().take(left);
    let told: Vec<String> = told.filter(|text| !warnings.contains(text)).collect();
    warnings.extend(told);
    outcome
}

async fn ask(
    attributes: &Attributes<'_>,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
) -> Result<(), ApiError> {
    for plugin in plugins(attributes, rules(attributes).as_ref()) {
        if plugin.handles(request) {
            let nothing = Tree::new();
            plugin
                .validate(request, object)
                .await
                .map_err(|error| error.into_answer(request, object.unwrap_or(&nothing)))?;
        }
    }
    Ok(())
}

/// The plugins of the server, and the rules of the kind behind them.
fn plugins<'a>(
    attributes: &Attributes<'a>,
    rules: Option<&'a KindRules>,
) -> impl Iterator<Item = &'a dyn Admission> {
    let is_asked = attributes.origin == Origin::Request;
    let rules = rules.map(|rules| rules as &dyn Admission);
    attributes.environment.admission.iter().chain(rules).filter(move |_| is_asked)
}

fn rules(attributes: &Attributes<'_>) -> Option<KindRules> {
    attributes.kind().admission_rules.clone().map(KindRules)
}

fn request<'a>(
    attributes: &Attributes<'a>,
    live: Option<&'a Live>,
    name: &'a str,
) -> AdmissionRequest<'a> {
    let operation = match live {
        None => AdmissionOperation::Create,
        Some(_) => AdmissionOperation::Update,
    };
    attributes.admission_request(operation, name).about(live.map(|live| &live.tree))
}
