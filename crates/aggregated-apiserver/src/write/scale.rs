//! The `scale` subresource: the number of replicas of an object, for every kind that has one.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::attributes::Attributes;
use super::draft::{Draft, Submitted};
use super::live::{Live, set_revision};
use super::patch::unfit_patch;
use super::{FieldValidation, SubmittedPatch};
use crate::admission::Form;
use crate::error::{ApiError, FieldError, Reason, go_type, go_value, no_object, quote};
use crate::kind::{FieldPath, Kind, ScalePaths, Version};
use crate::object::{Object, Tree, metadata, to_json};
use crate::quota::Room;
use crate::schema::{Malformed, coerce_metadata};
use crate::storage::Versioned;

pub(super) const GROUP_VERSION: &str = "autoscaling/v1";
pub(super) const KIND: &str = "Scale";
const MOST: i64 = i32::MAX as i64;

/// Returns the errors of the fields that `scale` reads, in an object of a kind that has it.
pub(super) fn validate(paths: &ScalePaths, tree: &Tree) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        [&paths.spec_replicas].into_iter().filter_map(|path| replicas(tree, path).err()).collect();
    errors.extend(validate_status(paths, tree));
    errors
}

/// Returns the errors of the fields that `scale` reads below `status`.
pub(super) fn validate_status(paths: &ScalePaths, tree: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(replicas(tree, &paths.status_replicas).err());
    if let Some(path) = &paths.label_selector
        && let Err(why) = nested(tree, path, Value::is_string, "string")
    {
        errors.push(FieldError::invalid(path.text(), "\"\"", &why));
    }
    errors
}

/// Rejects a Scale of one of Kubernetes' own kinds with a negative number of replicas.
///
/// # Errors
/// 422 with an error about the Scale.
pub(super) fn check(paths: &ScalePaths, tree: &Tree) -> Result<(), ApiError> {
    let found = nested(tree, &paths.spec_replicas, Value::is_i64, "int64");
    let Some(wanted) = found.ok().flatten().and_then(Value::as_i64).filter(|wanted| *wanted < 0)
    else {
        return Ok(());
    };
    let why = "must be greater than or equal to 0";
    let fault = FieldError::invalid("spec.replicas", wanted, why);
    Err(ApiError::invalid("autoscaling", KIND, metadata::name(tree), vec![fault]))
}

/// The number at a path, if there is one.
fn replicas(tree: &Tree, path: &FieldPath) -> Result<Option<i64>, FieldError> {
    let invalid = |value: i64, why: &str| FieldError::invalid(path.text(), value, why);
    let found = nested(tree, path, Value::is_i64, "int64").map_err(|why| invalid(0, &why))?;
    match found.and_then(Value::as_i64) {
        Some(number) if number < 0 => Err(invalid(number, "should be a non-negative integer")),
        Some(number) if number > MOST => {
            Err(invalid(number, &format!("should be less than or equal to {MOST}")))
        }
        number => Ok(number),
    }
}

/// The value at a path. The error for a value of another type is that of Go.
fn nested<'a>(
    tree: &'a Tree,
    path: &FieldPath,
    is_wanted: fn(&Value) -> bool,
    wanted: &str,
) -> Result<Option<&'a Value>, String> {
    let steps: Vec<&str> = path.steps().collect();
    let mut members = tree;
    for (index, step) in steps.iter().enumerate() {
        let Some(value) = members.get(*step) else { return Ok(None) };
        let mismatch = |accessed: usize, expected: &str| {
            let shown = format!(".{}", steps[..=accessed].join("."));
            let (plain, found) = (go_value(value), go_value_type(value));
            Err(format!(
                "{shown} accessor error: {plain} is of the type {found}, expected {expected}"
            ))
        };
        if index + 1 == steps.len() {
            return if is_wanted(value) { Ok(Some(value)) } else { mismatch(index, wanted) };
        }
        match value {
            Value::Object(found) => members = found,
            Value::Null => return Ok(None),
            _ => return mismatch(index + 1, "map[string]interface{}"),
        }
    }
    Ok(None)
}

fn go_value_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The desired number of replicas of an object, if it is set.
///
/// # Errors
/// 500 if the value is not a valid number of replicas.
pub(super) fn wanted(paths: &ScalePaths, tree: &Tree) -> Result<Option<i64>, ApiError> {
    replicas(tree, &paths.spec_replicas).map_err(|error| internal(&error))
}

/// The paths of the Scale in objects of the version of the request.
///
/// # Errors
/// 404 if the version has no `scale` subresource.
pub(super) fn paths<'a>(attributes: &Attributes<'a>) -> Result<&'a ScalePaths, ApiError> {
    paths_of(attributes.kind(), attributes.version)
}

fn paths_of<'a>(kind: &Kind, version: &'a Version) -> Result<&'a ScalePaths, ApiError> {
    let paths = version.subresources.scale.as_ref();
    paths.ok_or_else(|| ApiError::not_found(&kind.group, &kind.names.plural, "scale"))
}

