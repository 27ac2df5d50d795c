//! The two stages of admission, and what follows from the first.

use std::sync::OnceLock;
use std::time::Instant;

use super::attributes::{Attributes, Origin, Part};
use super::decode::{check_identity, check_namespace};
use super::draft::Draft;
use super::live::Live;
use super::prepare::fill_in;
use super::sent_managers::without_managed_fields;
use super::{owners, reset, text};
use crate::admission::{
    AdmissionChain, AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin,
    AdmissionRequest, AdmissionTime, AdmittedNamespace, Form, KindRules, OldObject, Reservation,
};
use crate::conversion::known;
use crate::error::ApiError;
use crate::object::{Key, Tree, metadata};
use crate::quota::{self, Room};
use crate::schema::{self, Malformed};

/// The largest number of warnings about the deletion of a collection; each message is sent once.
const WARNINGS_LIMIT: usize = 100;

/// The memory for rules of another version, in sizes of the old and the new object: both objects as the rules read them, as
/// the rules leave them, and both of these in the version of the request.
const CONVERTED: usize = 4;

/// Lets plugins change an object. An object that a plugin has touched is pruned and defaulted again. Returns the namespace
/// in which a new object was admitted.
///
/// # Errors
/// The refusal of a plugin; 500 if a plugin changes the identity or the type of the object; 413 and 429 if the object
/// exceeds a memory limit.
pub(super) async fn mutate(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
    room: &mut Room,
) -> Result<Option<AdmittedNamespace>, ApiError> {
    let name = metadata::name(&draft.tree).to_owned();
    let revision = draft.revision.clone();
    let request = request(attributes, live, (&name, Some(&revision)));
    let rules = rules(attributes, draft);
    let _converting = room_of_rules(attributes, rules.as_ref(), live, draft)?;
    let mut touched = None;
    let before = draft_type(draft);
    let mut is_retyped = false;
    let is_kind = draft.is_kind;
    let fill = move |tree: &mut Tree| fill_again(attributes, live, is_kind, tree);
    let all = Asked::all(attributes, request.operation, false);
    let plugins = || plugins(attributes);
    let mut object = AdmissionObject::new(&mut draft.tree).filled_by(&fill);
    let mut outcome = call(plugins(), (&request, &mut object), &all, &mut touched).await;
    if outcome.is_ok() && request.begin_reinvocation() {
        outcome = call(plugins(), (&request, &mut object), &all, &mut touched).await;
    }
    if outcome.is_ok() {
        is_retyped = draft_type(draft) != before;
        reset::reset(attributes, live, draft);
        let before = draft_type(draft);
        let rules = rules.iter().map(|rules| rules as &dyn AdmissionPlugin);
        let mut object = AdmissionObject::new(&mut draft.tree).filled_by(&fill);
        outcome = call(rules, (&request, &mut object), &all, &mut touched).await;
        is_retyped |= draft_type(draft) != before;
    }
    all.has_answered(outcome.is_err());
    draft.warnings.extend(request.take_warnings());
    outcome.map_err(|error| error.into_answer(&request, &draft.tree))?;
    let namespace = request.take_namespace();
    let Some(plugin) = touched else { return Ok(namespace) };
    let broken = |why: &str| {
        let what = "has made an object that cannot be kept";
        ApiError::internal(format!("admission plugin {plugin:?} {what}: {why}"))
    };
    room.grow_to(quota::of_tree(&draft.tree))?;
    if is_retyped {
        return Err(broken("apiVersion and kind may not change"));
    }
    normalize_again(attributes, live, draft).map_err(|why| broken(&why))?;
    Ok(namespace)
}

/// Lets plugins change an object sequentially. `touched` becomes the name of the last one that may have done so.
///
/// # Errors
/// The refusal of a plugin; the plugins behind it are not called.
async fn call<'p>(
    plugins: impl Iterator<Item = &'p dyn AdmissionPlugin>,
    (request, object): (&AdmissionRequest<'_>, &mut AdmissionObject<'_>),
    all: &Asked<'_>,
    touched: &mut Option<&'p str>,
) -> Result<(), AdmissionError> {
    for plugin in plugins.filter(|plugin| plugin.handles(request)) {
        let asked = all.plugin(plugin.name());
        let outcome = plugin.mutate(request, object).await;
        asked.has_answered(outcome.is_err());
        if object.take_touched() {
            *touched = Some(plugin.name());
        }
        outcome?;
    }
    Ok(())
}

