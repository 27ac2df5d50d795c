//! Validate: checks an object before it is stored.

use super::attributes::{Attributes, Origin, Part};
use super::draft::Draft;
use super::live::Live;
use super::{embedded, metadata_rules, scale, text};
use crate::blocking;
use crate::error::{ApiError, FieldError, quote};
use crate::kind::{ErasedValidation, Kind, ScalePaths, Version};
use crate::object::{Tree, metadata};
use crate::schema::{self, ERRORS_LIMIT};

/// Rejects an object that is invalid.
///
/// # Errors
/// 422 with all invalid fields; 429 if rules take long and too many other writes wait for their turn.
pub(super) async fn validate(
    attributes: &Attributes<'_>,
    live: Option<&Live>,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    let (kind, version) = (attributes.kind(), attributes.version);
    let (tree, old) = (&draft.tree, live.map(|live| &live.tree));
    let is_main = matches!(attributes.part, Part::Main | Part::Scale);
    if let (Part::Scale, true, Some(paths)) =
        (attributes.part, kind.is_typed(), &version.subresources.scale)
    {
        scale::check(paths, tree)?;
    }
    let mut warnings = Vec::new();
    let mut errors = match (old, attributes.part) {
        (None, _) => faults_of_new(kind, version, draft),
        (Some(old), Part::Main | Part::Scale) => faults(kind, version, draft, old),
        (Some(old), Part::Status | Part::Approval) => faults_of_status(kind, version, draft, old),
        (Some(_), Part::Finalizers | Part::Handler(_)) => Vec::new(),
    };
    // For its own kinds, kube-apiserver reports all errors, those of the metadata first.
    if let Some(rules) = kind.strategy_rules(version)
        && (errors.is_empty() || kind.is_typed())
        && draft.is_kind
        && (is_main || attributes.part == Part::Finalizers)
    {
        let context = attributes.context();
        let context = old.map_or(context, |old| context.changing(old));
        let verdict = rules.judge(tree, old, &context);
        errors.extend(verdict.errors);
        warnings = verdict.warnings;
    }
    if let (Part::Status | Part::Approval, Some(rules), Some(old)) =
        (attributes.part, kind.strategy_rules(version), old)
    {
        let verdict = rules.judge_status(tree, old, &attributes.context().changing(old));
        errors.extend(verdict.errors);
        warnings = verdict.warnings;
    }
    if let (Part::Status, Some(rules), Some(old), []) =
        (attributes.part, kind.rules_of(version), old, &errors[..])
    {
        // Otherwise no other field of the object could be changed any more.
        if let (Err(why), Ok(())) = (rules.fit(tree), rules.fit(old)) {
            errors.push(ErasedValidation::unfit(&why));
        }
    }
    let of_rules = match attributes.part {
        Part::Finalizers | Part::Approval | Part::Handler(_) => Vec::new(),
        Part::Status => judge_by_rules(attributes, tree, old, &mut errors).await?,
        Part::Main | Part::Scale if is_described(kind, version, draft, old) => {
            judge_by_rules(attributes, tree, old, &mut errors).await?
        }
        Part::Main | Part::Scale => Vec::new(),
    };
    if let Some(session) = attributes.served.direct_session() {
        errors.extend(session.unstored(old, tree));
    }
    errors.truncate(ERRORS_LIMIT);
    if !errors.is_empty() {
        // The warnings of rules are returned even if other fields are rejected.
        draft.warnings.extend(of_rules);
        let tree = &draft.tree;
        return Err(invalid(kind, tree, old.is_some(), errors));
    }
    warnings.extend(of_rules);
    // Valid objects alone get these warnings.
    warnings.extend(metadata_rules::finalizer_warnings(tree, old));
    draft.warnings.extend(warnings);
    Ok(())
}

/// Evaluates the rules of the schema, unless there is an error for which kube-apiserver skips them. Returns warnings.
async fn judge_by_rules(
    attributes: &Attributes<'_>,
    tree: &Tree,
    old: Option<&Tree>,
    errors: &mut Vec<FieldError>,
) -> Result<Vec<String>, ApiError> {
    const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    let schema = &attributes.version.schema;
    if !schema.root().subtree.rules {
        return Ok(Vec::new());
    }
    if errors.iter().any(FieldError::blocks_rules) {
        errors.push(FieldError::invalid("<nil>", "null", UNCHECKED));
        return Ok(Vec::new());
    }
    let verdict = match schema::judge_by_rules_at_once(schema, tree, old) {
        Some(verdict) => verdict,
        // Slow rules are evaluated again from the start, sequentially over all requests, so that other requests find a
        // free worker.
        None => {
            let has_turn =
                attributes.kind().strategy.one_at_a_time || attributes.origin == Origin::Restored;
            let _turn = match has_turn {
                true => None,
                false => Some(attributes.environment.turns.take(&attributes.user.name).await?),
            };
            blocking::run(|| schema::judge_by_rules(schema, tree, old))
        }
    };
    errors.extend(verdict.errors);
    Ok(verdict.warnings)
}

