//! The order of steps that every write goes through.
//!
//! An object arrives as a tree. Its metadata is read, what its schema does not
//! know is pruned, the system's fields are stamped, the rules are checked; what
//! is left is encoded once.

mod deletion;
mod embedded;
mod extent;
mod faults_of_defaults;
mod field_validation;
mod json_patch;
mod merge_patch;
mod metadata_rules;
mod owners;
mod patch;
mod scale;
mod stamp;
mod update;

pub use deletion::{DeletionOptions, Propagation, as_it_goes, mark};
pub use faults_of_defaults::faults_of_defaults;
pub use field_validation::FieldValidation;
pub use json_patch::{OPERATIONS_LIMIT, Operation};
pub use patch::{Patch, SubmittedPatch, apply_patch};
pub use scale::{Wanted, no_scale, scale_of};
pub use update::{Change, Live, Part, PreparedChange, check_identity, check_uid, prepare_change};

use extent::{DEPTH_LIMIT, Extent};
use serde_json::Value;

use crate::ambient::Ambient;
use crate::error::{ApiError, FieldError, Reason, quote};
use crate::kind::{CodedRules, Kind, RuleContext, ScalePaths, Version};
use crate::object::{Object, Tree, metadata};
use crate::schema::{self, ERRORS_LIMIT, Malformed};

/// The largest object that is kept; as etcd.
const OBJECT_LIMIT: usize = 3 << 19;

/// Values in an object, each member and item: a tree of them costs many times
/// its text. As many as are read, and what the system adds.
const VALUES_LIMIT: usize = 50_000 + 1_000;

/// An object as a client sent it.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The object.
    pub tree: Tree,
    /// Paths of members that were given more than once.
    pub duplicates: Vec<String>,
}

/// An object that may be kept, and what its author should know.
#[derive(Debug)]
pub struct Prepared {
    /// The object.
    pub object: Object,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Where its name comes from.
    pub name_origin: NameOrigin,
}

/// Where the name of an object comes from.
#[derive(Clone, Copy, Debug)]
pub struct NameOrigin {
    /// Whether it was made from a prefix.
    pub is_generated: bool,
    /// Whether a prefix was given, with a name or without.
    pub has_prefix: bool,
}

/// Reads a new object of a kind for its namespace.
///
/// # Errors
/// What kube-apiserver answers, in its order: metadata of a wrong type (400),
/// unknown fields under `Strict` (400), another namespace than the path's (400).
pub fn decode_new(
    kind: &Kind,
    version: &Version,
    namespace: Option<&str>,
    submitted: Submitted,
    field_validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    let mut decoded = decode(kind, version, submitted, field_validation)?;
    match check_namespace(&mut decoded.tree, namespace) {
        Ok(()) => Ok(decoded),
        Err(error) => Err(error.with_warnings(decoded.warnings)),
    }
}

/// Prepares a new object of a kind.
///
/// # Errors
/// Everything that validation finds (422).
pub fn prepare_new(
    kind: &Kind,
    version: &Version,
    decoded: Decoded,
    context: Option<&RuleContext<'_>>,
    ambient: &Ambient,
) -> Result<Prepared, ApiError> {
    prepare_made(kind, version, decoded, context, ambient, None)
}

/// What an object has from the start that clients may not give it.
struct Initial {
    uid: Option<String>,
}

/// The same of an object that may have more than clients may give it.
fn prepare_made(
    kind: &Kind,
    version: &Version,
    decoded: Decoded,
    context: Option<&RuleContext<'_>>,
    ambient: &Ambient,
    initial: Option<&Initial>,
) -> Result<Prepared, ApiError> {
    let Decoded { mut tree, is_kind, mut warnings } = decoded;
    let is_own = kind.is_typed();
    let keeps_status = kind.strategy.keeps_status_on_create || (is_own && initial.is_some());
    let drops_status = version.subresources.status && !keeps_status;
    if drops_status && tree.remove("status").is_some() {
        // What it begins with is as if it was never said.
        schema::fill_defaults(version.schema.root(), &mut tree);
    }
    let rules = kind.rules_of(version).filter(|_| is_kind).zip(context);
    let of_revision = match context {
        Some(RuleContext { dry_run: true, .. }) => Ok(()),
        _ => stamp::refuse_revision(&tree),
    };
    // Kinds of Kubernetes' own fill in what depends on name and uid.
    let mut is_generated = is_own && stamp::stamp(&mut tree, kind.strategy.has_generation, ambient);
    if let Some(uid) = initial.and_then(|initial| initial.uid.as_deref()).filter(|_| is_own) {
        give_uid(&mut tree, uid);
    }
    let rules = Asked::prepare(kind, version, rules, &mut tree);
    if !is_own {
        is_generated = stamp::stamp(&mut tree, kind.strategy.has_generation, ambient);
    }
    let completed = complete(kind, version, tree, is_kind, &mut warnings, &rules);
    let completed = completed.and_then(|completed| of_revision.map(|()| completed));
    match completed {
        Ok((object, has_prefix)) => {
            let name_origin = NameOrigin { is_generated, has_prefix };
            Ok(Prepared { object, warnings, name_origin })
        }
        Err(error) => Err(error.with_warnings(warnings)),
    }
}