/// Fills in the defaults of an object that a plugin has changed.
fn fill_again(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    is_kind: bool,
    tree: &mut Tree,
) -> Result<(), String> {
    schema::coerce_metadata(tree, Malformed::Refused)?;
    if is_kind {
        schema::normalize(attributes.version.schema.root(), tree, Malformed::Refused)?;
        fill_in(attributes, live, is_kind, tree);
    }
    Ok(())
}

/// Normalizes an object that plugins have touched, and checks that it still fits the path.
fn normalize_again(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<(), String> {
    let tree = &mut draft.tree;
    let checked = match attributes.name {
        None => check_namespace(tree, attributes.namespace),
        Some(_) => check_identity(tree, &attributes.key()),
    };
    checked.map_err(|error| error.to_string())?;
    schema::coerce_metadata(tree, Malformed::Refused)?;
    if draft.is_kind {
        schema::normalize(attributes.version.schema.root(), tree, Malformed::Refused)?;
    }
    draft.warnings.extend(owners::without_duplicates(tree, owners::Found::AfterAdmission));
    draft.tree = without_managed_fields(std::mem::take(&mut draft.tree)).0;
    reset::reset_again(attributes, live, draft);
    Ok(())
}

/// The `apiVersion` and the `kind` of an object.
fn draft_type(draft: &Draft) -> (String, String) {
    (text(&draft.tree, "apiVersion"), text(&draft.tree, "kind"))
}

/// Lets plugins validate an object as it would be stored. Returns the reservation of quota for it, which is held until it is
/// stored.
///
/// # Errors
/// The refusal of a plugin; 413 and 429 if converted objects exceed a memory limit.
pub(super) async fn validate(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<Option<Reservation>, ApiError> {
    let name = metadata::name(&draft.tree).to_owned();
    // The revision of the stored object, not the one that the client has sent.
    let revision = live.map(|live| live.revision.as_str());
    let request = request(attributes, live, (&name, revision));
    let rules = rules(attributes, draft);
    let _converting = room_of_rules(attributes, rules.as_ref(), live, draft)?;
    let outcome = ask(attributes, rules.as_ref(), &request, Some(&draft.tree)).await;
    draft.warnings.extend(request.take_warnings());
    outcome.map(|()| request.take_reservation())
}

/// Lets plugins validate the deletion of this object. Their warnings are added to `warnings`.
///
/// # Errors
/// The refusal of a plugin.
pub async fn validate_deletion(
    attributes: &Attributes<'_>,
    key: &Key,
    (live, size, revision): (&(dyn Fn() -> Tree + Sync), usize, &str),
    options: &(dyn Fn() -> Tree + Sync),
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let kind = attributes.kind();
    let about = |made| {
        let request = attributes.admission_request(AdmissionOperation::Delete, key.name());
        request.about(OldObject::Lazy(live, made)).of_collection(attributes.name.is_none())
    };
    let is_handled = || {
        let request = about(OnceLock::new());
        plugins(attributes).any(|plugin| plugin.handles(&request))
    };
    if !known(kind, attributes.account, is_handled).await? {
        return Ok(());
    }
    let made = OnceLock::new();
    if kind.is_converted_by_webhook() {
        // A plugin cannot wait for the conversion when it reads the object.
        let _ = made.set(known(kind, attributes.account, live).await?);
    }
    let request = about(made).with_options(options()).at(None, Some(revision.into()));
    // The object uses memory while plugins validate its deletion.
    let _room = attributes.account.room(size)?;
    let outcome = ask(attributes, None, &request, None).await;
    let left = WARNINGS_LIMIT.saturating_sub(warnings.len());
    let told = request.take_warnings().into_iter().take(left);
    let told: Vec<String> = told.filter(|text| !warnings.contains(text)).collect();
    warnings.extend(told);
    outcome
}

/// Lets plugins validate a request for a subresource that code of the user handles. Returns the warnings of the plugins;
/// an error has them too.
///
/// # Errors
/// The refusal of a plugin.
pub async fn validate_connection(
    attributes: &Attributes<'_>,
    key: &Key,
    parent: &Tree,
) -> Result<Vec<String>, ApiError> {
    let request = attributes.admission_request(AdmissionOperation::Connect, key.name());
    let request = request.about(OldObject::Borrowed(parent));
    let outcome = ask(attributes, None, &request, None).await;
    let warnings = request.take_warnings();
    match outcome {
        Ok(()) => Ok(warnings),
        Err(error) => Err(error.with_warnings(warnings)),
    }
}

async fn ask(
    attributes: &Attributes<'_>,
    rules: Option<&KindRules>,
    request: &AdmissionRequest<'_>,
    object: Option<&Tree>,
) -> Result<(), ApiError> {
    let last = attributes.environment.admission.last();
    let last = last.filter(|_| is_asked(attributes));
    let rules = rules.map(|rules| rules as &dyn AdmissionPlugin);
    let plugins = plugins(attributes).chain(rules).chain(last);
    let all = Asked::all(attributes, request.operation, true);
    let mut outcome = Ok(());
    for plugin in plugins.filter(|one| one.handles(request)) {
        let asked = all.plugin(plugin.name());
        outcome = plugin.validate(request, object).await;
        asked.has_answered(outcome.is_err());
        if outcome.is_err() {
            break;
        }
    }
    all.has_answered(outcome.is_err());
    let nothing = Tree::new();
    outcome.map_err(|error| error.into_answer(request, object.unwrap_or(&nothing)))
}

/// A call of one plugin, or of all of them. The drop reports its duration. A call that is cancelled counts as a refusal.
struct Asked<'a> {
    chain: &'a AdmissionChain,
    plugin: Option<&'a str>,
    operation: AdmissionOperation,
    validates: bool,
    began: Instant,
    rejected: bool,
}

impl<'a> Asked<'a> {
    fn all(attributes: &Attributes<'a>, operation: AdmissionOperation, validates: bool) -> Self {
        let chain = attributes.environment.admission;
        Self { chain, plugin: None, operation, validates, began: Instant::now(), rejected: true }
    }

    fn plugin<'b>(&self, name: &'b str) -> Asked<'b>
    where
        'a: 'b,
    {
        let (operation, validates) = (self.operation, self.validates);
        let (plugin, began) = (Some(name), Instant::now());
        Asked { chain: self.chain, plugin, operation, validates, began, rejected: true }
    }

    fn has_answered(mut self, rejected: bool) {
        self.rejected = rejected;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.chain.observe(&AdmissionTime {
            plugin: self.plugin,
            operation: self.operation,
            validates: self.validates,
            rejected: self.rejected,
            took: self.began.elapsed(),
        });
    }
}