/// Whether the schema applies to an object. On an update, kube-apiserver looks up the schema by the `apiVersion` of the
/// object. For another version of this group it finds none, and checks nothing more.
fn is_described(kind: &Kind, version: &Version, draft: &Draft, old: Option<&Tree>) -> bool {
    let given = text(&draft.tree, "apiVersion");
    let is_of_group = given.split_once('/').is_some_and(|(group, _)| group == kind.group);
    old.is_none() || given == kind.api_version(&version.name) || !draft.is_kind || !is_of_group
}

/// The error for an invalid object: 422. On an update it contains the group that the object states; on a create the
/// group was checked already.
fn invalid(kind: &Kind, tree: &Tree, is_change: bool, errors: Vec<FieldError>) -> ApiError {
    let api_version = text(tree, "apiVersion");
    let group = match is_change {
        true => api_version.split_once('/').map_or("", |(group, _)| group),
        false => &kind.group,
    };
    ApiError::invalid(group, &text(tree, "kind"), metadata::name(tree), errors)
}

fn faults_of_new(kind: &Kind, version: &Version, draft: &Draft) -> Vec<FieldError> {
    let tree = &draft.tree;
    let mut errors = Vec::new();
    if draft.is_kind {
        errors.extend(metadata_rules::validate(draft, kind.strategy.names));
        errors.extend(schema::validate(version.schema.root(), tree));
        if let Some(paths) = scale_paths(kind, version) {
            errors.extend(scale::validate(paths, tree));
        }
    } else {
        errors.push(wrong_kind(kind, tree));
    }
    errors.extend(embedded::validate(version.schema.root(), tree));
    errors.extend(schema::validate_list_types(version.schema.root(), tree));
    errors
}

/// The error for an object of another kind.
fn wrong_kind(kind: &Kind, tree: &Tree) -> FieldError {
    let must = format!("must be {}", kind.names.kind);
    FieldError::invalid("kind", quote(&text(tree, "kind")), &must)
}

/// The paths of the replicas if they must be validated separately. The validation code of a strategy covers them
/// itself.
fn scale_paths<'a>(kind: &Kind, version: &'a Version) -> Option<&'a ScalePaths> {
    version.subresources.scale.as_ref().filter(|_| kind.strategy_rules(version).is_none())
}

fn faults_of_status(kind: &Kind, version: &Version, draft: &Draft, old: &Tree) -> Vec<FieldError> {
    let tree = &draft.tree;
    let mut errors = schema::validate_status(version.schema.root(), tree, old);
    if kind.strategy.updates_metadata_with_status {
        errors.extend(metadata_rules::validate(draft, kind.strategy.names));
        errors.extend(metadata_rules::validate_update(tree, old));
    }
    if let Some(paths) = scale_paths(kind, version) {
        errors.extend(scale::validate_status(paths, tree));
    }
    errors.extend(faults_of_lists(version, tree, old));
    errors.truncate(ERRORS_LIMIT);
    errors
}

/// Returns the duplicate elements of lists, unless the old object has duplicates too.
fn faults_of_lists(version: &Version, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let errors = schema::validate_list_types(version.schema.root(), tree);
    if errors.is_empty() || schema::validate_list_types(version.schema.root(), old).is_empty() {
        errors
    } else {
        Vec::new()
    }
}

fn faults(kind: &Kind, version: &Version, draft: &Draft, old: &Tree) -> Vec<FieldError> {
    let Draft { tree, is_kind, .. } = draft;
    let is_kind = *is_kind;
    let mut errors = metadata_rules::validate(draft, kind.strategy.names);
    let of_change = metadata_rules::validate_update(tree, old);
    errors.extend(of_change.clone());
    let api_version = kind.api_version(&version.name);
    let given = text(tree, "apiVersion");
    if !is_kind {
        errors.push(wrong_kind(kind, tree));
    }
    if given != api_version {
        let must = format!("must be {api_version}");
        errors.push(FieldError::invalid("apiVersion", quote(&given), &must));
    }
    if is_kind && given == api_version {
        errors.extend(of_change);
        errors.extend(schema::validate_change(version.schema.root(), tree, old));
        if let Some(paths) = scale_paths(kind, version) {
            errors.extend(scale::validate(paths, tree));
        }
    }
    if is_described(kind, version, draft, Some(old)) {
        errors.extend(embedded::validate(version.schema.root(), tree));
        errors.extend(faults_of_lists(version, tree, old));
    }
    errors.truncate(ERRORS_LIMIT);
    errors
}