/// An object without what its kind does not know.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The object.
    pub tree: Tree,
    /// Whether it says that it is of this kind; otherwise nothing was pruned.
    pub is_kind: bool,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Drops what the kind does not know.
///
/// # Errors
/// Metadata of a wrong type, and under `Strict` unknown fields (400).
pub fn decode(
    kind: &Kind,
    version: &Version,
    submitted: Submitted,
    field_validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    let Submitted { mut tree, duplicates } = submitted;
    let unhandled = |why: &str| {
        let name = &kind.names.kind;
        let version = quote(&version.name);
        ApiError::bad_request(format!(
            "{name} in version {version} cannot be handled as a {name}: {why}"
        ))
    };
    let (is_kind, unknown) = prune(kind, version, &mut tree).map_err(|why| unhandled(&why))?;
    let mut warnings = field_validation::report(field_validation, duplicates, unknown)
        .map_err(|problems| unhandled(&format!("strict decoding error: {problems}")))?;
    warnings.extend(owners::without_duplicates(&mut tree, owners::Found::InTheRequest));
    Ok(Decoded { tree, is_kind, warnings })
}

/// Drops what is not known; answers whether it is of the kind, and with the
/// paths of what was dropped.
fn prune(kind: &Kind, version: &Version, tree: &mut Tree) -> Result<(bool, Vec<String>), String> {
    let is_kind = text(tree, "kind") == kind.names.kind;
    let of = version.schema.root();
    let mut unknown = Vec::new();
    if !(is_kind && of.go.is_some()) {
        unknown.extend(schema::coerce_metadata(tree, Malformed::Refused)?);
    }
    if is_kind {
        unknown.extend(schema::take_in(of, tree, Malformed::Refused)?);
    }
    Ok((is_kind, unknown))
}

/// Checks a stamped tree and encodes it; answers also whether its name could be
/// made from a prefix.
fn complete(
    kind: &Kind,
    version: &Version,
    tree: Tree,
    is_kind: bool,
    warnings: &mut Vec<String>,
    rules: &Asked<'_>,
) -> Result<(Object, bool), ApiError> {
    let name = metadata::name(&tree).to_owned();
    let mut errors = Vec::new();
    if is_kind {
        errors.extend(metadata_rules::validate(&tree, kind.strategy.names));
        errors.extend(schema::validate(version.schema.root(), &tree));
        if let Some(paths) = scale_paths(kind, version) {
            errors.extend(scale::validate(paths, &tree));
        }
    } else {
        errors.push(wrong_kind(kind, &tree));
    }
    errors.extend(embedded::validate(version.schema.root(), &tree));
    errors.extend(schema::validate_list_types(version.schema.root(), &tree));
    rules.judge(&tree, None, &mut errors, warnings);
    errors.truncate(ERRORS_LIMIT);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&kind.group, &text(&tree, "kind"), &name, errors));
    }
    warnings.extend(metadata_rules::finalizer_warnings(&tree, None));
    let object = encode(&tree)?;
    let has_prefix = metadata::prefix(&tree).is_some();
    Ok((object, has_prefix))
}

/// Where the numbers of replicas are that are looked at for their own sake; the
/// rules of Kubernetes' own kinds do that themselves.
fn scale_paths<'a>(kind: &Kind, version: &'a Version) -> Option<&'a ScalePaths> {
    version.subresources.scale.as_ref().filter(|_| !kind.is_typed())
}

/// Rules that are written in Rust, and have prepared an object.
struct Asked<'a> {
    rules: Option<(&'a CodedRules, &'a RuleContext<'a>)>,
    /// Why they could not.
    unfit: Option<String>,
}