/// The plugins of the server that are called.
fn plugins<'a>(attributes: &Attributes<'a>) -> impl Iterator<Item = &'a dyn AdmissionPlugin> {
    let is_asked = is_asked(attributes);
    attributes.environment.admission.iter().filter(move |_| is_asked)
}

/// Whether plugins are called about the write.
fn is_asked(attributes: &Attributes<'_>) -> bool {
    attributes.origin == Origin::Request
}

/// The rules of the kind, if they are called about the object.
fn rules(attributes: &Attributes<'_>, draft: &Draft) -> Option<KindRules> {
    let is_called = draft.is_kind && is_asked(attributes);
    attributes.kind().admission_rules.clone().filter(|_| is_called).map(KindRules)
}

/// Reserves memory for the objects that are converted for rules of another version, while the rules are called.
fn room_of_rules(
    attributes: &Attributes<'_>,
    rules: Option<&KindRules>,
    live: Option<&Live>,
    draft: &Draft,
) -> Result<Option<Room>, ApiError> {
    let is_of_other = |rules: &KindRules| !rules.0.is_about(&attributes.version.name);
    if !attributes.kind().is_converted_by_code() || !rules.is_some_and(is_of_other) {
        return Ok(None);
    }
    let size = quota::of_tree(&draft.tree) + live.map_or(0, Live::tree_size);
    attributes.account.reserve(CONVERTED * size).map(Some)
}

fn request<'a>(
    attributes: &Attributes<'a>,
    live: Option<&'a Live>,
    (name, revision): (&'a str, Option<&'a str>),
) -> AdmissionRequest<'a> {
    let form = attributes.version.subresources.scale.as_ref();
    let form = form.filter(|_| attributes.part == Part::Scale);
    let operation = match live {
        None => AdmissionOperation::Create,
        Some(_) => AdmissionOperation::Update,
    };
    attributes
        .admission_request(operation, name)
        .about(live.map_or(OldObject::None, |live| OldObject::Borrowed(&live.tree)))
        .in_form(form.map(|paths| paths as &dyn Form))
        .at(revision, live.map(|live| live.revision.as_str().into()))
}