/// The Scale of a stored object, at its revision.
///
/// # Errors
/// 500 if the desired number of replicas is not set.
pub fn scale_of(
    kind: &Kind,
    version: &Version,
    versioned: &Versioned,
) -> Result<Versioned, ApiError> {
    let tree = kind.in_version(&versioned.object, version)?.to_tree();
    let object = Arc::new(scale_of_tree(paths_of(kind, version)?, &tree)?);
    Ok(Versioned { revision: versioned.revision, object })
}

/// The Scale of an object.
///
/// # Errors
/// 500 if the desired number of replicas is not set.
pub(super) fn scale_of_tree(paths: &ScalePaths, tree: &Tree) -> Result<Object, ApiError> {
    let wanted = replicas(tree, &paths.spec_replicas).map_err(|error| internal(&error))?;
    let Some(wanted) = wanted else {
        let path = quote(paths.spec_replicas.text());
        return Err(ApiError::internal(format!("the spec replicas field {path} does not exist")));
    };
    Object::from_tree(&scale_tree(paths, tree, wanted)?).map_err(ApiError::internal)
}

impl Form for ScalePaths {
    fn kind(&self) -> (&'static str, &'static str, &'static str) {
        ("autoscaling", "v1", KIND)
    }

    fn of(&self, object: &Tree) -> Result<Tree, ApiError> {
        scale_tree(self, object, wanted(self, object)?.unwrap_or_default())
    }

    fn take_over(&self, object: &mut Tree, changed: &Tree) {
        let replicas = changed.get("spec").and_then(|spec| spec.get("replicas"));
        set_replicas(object, self, replicas.and_then(Value::as_i64).unwrap_or_default());
    }
}

fn internal(error: &FieldError) -> ApiError {
    ApiError::internal(error.to_string())
}

fn scale_tree(paths: &ScalePaths, tree: &Tree, wanted: i64) -> Result<Tree, ApiError> {
    let there = replicas(tree, &paths.status_replicas).map_err(|error| internal(&error))?;
    let mut scale = json!({
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "metadata": {},
        "spec": {},
        "status": {"replicas": there.unwrap_or_default()},
    });
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        if let Some(value) = metadata::of(tree).get(field) {
            scale["metadata"][field] = value.clone();
        }
    }
    if wanted != 0 {
        scale["spec"]["replicas"] = wanted.into();
    }
    if let Some(path) = &paths.label_selector
        && let Ok(Some(selector @ Value::Object(_))) =
            nested(tree, path, Value::is_object, "object")
    {
        // The selector of Kubernetes' own kinds is an object.
        let selector = selector_text(selector);
        if !selector.is_empty() {
            scale["status"]["selector"] = selector.into();
        }
    }
    if let Some(path) = &paths.label_selector
        && let Ok(Some(Value::String(selector))) = nested(tree, path, Value::is_string, "string")
        && !selector.is_empty()
    {
        scale["status"]["selector"] = selector.clone().into();
    }
    match scale {
        Value::Object(scale) => Ok(scale),
        _ => Ok(Tree::new()),
    }
}

/// A label selector as a string: `app=web,tier in (a,b)`.
fn selector_text(selector: &Value) -> String {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    // A selector of an older kind, without expressions, is a plain map of labels.
    let is_plain = |members: &&Tree| members.values().all(Value::is_string);
    let plain = selector.as_object().filter(is_plain);
    let labels = plain.or_else(|| selector["matchLabels"].as_object()).into_iter().flatten();
    let mut terms: Vec<(String, String)> = labels
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for term in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = text(term, "key");
        let mut values: Vec<&str> =
            term["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(term, "operator").as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        terms.push((key, shown));
    }
    terms.sort();
    terms.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(",")
}

/// The error for a body that is not a Scale: 400.
pub fn no_scale() -> ApiError {
    let message =
        "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"";
    ApiError::bad_request(message)
}

/// A Scale that a client has sent, or that results from a patch.
#[derive(Clone, Debug)]
pub struct SubmittedScale {
    /// The metadata, with the name and the resourceVersion of the object.
    metadata: Map<String, Value>,
    replicas: i64,
    warnings: Vec<String>,
}

impl SubmittedScale {
    /// Reads the Scale of an update. A missing `replicas` means 0.
    ///
    /// # Errors
    /// 400 if the body is not a Scale.
    pub fn submitted(
        submitted: Submitted,
        field_validation: FieldValidation,
    ) -> Result<Self, ApiError> {
        let Submitted { tree, duplicates, .. } = submitted;
        read(tree, duplicates, field_validation).map_err(|_| no_scale())
    }

