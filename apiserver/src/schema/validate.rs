//! Holds an object against its schema, with kube-apiserver's words.

use std::cmp::Ordering;

use serde_json::Value;

use super::node::{Additional, Constraints, JsonType, Type};
use super::unchanged::is_unchanged;
use super::{is_of_format, junctors, list_types};
use crate::error::{FieldError, Path, go_float, quote};
use crate::object::{Tree, to_json};

/// Beyond it a float skips whole numbers, and is taken for none.
const LARGEST_WHOLE_FLOAT: f64 = 9_007_199_254_740_991.0;

/// What of an object no schema describes, but for names.
const CHECKED_ELSEWHERE: [&str; 1] = ["metadata"];

/// What is wrong with an object, member by member. `metadata` is checked elsewhere.
pub fn validate(of: Type<'_>, tree: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    members(of, tree, None, &Path::Root, &CHECKED_ELSEWHERE, &mut errors);
    names(of, tree, None, &mut errors);
    validate_junctors(of, tree, &mut errors);
    errors
}

/// The same of an object in place of an old one: what was wrong before and is
/// as it was, may stay. What a definition demands anew must not lock its
/// objects.
pub fn validate_change(of: Type<'_>, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    members(of, tree, Some(old), &Path::Root, &CHECKED_ELSEWHERE, &mut errors);
    names(of, tree, Some(old), &mut errors);
    validate_junctors(of, tree, &mut errors);
    errors
}

/// The same of names, of which alone a schema may say more than ObjectMeta does.
fn names(of: Type<'_>, tree: &Tree, old: Option<&Tree>, errors: &mut Vec<FieldError>) {
    let metadata = of.member("metadata").zip(tree.get("metadata"));
    let Some(((_, of), Value::Object(metadata))) = metadata else { return };
    let old = old.and_then(|old| old.get("metadata"));
    for (name, member) in of.members.iter() {
        if let Some(value) = metadata.get(name) {
            let path = Path::Member(&Path::Root, "metadata");
            let old = old.and_then(|old| old.get(name));
            node(of.at(&member.of), value, old, &Path::Member(&path, name), errors);
        }
    }
}

/// The same by schemas that judge the whole object together.
fn validate_junctors(of: Type<'_>, tree: &Tree, errors: &mut Vec<FieldError>) {
    if let Some(constraints) = of.constraints()
        && !constraints.junctors.is_empty()
    {
        let (value, path) = (Value::Object(tree.clone()), Path::Root);
        junctors::validate(of, &constraints.junctors, &value, &path, errors);
    }
}

/// The same of the status alone. Messages speak of it as if it were all.
pub fn validate_status(of: Type<'_>, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Some((_, of)), Some(status)) = (of.member("status"), tree.get("status")) {
        node(of, status, old.get("status"), &Path::Root, &mut errors);
    }
    errors.into_iter().map(|error| error.below("status")).collect()
}

fn members(
    of: Type<'_>,
    tree: &Tree,
    old: Option<&Tree>,
    path: &Path<'_>,
    skipped: &[&str],
    errors: &mut Vec<FieldError>,
) {
    // What Go has read is of its type, and nothing else is demanded here.
    if of.go.is_some() {
        return;
    }
    for name in of.constraints().into_iter().flat_map(|constraints| &constraints.required) {
        if !tree.contains_key(name) {
            errors.push(FieldError::required(Path::Member(path, name), ""));
        }
    }
    for (name, value) in tree {
        if skipped.contains(&name.as_str()) {
            continue;
        }
        let member = match (of.of_member(name), &of.additional) {
            (Some(member), _) => member,
            (None, Additional::Forbidden) if errors.len() >= super::ERRORS_LIMIT => return,
            (None, Additional::Forbidden) => {
                let detail =
                    format!("{} in body is a forbidden property", Path::Member(path, name));
                errors.push(FieldError::invalid(path, quote(name), &detail));
                continue;
            }
            (None, _) => continue,
        };
        // Which version it is written in is never as it was.
        let is_type = matches!(path, Path::Root) && ["apiVersion", "kind"].contains(&&**name);
        let old = old.filter(|_| !is_type).and_then(|old| old.get(name));
        node(member, value, old, &Path::Member(path, name), errors);
    }
}

