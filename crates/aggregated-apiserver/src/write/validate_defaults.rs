//! Validates the defaults of a schema against the schema, because an invalid default would make every object invalid.

use serde_json::{Value, json};

use super::embedded;
use crate::error::{FieldError, Path};
use crate::object::{Tree, to_json};
use crate::schema::{
    ERRORS_LIMIT, Faults, Schema, Type, judge_default, normalize_embedded_metadata,
    normalize_numbers, prune_value, validate_value,
};

/// The name of a default in paths of errors.
const FIELD: &str = "default";

/// Returns the errors of the defaults in a schema, each with its path. `of_root` is the default of the whole object.
/// Same as in kube-apiserver, the defaults of additional properties are not checked.
pub fn validate_defaults(schema: &Schema, of_root: Option<&Value>) -> Vec<String> {
    let (mut faults, mut work) = (Vec::new(), Faults::new());
    if let Some(default) = of_root {
        let default = normalize_numbers(default);
        let of_names = default.as_object().map(embedded::validate_resource).unwrap_or_default();
        let found = match of_names.is_empty() {
            true => of_default((schema.root(), true), &default, &mut work),
            false => of_names
                .into_iter()
                .map(|fault| fault.with_field(|field| format!("{FIELD}{field}")))
                .collect(),
        };
        faults.extend(found.into_iter().map(|error| error.below("")));
    }
    collect(schema.root(), "", &Surroundings::Unknown, (&mut faults, &mut work));
    faults.extend(work.into_errors());
    faults.iter().map(ToString::to_string).collect()
}

/// The position of a default within the resource that contains it.
enum Surroundings<'a> {
    /// No resource contains the default, or the default is not part of the names or the metadata of the resource.
    Unknown,
    /// The resource itself.
    Resource,
    /// A field of an object.
    Member(&'a Surroundings<'a>, &'a str),
    /// An element of a list.
    Item(&'a Surroundings<'a>),
}

impl Surroundings<'_> {
    /// The smallest resource with this value at this position.
    fn with(&self, value: Value) -> Option<Tree> {
        match self {
            Self::Unknown => None,
            Self::Resource => {
                let Value::Object(mut tree) = value else { return None };
                tree.entry("apiVersion").or_insert_with(|| "validation/v1".into());
                tree.entry("kind").or_insert_with(|| "Validation".into());
                Some(tree)
            }
            Self::Member(around, name) => around.with(json!({ *name: value })),
            Self::Item(around) => around.with(json!([value])),
        }
    }
}

fn collect(
    of: Type<'_>,
    path: &str,
    around: &Surroundings<'_>,
    (faults, work): (&mut Vec<FieldError>, &mut Faults),
) {
    if !of.subtree.defaults || faults.len() >= ERRORS_LIMIT {
        return;
    }
    let around = if of.embedded { &Surroundings::Resource } else { around };
    let mut check =
        |of: Type<'_>, default: Option<&Value>, path: &str, around: &Surroundings<'_>| {
            if faults.len() >= ERRORS_LIMIT {
                return;
            }
            if let Some(default) = default {
                let default = normalize_numbers(default);
                let resource = if of.embedded { None } else { around.with(default.clone()) };
                let found = match resource {
                    Some(resource) => of_names(of, &default, &resource, work),
                    None => of_default((of, of.embedded), &default, work),
                };
                faults.extend(found.into_iter().map(|error| error.below(path)));
            }
            collect(of, path, around, (faults, work));
        };
    for (name, member) in of.members.iter() {
        let around = match around {
            Surroundings::Unknown => &Surroundings::Unknown,
            Surroundings::Resource if !is_meta(name) => &Surroundings::Unknown,
            around => &Surroundings::Member(around, name),
        };
        let path = format!("{path}.properties[{name}]");
        check(of.at(&member.of), member.default.as_ref(), &path, around);
    }
    if let Some(items) = of.of_items() {
        let around = match around {
            Surroundings::Unknown | Surroundings::Resource => &Surroundings::Unknown,
            around => &Surroundings::Item(around),
        };
        check(items, of.default_of_element.as_ref(), &format!("{path}.items"), around);
    }
}

/// Returns the errors of a default that is part of the names or the metadata of a resource, which no schema describes.
fn of_names(of: Type<'_>, default: &Value, resource: &Tree, work: &mut Faults) -> Vec<FieldError> {
    let found = embedded::validate_resource(resource);
    if found.is_empty() {
        return of_schema(of, default, work);
    }
    // The paths of these errors start with a dot.
    let texts = found.iter().map(|fault| fault.to_string().trim_start_matches('.').to_owned());
    let mut texts: Vec<String> = texts.collect();
    texts.dedup();
    let why = match texts.as_slice() {
        [why] => why.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let why = format!("must result in valid metadata: {why}");
    vec![FieldError::invalid(FIELD, to_json(default), &why)]
}

fn of_default(
    (of, is_resource): (Type<'_>, bool),
    default: &Value,
    work: &mut Faults,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut pruned = default.clone();
    let unknown = prune_value(of, &mut pruned);
    if unknown.iter().any(|name| !(is_resource && is_meta(name.trim_start_matches('.')))) {
        errors.push(FieldError::invalid(FIELD, to_json(default), "must not have unknown fields"));
    }
    let path = Path::Member(&Path::Root, FIELD);
    if let Err(error) = normalize_embedded_metadata(of, &mut pruned, &path) {
        errors.push(error);
        return errors;
    }
    let of_embedded = embedded::validate_value(of, default, &path);
    if !of_embedded.is_empty() {
        errors.extend(of_embedded);
        return errors;
    }
    errors.extend(of_schema(of, default, work));
    errors
}

/// Returns the errors of a default according to its schema and its rules.
fn of_schema(of: Type<'_>, default: &Value, work: &mut Faults) -> Vec<FieldError> {
    if of.int_or_string {
        // kube-apiserver does not validate these defaults.
        return Vec::new();
    }
    let held = work.held();
    let found = work.beside(|faults| validate_value(of, default, None, &Path::Root, faults));
    work.release(held);
    if found.is_empty() {
        return judge_default(of, default, &Path::Member(&Path::Root, FIELD));
    }
    let found = found.into_iter().map(|error| {
        error.with_field(|field| match field {
            "" | "<nil>" => FIELD.to_owned(),
            field => format!("{FIELD}.{field}"),
        })
    });
    found.collect()
}

/// Whether every resource has a field of this name.
fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}