    /// Applies a patch to the Scale of an object.
    ///
    /// # Errors
    /// 422 if the patch cannot be applied or its result is not a Scale; 400 if neither the object nor the patch sets
    /// the number of replicas.
    pub fn patched(
        paths: &ScalePaths,
        live: &Live,
        patch: &SubmittedPatch,
        field_validation: FieldValidation,
        room: &mut Room,
    ) -> Result<Self, ApiError> {
        let current = replicas(&live.tree, &paths.spec_replicas).map_err(|e| internal(&e))?;
        let mut scale = scale_tree(paths, &live.tree, current.unwrap_or_default())?;
        set_revision(&mut scale, &live.revision);
        let patched = patch.patch.apply(scale, room)?;
        let shown = to_json(&patched);
        let unfit = |why: &str| unfit_patch(&shown, why);
        let Value::Object(tree) = patched else { return Err(unfit(&no_object(&patched))) };
        let is_said = tree.get("spec").is_some_and(|spec| !spec["replicas"].is_null());
        let submitted =
            read(tree, patch.problems.clone(), field_validation).map_err(|why| unfit(&why))?;
        if current.is_none() && !is_said {
            return Err(unsaid(paths));
        }
        Ok(submitted)
    }

    /// The metadata in an otherwise empty object.
    pub fn as_object(&self) -> Tree {
        let mut tree = Tree::new();
        tree.insert("metadata".to_owned(), self.metadata.clone().into());
        tree
    }

    /// The object with these replicas. A missing resourceVersion means an unconditional update.
    pub fn applied_to(&self, paths: &ScalePaths, live: &Live) -> Draft {
        let mut tree = live.with_revision();
        let given = self.metadata.get("resourceVersion").and_then(Value::as_str);
        if let Some(given) = given.filter(|given| !given.is_empty()) {
            set_revision(&mut tree, given);
        }
        set_replicas(&mut tree, paths, self.replicas);
        Draft::new(tree, true, self.warnings.clone())
    }
}

fn read(
    mut tree: Tree,
    mut problems: Vec<String>,
    field_validation: FieldValidation,
) -> Result<SubmittedScale, String> {
    for (field, expected) in [("kind", KIND), ("apiVersion", GROUP_VERSION)] {
        let given = super::text(&tree, field);
        if !given.is_empty() && given != expected {
            return Err(format!("{field} is {given}, not {expected}"));
        }
    }
    let unknown = coerce_metadata(&mut tree, Malformed::Refused)?;
    let spec = tree.get("spec").unwrap_or(&Value::Null);
    let replicas = match spec {
        Value::Null => 0,
        Value::Object(spec) => match spec.get("replicas") {
            None | Some(Value::Null) => 0,
            Some(value) => value
                .as_i64()
                .filter(|number| i32::try_from(*number).is_ok())
                .ok_or_else(|| mismatch(value, "ScaleSpec.spec.replicas", "int32"))?,
        },
        other => return Err(mismatch(other, "Scale.spec", "v1.ScaleSpec")),
    };
    problems.extend(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")));
    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
    let odd = tree.keys().filter(|key| !known.contains(&key.as_str()));
    problems.extend(odd.map(|key| format!("unknown field \"{key}\"")));
    let odd = spec.as_object().into_iter().flatten().filter(|(key, _)| *key != "replicas");
    problems.extend(odd.map(|(key, _)| format!("unknown field \"spec.{key}\"")));
    let warnings = super::field_validation::report(field_validation, problems, Vec::new())
        .map_err(|problems| format!("strict decoding error: {problems}"))?;
    Ok(SubmittedScale { metadata: metadata::of(&tree).clone(), replicas, warnings })
}

fn mismatch(found: &Value, field: &str, expected: &str) -> String {
    let found = go_type(found);
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {expected}")
}

/// The error if neither the object nor the request sets the number of replicas: 400.
pub(super) fn unsaid(paths: &ScalePaths) -> ApiError {
    let path = quote(paths.spec_replicas.text());
    let message = format!("the spec replicas field {path} cannot be empty");
    ApiError::new(Reason::BadRequest, message)
}

/// The replicas of a Scale that is not converted to its Go type yet.
///
/// # Errors
/// The message of Go's converter for a fraction.
pub(super) fn replicas_of(scale: &Tree) -> Result<Option<i64>, String> {
    let replicas = scale.get("spec").map_or(&Value::Null, |spec| &spec["replicas"]);
    match (replicas.as_i64(), replicas.as_f64()) {
        (Some(whole), _) => Ok(Some(whole)),
        (None, Some(float)) if float.fract() != 0.0 => {
            Err("cannot convert float64 to int32".to_owned())
        }
        // The number is no int32, which validation reports.
        (None, Some(float)) => Ok(Some(if float < 0.0 { i64::MIN } else { i64::MAX })),
        (None, None) => Ok(None),
    }
}

/// Sets the desired number of replicas of an object.
pub(super) fn set_replicas(tree: &mut Tree, paths: &ScalePaths, replicas: i64) {
    set(tree, paths.spec_replicas.steps().collect::<Vec<_>>().as_slice(), replicas);
}

fn set(tree: &mut Tree, steps: &[&str], replicas: i64) {
    let Some((first, rest)) = steps.split_first() else { return };
    if rest.is_empty() {
        tree.insert((*first).to_owned(), replicas.into());
        return;
    }
    let member = tree.entry(*first).or_insert_with(|| Map::new().into());
    if !member.is_object() {
        *member = Map::new().into();
    }
    if let Value::Object(member) = member {
        set(member, rest, replicas);
    }
}