impl<'a> Asked<'a> {
    fn prepare(
        kind: &Kind,
        version: &Version,
        rules: Option<(&'a CodedRules, &'a RuleContext<'a>)>,
        tree: &mut Tree,
    ) -> Self {
        let prepared = rules.map_or(Ok(()), |(rules, context)| {
            // What counts for nothing, no rule sees.
            metadata::edit(tree, |metadata| {
                metadata.remove("managedFields");
            });
            rules.prepare(tree, context)
        });
        if rules.is_some() {
            kind.coerce_again(version, tree);
        }
        Self { rules, unfit: prepared.err() }
    }

    /// Asks them, once everything else is as it should be.
    fn judge(
        &self,
        tree: &Tree,
        old: Option<&Tree>,
        errors: &mut Vec<FieldError>,
        warnings: &mut Vec<String>,
    ) {
        let Some((rules, context)) = self.rules.filter(|_| errors.is_empty()) else { return };
        if let Some(why) = &self.unfit {
            errors.push(CodedRules::unfit(why));
            return;
        }
        let verdict = rules.judge(tree, old, context);
        errors.extend(verdict.errors);
        warnings.extend(verdict.warnings);
    }
}

/// Encodes a tree that was checked.
fn encode(tree: &Tree) -> Result<Object, ApiError> {
    encode_within(OBJECT_LIMIT, tree)
}

/// The same with another limit.
fn encode_within(limit: usize, tree: &Tree) -> Result<Object, ApiError> {
    let too_large = |what: String| {
        let message = format!("Request entity too large: {what}");
        Err(ApiError::new(Reason::RequestEntityTooLarge, message))
    };
    let extent = Extent::of(tree);
    if extent.depth > DEPTH_LIMIT {
        return too_large(format!("an object nests at most {DEPTH_LIMIT} levels deep"));
    }
    if extent.values > VALUES_LIMIT {
        return too_large(format!("an object holds at most {VALUES_LIMIT} values"));
    }
    let object = Object::from_tree(tree).map_err(ApiError::internal)?;
    if object.json_size() > limit {
        return too_large(format!("limit is {limit}"));
    }
    Ok(object)
}

/// What is wrong with an object of another kind.
fn wrong_kind(kind: &Kind, tree: &Tree) -> FieldError {
    let must = format!("must be {}", kind.names.kind);
    FieldError::invalid("kind", quote(&text(tree, "kind")), &must)
}

/// Prepares an object that a new store begins with; it keeps its own uid, and
/// its status.
///
/// # Errors
/// What is wrong with it.
pub fn prepare_initial(
    kind: &Kind,
    version: &Version,
    tree: Tree,
    context: Option<&RuleContext<'_>>,
    ambient: &Ambient,
) -> Result<Object, ApiError> {
    let text = |field: &str| {
        let metadata = tree.get("metadata").and_then(Value::as_object);
        metadata.and_then(|metadata| metadata.get(field)?.as_str()).map(str::to_owned)
    };
    let namespace = text("namespace");
    let uid = text("uid");
    let status = tree.get("status").filter(|_| version.subresources.status).cloned();
    if namespace.is_some() != kind.is_namespaced() {
        let scope = if kind.is_namespaced() { "must be set" } else { "must not be set" };
        return Err(ApiError::bad_request(format!("metadata.namespace: {scope}")));
    }
    let submitted = Submitted { tree, duplicates: Vec::new() };
    let strict = FieldValidation::Strict;
    let decoded = decode_new(kind, version, namespace.as_deref(), submitted, strict)?;
    let initial = Initial { uid };
    let prepared = prepare_made(kind, version, decoded, context, ambient, Some(&initial))?;
    if kind.is_typed() {
        return Ok(prepared.object);
    }
    let mut tree = prepared.object.to_tree();
    if let Some(uid) = &initial.uid {
        give_uid(&mut tree, uid);
    }
    tree.extend(status.map(|status| ("status".to_owned(), status)));
    let mut errors = schema::validate_status(version.schema.root(), &tree, &Tree::new());
    if let Some(paths) = scale_paths(kind, version) {
        errors.extend(scale::validate_status(paths, &tree));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid(
            &kind.group,
            &kind.names.kind,
            metadata::name(&tree),
            errors,
        ));
    }
    encode(&tree)
}

fn give_uid(tree: &mut Tree, uid: &str) {
    metadata::edit(tree, |metadata| {
        metadata.insert("uid".to_owned(), uid.into());
    });
}

/// Fills in the namespace of the path; another one is refused.
fn check_namespace(tree: &mut Tree, namespace: Option<&str>) -> Result<(), ApiError> {
    let given = tree.get("metadata").and_then(|metadata| metadata["namespace"].as_str());
    if namespace.is_some() && given.is_some() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata::edit(tree, |metadata| {
        match namespace {
            Some(namespace) => metadata.insert("namespace".to_owned(), namespace.into()),
            None => metadata.remove("namespace"),
        };
    });
    Ok(())
}

fn text(tree: &Tree, field: &str) -> String {
    tree.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
