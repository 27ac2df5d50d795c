//! What becomes of an object that is there, when somebody changes it.

use serde_json::Value;

use super::{Decoded, embedded, metadata_rules, scale, wrong_kind};
use crate::error::{ApiError, FieldError, quote};
use crate::kind::{CodedRules, Kind, RuleContext, Version};
use crate::object::{Key, Object, Tree, metadata};
use crate::schema::{self, ERRORS_LIMIT, Malformed};

/// An object that is there.
#[derive(Debug)]
pub struct Live {
    /// As the version of the request shows it.
    pub tree: Tree,
    /// Its resourceVersion.
    pub revision: String,
    /// Its size as it is kept, in bytes: it may stay as large.
    pub size: usize,
}

impl Live {
    /// Its uid.
    pub fn uid(&self) -> &str {
        metadata::text(&self.tree, "uid")
    }

    /// The object with its resourceVersion, as a patch meets it.
    pub fn with_revision(&self) -> Tree {
        let mut tree = self.tree.clone();
        metadata::edit(&mut tree, |metadata| {
            metadata.insert("resourceVersion".to_owned(), self.revision.clone().into());
        });
        tree
    }
}

/// What of an object is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but what has a subresource of its own.
    Main,
    /// Its status alone.
    Status,
    /// What holds it, besides its metadata.
    Finalizers,
}

/// What a change comes to.
#[derive(Debug)]
pub enum Change {
    /// This is kept from now on, if it is another content.
    Kept(Object),
    /// Its last finalizer is gone, so the object goes. This is what it would
    /// have been.
    Gone(Object),
}

