//! Prepare: sets the fields that the system and the strategy of a kind set.

use serde_json::Value;

use super::attributes::{Attributes, Part};
use super::draft::Draft;
use super::live::{Live, set_revision};
use super::reset::take_finalizers;
use super::stamp;
use crate::error::{ApiError, FieldError, quote};
use crate::kind::{ErasedValidation, Kind, RuleContext, SentValues, Version};
use crate::object::{Tree, metadata};

/// Where the name of an object comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameOrigin {
    /// Whether it was made from a prefix.
    pub is_generated: bool,
    /// Whether a prefix was given, with a name or without.
    pub has_prefix: bool,
}

/// Sets the fields that the system and the strategy set.
///
/// # Errors
/// Same as kube-apiserver: 422 without a resourceVersion, 409 if the live object has another one.
pub(super) fn prepare(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<NameOrigin, ApiError> {
    let Some(live) = live else { return Ok(prepare_new(attributes, draft)) };
    check_revision(attributes.kind(), draft, live)?;
    prepare_change(attributes, live, draft);
    Ok(NameOrigin { is_generated: false, has_prefix: false })
}

/// Sets the defaults of a built-in kind before admission. For custom kinds, the decoder has set them. Returns the values
/// that the client has sent for the fields that the system fills in.
pub(super) fn set_defaults(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> SentValues {
    let sent = SentValues::of(attributes.kind().strategy.filled_by_system, &draft.tree);
    fill_in(attributes, live, draft.is_kind, &mut draft.tree);
    sent
}

/// Sets the defaults of a built-in kind that its rules set, before admission.
pub(super) fn fill_in(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    is_kind: bool,
    tree: &mut Tree,
) {
    let (kind, version) = (attributes.kind(), attributes.version);
    if !kind.is_typed() || matches!(attributes.part, Part::Handler(_)) {
        return;
    }
    let Some(rules) = kind.strategy_rules(version).filter(|_| is_kind) else { return };
    let context = attributes.context().before_admission();
    match live {
        None => run(rules, kind, version, tree, &context),
        Some(live) => run_changing(rules, attributes, (live, &context), tree),
    }
}

/// Lets the strategy fill in an object that replaces another one.
fn run_changing(
    rules: &ErasedValidation,
    attributes: &Attributes<'_>,
    (live, context): (&Live, &RuleContext<'_>),
    tree: &mut Tree,
) {
    let given = (attributes.part == Part::Finalizers).then(|| tree.clone());
    // The rules recognize a changed object by its resourceVersion.
    set_revision(tree, &live.revision);
    run(rules, attributes.kind(), attributes.version, tree, &context.changing(&live.tree));
    metadata::edit(tree, |metadata| drop(metadata.remove("resourceVersion")));
    if let Some(given) = given {
        // Removed finalizers do not come back as defaults.
        take_finalizers(tree, &given);
    }
}

fn prepare_new(attributes: &Attributes<'_>, draft: &mut Draft) -> NameOrigin {
    let (kind, version, clock) =
        (attributes.kind(), attributes.version, attributes.environment.clock);
    let tree = &mut draft.tree;
    let is_generated = stamp::stamp(tree, &kind.strategy, clock);
    if let Some(rules) = kind.strategy_rules(version).filter(|_| draft.is_kind) {
        run(rules, kind, version, tree, &attributes.context());
    }
    NameOrigin { is_generated, has_prefix: metadata::prefix(tree).is_some() }
}

fn prepare_change(attributes: &Attributes<'_>, live: &Live, draft: &mut Draft) {
    let (kind, version) = (attributes.kind(), attributes.version);
    let (part, tree) = (attributes.part, &mut draft.tree);
    let is_main = matches!(part, Part::Main | Part::Scale);
    let is_code = matches!(part, Part::Handler(_));
    let rules = kind.strategy_rules(version).filter(|_| draft.is_kind || !is_main);
    let rules = rules.filter(|_| !is_code);
    if is_code {
        kind.coerce_again(version, tree);
    }
    if let Some(rules) = rules {
        run_changing(rules, attributes, (live, &attributes.context()), tree);
    }
    // A handler increments the generation itself.
    if !is_code && kind.strategy.has_generation {
        let counted: &[(&str, bool)] = &[
            ("annotations", kind.strategy.counts_annotations && is_main),
            ("labels", kind.strategy.counts_labels),
        ];
        bump_generation(version, tree, &live.tree, counted);
    }
}

/// Lets the strategy fill in what depends on other fields.
fn run(
    rules: &ErasedValidation,
    kind: &Kind,
    version: &Version,
    tree: &mut Tree,
    context: &RuleContext<'_>,
) {
    // Validation reports values that do not fit their type.
    let _ = rules.prepare(tree, context);
    kind.coerce_again(version, tree);
}

/// Rejects a change of an outdated object. If the strategy allows it, a missing resourceVersion means an unconditional
/// update.
fn check_revision(kind: &Kind, draft: &Draft, live: &Live) -> Result<(), ApiError> {
    let given = draft.revision.as_str();
    if kind.strategy.allows_unconditional_update && ["", "0"].contains(&given) {
        return Ok(());
    }
    let (group, plural) = (&kind.group, &kind.names.plural);
    let name = metadata::name(&draft.tree);
    if given == live.revision {
        return Ok(());
    }
    let is_number = given.bytes().all(|byte| byte.is_ascii_digit());
    match given.parse::<u64>() {
        Ok(number) if is_number && Ok(number) == live.revision.parse() => Ok(()),
        _ if given.bytes().all(|byte| byte == b'0') => {
            let why = "must be specified for an update";
            let error = FieldError::invalid("metadata.resourceVersion", 0, why);
            Err(ApiError::invalid(group, plural, name, vec![error]))
        }
        Ok(_) if is_number => {
            let cause = "the object has been modified; please apply your changes to the latest version and try again";
            Err(ApiError::conflict(group, plural, name, cause))
        }
        _ => {
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            Err(ApiError::bad_request(format!(
                "strconv.ParseUint: parsing {}: {why}",
                quote(given)
            )))
        }
    }
}

/// Increments the generation if a field has changed. Changes of the metadata are only counted for the `marked` fields, and
/// changes of a status with a subresource are not counted.
fn bump_generation(version: &Version, tree: &mut Tree, old: &Tree, marked: &[(&str, bool)]) {
    let field = |tree: &Tree, name: &str| metadata::of(tree).get(name).cloned();
    let mut marked = marked.iter().filter(|(_, counts)| *counts);
    let is_noted = marked.any(|(name, _)| field(tree, name) != field(old, name));
    if is_noted || !version.counted_fields(tree).eq(version.counted_fields(old)) {
        add_generation(tree);
    }
}

/// Increments the generation, if the object has one.
pub(super) fn add_generation(tree: &mut Tree) {
    metadata::edit(tree, |metadata| {
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), generation.saturating_add(1).into());
        }
    });
}