/// What is wrong with a value of a type, which stands at `path`.
pub fn node(
    of: Type<'_>,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    // What Go has read is of its type.
    if errors.len() >= super::ERRORS_LIMIT || of.go.is_some() {
        return;
    }
    if old.is_some_and(|old| is_unchanged(of, old, value)) {
        return;
    }
    let constraints = of.constraints();
    if let Some(allowed) = constraints.and_then(|constraints| constraints.enumeration.as_ref())
        && !allowed.iter().any(|one| is_one(one, value))
    {
        let supported: Vec<String> = allowed.iter().map(plain).collect();
        errors.push(FieldError::not_supported(path, show(value), &supported));
    }
    if value.is_null() && of.nullable {
        return;
    }
    check_type(of, value, path, errors);
    match value {
        Value::Object(tree) => {
            constraints.inspect(|more| member_count(more, tree.len(), path, errors));
            members(of, tree, old.and_then(Value::as_object), path, &[], errors);
        }
        Value::Array(items) => list(of, items, old.and_then(Value::as_array), path, errors),
        Value::String(text) => string(of, text, path, errors),
        Value::Number(_) => number(of, value, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
    if let Some(constraints) = constraints
        && !constraints.junctors.is_empty()
    {
        junctors::validate(of, &constraints.junctors, value, path, errors);
    }
}

fn check_type(of: Type<'_>, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if of.int_or_string {
        if !(is_of_type(value, JsonType::Integer) || value.is_string()) {
            let found = quote(type_name(value));
            let detail = format!("{path} in body must be of type integer,string: {found}");
            errors.push(FieldError::type_invalid(path, found, &detail));
        }
    } else if let Some(json_type) = of.json_type
        && !is_of_type(value, json_type)
    {
        if json_type == JsonType::Integer && value.is_number() {
            fraction(of.format.as_deref(), path, errors);
        } else {
            let found = quote(type_name(value));
            let detail = format!("{path} in body must be of type {}: {found}", json_type.name());
            errors.push(FieldError::type_invalid(path, found, &detail));
        }
    }
    if of.format.as_deref() == Some("int32")
        && is_of_type(value, JsonType::Integer)
        && value.as_f64().is_some_and(|n| n < f64::from(i32::MIN) || n > f64::from(i32::MAX))
    {
        let detail = format!("Checked value must be of type integer with format int32 in {path}");
        errors.push(FieldError::invalid("<nil>", "\"\"", &detail));
    }
}

/// What is said of a fraction where there should be none: two errors, whose
/// words depend on the format.
fn fraction(format: Option<&str>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (found, expected, of_format) = match format {
        Some(format @ ("int32" | "int64")) => ("float64", format, format!("with format {format}")),
        _ => ("number", "integer", "(default format)".to_owned()),
    };
    let found = quote(found);
    let detail = format!("{path} in body must be of type {expected}: {found}");
    errors.push(FieldError::type_invalid(path, &found, &detail));
    let detail = format!("Checked value must be of type integer {of_format} in {path}");
    errors.push(FieldError::invalid("<nil>", "\"\"", &detail));
}

fn list(
    of: Type<'_>,
    items: &[Value],
    old: Option<&Vec<Value>>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let count = items.len() as u64;
    match of.constraints().map(|constraints| constraints.item_count).unwrap_or_default() {
        (_, Some(most)) if count > most => {
            errors.push(FieldError::too_many(path, items.len(), most));
        }
        (Some(fewest), _) if count < fewest => {
            let detail = format!("{path} in body should have at least {fewest} items");
            errors.push(FieldError::invalid(path, count, &detail));
        }
        _ => {}
    }
    if let Some(of_item) = of.of_items() {
        // Which item was which before, only a key can tell.
        let before = list_types::by_key(&of.list_type, old);
        for (index, item) in items.iter().enumerate() {
            let old = before.of(item);
            node(of_item, item, old, &Path::Item(path, index), errors);
        }
    }
}

fn member_count(
    constraints: &Constraints,
    count: usize,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    match constraints.member_count {
        (_, Some(most)) if count as u64 > most => {
            errors.push(FieldError::too_many(path, count, most));
        }
        (Some(fewest), _) if (count as u64) < fewest => {
            let detail = format!("{path} in body should have at least {fewest} properties");
            errors.push(FieldError::invalid(path, count, &detail));
        }
        _ => {}
    }
}

fn string(of: Type<'_>, text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let count = text.chars().count() as u64;
    // Of these only the first is told.
    let constraints = of.constraints();
    let length = constraints.map(|constraints| constraints.length).unwrap_or_default();
    let pattern = constraints.and_then(|constraints| constraints.pattern.as_ref());
    match (length, pattern) {
        ((_, Some(longest)), _) if count > longest => {
            errors.push(FieldError::too_long(path, longest));
        }
        ((Some(shortest), _), _) if count < shortest => {
            let detail = format!("{path} in body should be at least {shortest} chars long");
            errors.push(FieldError::invalid(path, quote(text), &detail));
        }
        (_, Some(pattern)) if !pattern.is_match(text) => {
            let detail = format!("{path} in body should match '{pattern}'");
            errors.push(FieldError::invalid(path, quote(text), &detail));
        }
        _ => {}
    }
    if let Some(format) = &of.format
        && !is_of_format(format, text)
    {
        let found = quote(text);
        let detail = format!("{path} in body must be of type {format}: {found}");
        errors.push(FieldError::type_invalid(path, found, &detail));
    }
}

/// Whole numbers are held against the whole part of a bound, others as they are.
fn number(of: Type<'_>, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_f64() else { return };
    let constraints = of.constraints();
    let whole = value.as_i64();
    if let Some(factor) = constraints.and_then(|constraints| constraints.multiple_of) {
        let factor = if whole.is_some() { factor.trunc() } else { factor };
        let is_multiple = match whole {
            Some(whole) => whole.checked_rem(truncated(factor)) == Some(0),
            None if factor < 1.0 => is_nearly_whole(1.0 / factor * number),
            None => is_nearly_whole(number / factor),
        };
        if factor <= 0.0 {
            let factor = go_float(factor);
            let detail =
                format!("factor MultipleOf declared for {path} must be positive: {factor}");
            errors.push(FieldError::invalid(path, factor, &detail));
        } else if !is_multiple {
            let factor = go_float(factor);
            let detail = format!("{path} in body should be a multiple of {factor}");
            errors.push(FieldError::invalid(path, show(value), &detail));
        }
    }
    if of.format.as_deref() == Some("float") && number.abs() > f64::from(f32::MAX) {
        let detail = format!("Checked value must be of type number with format float in {path}");
        errors.push(FieldError::invalid("<nil>", "\"\"", &detail));
    }
    let against = |bound: f64| match whole {
        Some(whole) => (whole.cmp(&truncated(bound)), truncated(bound).to_string()),
        None => (number.total_cmp(&bound), go_float(bound)),
    };
    let mut refuse = |relation: &str, bound: &str| {
        let detail = format!("{path} in body should be {relation} {bound}");
        errors.push(FieldError::invalid(path, show(value), &detail));
    };
    if let Some((bound, is_exclusive)) = constraints.and_then(|constraints| constraints.maximum) {
        match (against(bound), is_exclusive) {
            ((Ordering::Greater | Ordering::Equal, bound), true) => refuse("less than", &bound),
            ((Ordering::Greater, bound), false) => refuse("less than or equal to", &bound),
            _ => {}
        }
    }
    if let Some((bound, is_exclusive)) = constraints.and_then(|constraints| constraints.minimum) {
        match (against(bound), is_exclusive) {
            ((Ordering::Less | Ordering::Equal, bound), true) => refuse("greater than", &bound),
            ((Ordering::Less, bound), false) => refuse("greater than or equal to", &bound),
            _ => {}
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // it is what is wanted
fn truncated(number: f64) -> i64 {
    number as i64
}

/// Whether a value is one that is allowed; a number is converted to the type of
/// the allowed one first, as Go does it.
fn is_one(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Number(whole), Value::Number(number)) if whole.is_i64() && number.is_f64() => {
            whole.as_i64() == number.as_f64().map(truncated)
        }
        (Value::Number(float), Value::Number(number)) if float.is_f64() => {
            float.as_f64() == number.as_f64()
        }
        _ => allowed == value,
    }
}

/// As exact as binary fractions of decimal ones are.
fn is_nearly_whole(number: f64) -> bool {
    let whole = number.round();
    let difference = (number - whole).abs();
    number.is_finite()
        && number.abs() <= LARGEST_WHOLE_FLOAT
        && (difference == 0.0 || difference / (number.abs() + whole.abs()) < 1e-9)
}

fn is_of_type(value: &Value, json_type: JsonType) -> bool {
    match json_type {
        JsonType::Object => value.is_object(),
        JsonType::Array => value.is_array(),
        JsonType::String => value.is_string(),
        JsonType::Boolean => value.is_boolean(),
        JsonType::Number => value.is_number(),
        JsonType::Integer => {
            let is_whole = |n: f64| n.fract() == 0.0 && n.abs() <= LARGEST_WHOLE_FLOAT;
            value.is_i64() || (value.is_f64() && value.as_f64().is_some_and(is_whole))
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as messages show it.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        other => to_json(other),
    }
}

/// A supported value, which messages quote whatever it is.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => show(other),
    }
}