/// A change that may be made, and what its author should know.
#[derive(Debug)]
pub struct PreparedChange {
    /// The change.
    pub change: Change,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Refuses an object that is not the one that the path names.
///
/// # Errors
/// 400 with what is wrong.
pub fn check_identity(tree: &mut Tree, key: &Key) -> Result<(), ApiError> {
    super::check_namespace(tree, key.namespace())?;
    let (given, name) = (metadata::name(tree), key.name());
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Refuses an object that says it is another one of the same name than that of this uid;
/// where there is none, that is empty.
///
/// # Errors
/// 409.
pub fn check_uid(kind: &Kind, tree: &Tree, key: &Key, uid: &str) -> Result<(), ApiError> {
    let given = metadata::text(tree, "uid");
    if given.is_empty() || given == uid {
        return Ok(());
    }
    let (group, plural) = (&kind.group, &kind.names.plural);
    let prefix = match kind.strategy.storage_prefix {
        Some(name) => name.to_owned(),
        None if kind.is_typed() => plural.clone(),
        None => format!("{group}/{plural}"),
    };
    let cause = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{prefix}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {uid}"
    );
    Err(ApiError::conflict(group, plural, key.name(), &cause))
}

/// Prepares a change: what was submitted, or what a patch has made, in place
/// of what is there.
///
/// # Errors
/// What kube-apiserver answers, in its order: no version to start from (422),
/// another one than is there (409), then everything that validation finds (422).
pub fn prepare_change(
    kind: &Kind,
    version: &Version,
    live: &Live,
    decoded: Decoded,
    part: Part,
    context: &RuleContext<'_>,
) -> Result<PreparedChange, ApiError> {
    let Decoded { mut tree, is_kind, mut warnings } = decoded;
    let is_judged = is_kind && part == Part::Main;
    let context = &context.changing(&live.tree);
    let rules = kind.rules_of(version).filter(|_| is_judged).map(|rules| (rules, context));
    let mut change = || {
        if rules.is_some() && version.subresources.status {
            // Rules see the status that there is.
            take_status(&mut tree, &live.tree);
        }
        if kind.strategy.allows_unconditional_update {
            take_revision(&mut tree, live);
        }
        if part == Part::Main {
            kind.strategy.keep(&mut tree, &live.tree);
            if kind.strategy.has_finalize {
                take_finalizers(&mut tree, &live.tree);
            }
        }
        let asked = super::Asked::prepare(kind, version, rules, &mut tree);
        check_revision(kind, &tree, live)?;
        let mut errors = match part {
            Part::Main => {
                // Rules of Kubernetes' own kinds may have changed it.
                let is_taken = rules.is_some() && kind.is_typed();
                if version.subresources.status && !is_taken {
                    take_status(&mut tree, &live.tree);
                    if is_kind {
                        schema::fill_defaults(version.schema.root(), &mut tree);
                    }
                }
                keep_what_is_the_systems(&mut tree, &live.tree);
                faults(kind, version, &tree, is_kind, &live.tree)
            }
            Part::Status => {
                let status = std::mem::replace(&mut tree, live.tree.clone());
                take_status(&mut tree, &status);
                if kind.strategy.updates_metadata_with_status {
                    take_metadata(&mut tree, &status, kind.strategy.metadata_kept_by_status);
                }
                if let Some(rules) = kind.rules_of(version).filter(|_| kind.is_typed()) {
                    // Fields of a status depend on each other. What does not fit
                    // its type is told below.
                    take_revision(&mut tree, live);
                    super::Asked::prepare(kind, version, Some((rules, context)), &mut tree);
                    metadata::edit(&mut tree, |metadata| {
                        metadata.remove("resourceVersion");
                    });
                }
                if !is_kind {
                    // What says that it is something else was not pruned.
                    let _ = schema::take_in(version.schema.root(), &mut tree, Malformed::Dropped);
                }
                faults_of_status(kind, version, &tree, &live.tree)
            }
            Part::Finalizers => {
                let given = std::mem::replace(&mut tree, live.tree.clone());
                take_metadata(&mut tree, &given, &[]);
                if let Some(rules) = kind.rules_of(version) {
                    super::Asked::prepare(kind, version, Some((rules, context)), &mut tree);
                }
                // No default is put in the place of what is taken away.
                take_finalizers(&mut tree, &given);
                Vec::new()
            }
        };
        asked.judge(&tree, Some(&live.tree), &mut errors, &mut warnings);
        if let (Part::Status, Some(rules), []) = (part, kind.rules_of(version), &errors[..]) {
            // Or nothing else of the object could be changed any more.
            if let (Err(why), Ok(())) = (rules.fit(&tree), rules.fit(&live.tree)) {
                errors.push(CodedRules::unfit(&why));
            }
        }
        if !errors.is_empty() {
            let (given, version) = (super::text(&tree, "kind"), super::text(&tree, "apiVersion"));
            let group = version.split_once('/').map_or("", |(group, _)| group);
            return Err(ApiError::invalid(group, &given, metadata::name(&tree), errors));
        }
        warnings.extend(metadata_rules::finalizer_warnings(&tree, Some(&live.tree)));
        let counts_annotations = kind.strategy.counts_annotations && part == Part::Main;
        bump_generation(version, &mut tree, &live.tree, counts_annotations);
        if is_over(kind, &tree) {
            // It is shown, not kept: what is too large can still go.
            return Ok(Change::Gone(Object::from_tree(&tree).map_err(ApiError::internal)?));
        }
        let limit = super::OBJECT_LIMIT.max(live.size);
        Ok(Change::Kept(super::encode_within(limit, &tree)?))
    };
    match change() {
        Ok(change) => Ok(PreparedChange { change, warnings }),
        Err(error) => Err(error.with_warnings(warnings)),
    }
}

/// Who says nothing means the object as it is.
fn take_revision(tree: &mut Tree, live: &Live) {
    if ["", "0"].contains(&metadata::text(tree, "resourceVersion")) {
        metadata::edit(tree, |metadata| {
            metadata.insert("resourceVersion".to_owned(), live.revision.clone().into());
        });
    }
}

/// Who changes an object must have seen it as it is.
fn check_revision(kind: &Kind, tree: &Tree, live: &Live) -> Result<(), ApiError> {
    let (group, plural, name) = (&kind.group, &kind.names.plural, metadata::name(tree));
    let given = metadata::text(tree, "resourceVersion");
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

/// What only the system sets stays as it is; what was left out of the rest
/// that cannot change is filled in.
fn keep_what_is_the_systems(tree: &mut Tree, old: &Tree) {
    let old = metadata::of(old);
    metadata::edit(tree, |metadata| {
        for field in ["selfLink", "managedFields", "resourceVersion"] {
            metadata.remove(field);
        }
        for field in ["creationTimestamp", "generation"] {
            metadata.remove(field);
            if let Some(value) = old.get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        if let Some(time) = old.get("deletionTimestamp") {
            metadata.insert("deletionTimestamp".to_owned(), time.clone());
        }
        for field in ["uid", "deletionGracePeriodSeconds"] {
            if let Some(value) = old.get(field) {
                metadata.entry(field).or_insert_with(|| value.clone());
            }
        }
    });
}

/// Puts what holds another state of an object in the place of what holds it.
fn take_finalizers(tree: &mut Tree, other: &Tree) {
    let given = other.get("spec").and_then(|spec| spec["finalizers"].as_array());
    let spec = tree.entry("spec").or_insert_with(|| Value::Object(Tree::new()));
    let Value::Object(spec) = spec else { return };
    match given.filter(|given| !given.is_empty()) {
        Some(given) => drop(spec.insert("finalizers".to_owned(), given.clone().into())),
        None => drop(spec.remove("finalizers")),
    }
}

/// Puts the status of another state of an object in the place of its own.
fn take_status(tree: &mut Tree, other: &Tree) {
    tree.remove("status");
    if let Some(status) = other.get("status") {
        tree.insert("status".to_owned(), status.clone());
    }
}

/// Puts what is said about an object in the place of what was said.
fn take_metadata(tree: &mut Tree, other: &Tree, kept: &[&str]) {
    let other = metadata::of(other);
    metadata::edit(tree, |metadata| {
        let fields = ["annotations", "finalizers", "labels"];
        for field in fields.into_iter().filter(|field| !kept.contains(field)) {
            match other.get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
    });
}

fn faults_of_status(kind: &Kind, version: &Version, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut errors = schema::validate_status(version.schema.root(), tree, old);
    if kind.strategy.updates_metadata_with_status {
        errors.extend(metadata_rules::validate(tree, kind.strategy.names));
        errors.extend(metadata_rules::validate_update(tree, old));
    }
    if let Some(paths) = super::scale_paths(kind, version) {
        errors.extend(scale::validate_status(paths, tree));
    }
    errors.extend(faults_of_lists(version, tree, old));
    errors.truncate(ERRORS_LIMIT);
    errors
}

/// What is there twice, unless something was before.
fn faults_of_lists(version: &Version, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let errors = schema::validate_list_types(version.schema.root(), tree);
    if errors.is_empty() || schema::validate_list_types(version.schema.root(), old).is_empty() {
        errors
    } else {
        Vec::new()
    }
}

fn faults(
    kind: &Kind,
    version: &Version,
    tree: &Tree,
    is_kind: bool,
    old: &Tree,
) -> Vec<FieldError> {
    let mut errors = metadata_rules::validate(tree, kind.strategy.names);
    let of_change = metadata_rules::validate_update(tree, old);
    errors.extend(of_change.clone());
    let api_version = kind.api_version(&version.name);
    let given = super::text(tree, "apiVersion");
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
        if let Some(paths) = super::scale_paths(kind, version) {
            errors.extend(scale::validate(paths, tree));
        }
    }
    // Of a version that is not there nothing is left to be looked at.
    let is_of_group = given.split_once('/').is_some_and(|(group, _)| group == kind.group);
    if given == api_version || !is_kind || !is_of_group {
        errors.extend(embedded::validate(version.schema.root(), tree));
        errors.extend(faults_of_lists(version, tree, old));
    }
    errors.truncate(ERRORS_LIMIT);
    errors
}

/// The generation counts changes of everything but the metadata, and a status
/// that is written apart.
fn bump_generation(version: &Version, tree: &mut Tree, old: &Tree, counts_annotations: bool) {
    let is_counted =
        |name: &str| name != "metadata" && !(name == "status" && version.subresources.status);
    let count = |tree: &Tree| tree.keys().filter(|name| is_counted(name)).count();
    let is_kept = |(name, value): (&String, &Value)| {
        !is_counted(name) || old.get(name).is_some_and(|old| old == value)
    };
    let annotations = |tree: &Tree| metadata::of(tree).get("annotations").cloned();
    let is_noted = counts_annotations && annotations(tree) != annotations(old);
    if is_noted || count(tree) != count(old) || !tree.iter().all(is_kept) {
        add_generation(tree);
    }
}

/// Counts one more change, where they are counted.
pub(super) fn add_generation(tree: &mut Tree) {
    metadata::edit(tree, |metadata| {
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), generation.saturating_add(1).into());
        }
    });
}

/// Whether nothing holds an object any more that is being deleted.
pub(super) fn is_over(kind: &Kind, tree: &Tree) -> bool {
    let metadata = metadata::of(tree);
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    metadata::is_being_deleted(tree) && !kind.strategy.holds(tree) && grace.unwrap_or_default() == 0
}
