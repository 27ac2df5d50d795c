//! Holds an object against its schema, with kube-apiserver's words.

use std::cmp::Ordering;

use serde_json::Value;

use super::faults::Faults;
use super::node::{Additional, Constraints, JsonType, Type};
use super::unchanged::is_unchanged;
use super::{Pattern, is_of_format, junctors, list_types};
use crate::error::{FieldError, Path, go_float, quote};
use crate::object::{Tree, to_json};

/// Beyond it a float skips whole numbers, and is taken for none.
const LARGEST_WHOLE_FLOAT: f64 = 9_007_199_254_740_991.0;

/// What of an object no schema describes, but for names.
const CHECKED_ELSEWHERE: [&str; 1] = ["metadata"];

/// What is wrong with an object, member by member. `metadata` is checked elsewhere.
pub fn validate(of: Type<'_>, tree: &Tree) -> Vec<FieldError> {
    let mut faults = Faults::new();
    validate_whole(of, tree, None, &mut faults);
    members(of, tree, None, &Path::Root, &CHECKED_ELSEWHERE, &mut faults);
    names(of, tree, None, &mut faults);
    validate_junctors(of, tree, &mut faults);
    faults.into_errors().into_iter().map(FieldError::of_whole).collect()
}

/// The same of an object in place of an old one: what was wrong before and is
/// as it was, may stay. What a definition demands anew must not lock its
/// objects.
pub fn validate_change(of: Type<'_>, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut faults = Faults::new();
    validate_whole(of, tree, Some(old), &mut faults);
    members(of, tree, Some(old), &Path::Root, &CHECKED_ELSEWHERE, &mut faults);
    names(of, tree, Some(old), &mut faults);
    validate_junctors(of, tree, &mut faults);
    faults.into_errors().into_iter().map(FieldError::of_whole).collect()
}

/// What is wrong with a whole object, besides its members.
fn validate_whole(of: Type<'_>, tree: &Tree, old: Option<&Tree>, faults: &mut Faults) {
    let Some(constraints) = of.constraints().filter(|_| of.go.is_none()) else { return };
    if old == Some(tree) {
        return;
    }
    if let Some(allowed) = &constraints.enumeration {
        // It has a uid, a name and times, so that it is hardly ever one of them.
        validate_allowed(allowed, &Value::Object(tree.clone()), &Path::Root, faults);
    }
    member_count(constraints, tree.len(), &Path::Root, faults);
}

fn validate_allowed(allowed: &[Value], value: &Value, path: &Path<'_>, faults: &mut Faults) {
    if !is_allowed(allowed, value, faults) {
        let supported: Vec<String> = allowed.iter().map(plain).collect();
        faults.push(FieldError::not_supported(path, show(value), &supported));
    }
}

/// The same of names, of which alone a schema may say more than ObjectMeta does.
fn names(of: Type<'_>, tree: &Tree, old: Option<&Tree>, faults: &mut Faults) {
    let metadata = of.member("metadata").zip(tree.get("metadata"));
    let Some(((_, of), Value::Object(metadata))) = metadata else { return };
    let old = old.and_then(|old| old.get("metadata"));
    for (name, member) in of.members.iter() {
        if let Some(value) = metadata.get(name) {
            let path = Path::Member(&Path::Root, "metadata");
            let old = old.and_then(|old| old.get(name));
            node(of.at(&member.of), value, old, &Path::Member(&path, name), faults);
        }
    }
}

/// The same by schemas that judge the whole object together.
fn validate_junctors(of: Type<'_>, tree: &Tree, faults: &mut Faults) {
    if let Some(constraints) = of.constraints()
        && !constraints.junctors.is_empty()
    {
        let (value, path) = (Value::Object(tree.clone()), Path::Root);
        junctors::validate(of, &constraints.junctors, &value, &path, faults);
    }
}

/// The same of the status alone. Messages speak of it as if it were all.
pub fn validate_status(of: Type<'_>, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut faults = Faults::new();
    if let (Some((_, of)), Some(status)) = (of.member("status"), tree.get("status")) {
        node(of, status, old.get("status"), &Path::Root, &mut faults);
    }
    faults.into_errors().into_iter().map(|error| error.below("status")).collect()
}

fn members(
    of: Type<'_>,
    tree: &Tree,
    old: Option<&Tree>,
    path: &Path<'_>,
    skipped: &[&str],
    faults: &mut Faults,
) {
    // What Go has read is of its type, and nothing else is demanded here.
    if of.go.is_some() {
        return;
    }
    for name in of.constraints().into_iter().flat_map(|constraints| &constraints.required) {
        faults.spend(1);
        if faults.is_full() {
            return;
        }
        if !tree.contains_key(name) {
            faults.push(FieldError::required(Path::Member(path, name), ""));
        }
    }
    for (name, value) in tree {
        if skipped.contains(&name.as_str()) {
            continue;
        }
        let member = match (of.of_member(name), &of.additional) {
            (Some(member), _) => member,
            (None, Additional::Forbidden) if faults.is_full() => return,
            (None, Additional::Forbidden) => {
                let detail =
                    format!("{} in body is a forbidden property", Path::Member(path, name));
                faults.push(FieldError::invalid(path, quote(name), &detail));
                continue;
            }
            (None, _) => continue,
        };
        // Which version it is written in is never as it was.
        let is_type = matches!(path, Path::Root) && ["apiVersion", "kind"].contains(&&**name);
        let old = old.filter(|_| !is_type).and_then(|old| old.get(name));
        node(member, value, old, &Path::Member(path, name), faults);
    }
}

/// What is wrong with a value of a type, which stands at `path`.
pub fn node(
    of: Type<'_>,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    // What Go has read is of its type.
    faults.spend(1);
    if faults.is_full() || of.go.is_some() {
        return;
    }
    if old.is_some_and(|old| is_unchanged(of, old, value, faults)) {
        return;
    }
    let constraints = of.constraints();
    if let Some(allowed) = constraints.and_then(|constraints| constraints.enumeration.as_ref()) {
        validate_allowed(allowed, value, path, faults);
    }
    if value.is_null() && of.nullable {
        return;
    }
    check_type(of, value, path, faults);
    match value {
        Value::Object(tree) => {
            constraints.inspect(|more| member_count(more, tree.len(), path, faults));
            members(of, tree, old.and_then(Value::as_object), path, &[], faults);
        }
        Value::Array(items) => list(of, items, old.and_then(Value::as_array), path, faults),
        Value::String(text) => string(of, text, path, faults),
        Value::Number(_) => number(of, value, path, faults),
        Value::Null | Value::Bool(_) => {}
    }
    if let Some(constraints) = constraints
        && !constraints.junctors.is_empty()
    {
        junctors::validate(of, &constraints.junctors, value, path, faults);
    }
}

fn check_type(of: Type<'_>, value: &Value, path: &Path<'_>, faults: &mut Faults) {
    if of.int_or_string {
        if !(is_of_type(value, JsonType::Integer) || value.is_string()) {
            let found = quote(type_name(value));
            let detail = format!("{path} in body must be of type integer,string: {found}");
            faults.push(FieldError::type_invalid(path, found, &detail));
        }
    } else if let Some(json_type) = of.json_type
        && !is_of_type(value, json_type)
    {
        if json_type == JsonType::Integer && value.is_number() {
            fraction(of.format.as_deref(), path, faults);
        } else {
            let found = quote(type_name(value));
            let detail = format!("{path} in body must be of type {}: {found}", json_type.name());
            faults.push(FieldError::type_invalid(path, found, &detail));
        }
    }
    if of.format.as_deref() == Some("int32")
        && is_of_type(value, JsonType::Integer)
        && value.as_f64().is_some_and(|n| n < f64::from(i32::MIN) || n > f64::from(i32::MAX))
    {
        let detail = format!("Checked value must be of type integer with format int32 in {path}");
        faults.push(FieldError::invalid("<nil>", "\"\"", &detail));
    }
}

/// What is said of a fraction where there should be none: two errors, whose
/// words depend on the format.
fn fraction(format: Option<&str>, path: &Path<'_>, faults: &mut Faults) {
    let (found, expected, of_format) = match format {
        Some(format @ ("int32" | "int64")) => ("float64", format, format!("with format {format}")),
        _ => ("number", "integer", "(default format)".to_owned()),
    };
    let found = quote(found);
    let detail = format!("{path} in body must be of type {expected}: {found}");
    faults.push(FieldError::type_invalid(path, &found, &detail));
    let detail = format!("Checked value must be of type integer {of_format} in {path}");
    faults.push(FieldError::invalid("<nil>", "\"\"", &detail));
}

fn list(
    of: Type<'_>,
    items: &[Value],
    old: Option<&Vec<Value>>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    let count = items.len() as u64;
    match of.constraints().map(|constraints| constraints.item_count).unwrap_or_default() {
        (_, Some(most)) if count > most => {
            faults.push(FieldError::too_many(path, items.len(), most));
        }
        (Some(fewest), _) if count < fewest => {
            let detail = format!("{path} in body should have at least {fewest} items");
            faults.push(FieldError::invalid(path, count, &detail));
        }
        _ => {}
    }
    if let Some(of_item) = of.of_items() {
        // Which item was which before, only a key can tell.
        let before = list_types::by_key(&of.list_type, old);
        for (index, item) in items.iter().enumerate() {
            let old = before.of(item);
            node(of_item, item, old, &Path::Item(path, index), faults);
        }
    }
}

fn member_count(constraints: &Constraints, count: usize, path: &Path<'_>, faults: &mut Faults) {
    match constraints.member_count {
        (_, Some(most)) if count as u64 > most => {
            faults.push(FieldError::too_many(path, count, most));
        }
        (Some(fewest), _) if (count as u64) < fewest => {
            let detail = format!("{path} in body should have at least {fewest} properties");
            faults.push(FieldError::invalid(path, count, &detail));
        }
        _ => {}
    }
}

fn string(of: Type<'_>, text: &str, path: &Path<'_>, faults: &mut Faults) {
    faults.spend_bytes(text.len());
    let count = text.chars().count() as u64;
    // Of these only the first is told.
    let constraints = of.constraints();
    let length = constraints.map(|constraints| constraints.length).unwrap_or_default();
    let pattern = constraints.and_then(|constraints| constraints.pattern.as_ref());
    match (length, pattern) {
        ((_, Some(longest)), _) if count > longest => {
            faults.push(FieldError::too_long(path, longest));
        }
        ((Some(shortest), _), _) if count < shortest => {
            let detail = format!("{path} in body should be at least {shortest} chars long");
            faults.push(FieldError::invalid(path, quote(text), &detail));
        }
        (_, Some(pattern)) if !is_match(pattern, text, faults) => {
            let detail = format!("{path} in body should match '{pattern}'");
            faults.push(FieldError::invalid(path, quote(text), &detail));
        }
        _ => {}
    }
    if let Some(format) = &of.format
        && !is_of_format(format, text)
    {
        let found = quote(text);
        let detail = format!("{path} in body must be of type {format}: {found}");
        faults.push(FieldError::type_invalid(path, found, &detail));
    }
}

/// Whole numbers are held against the whole part of a bound, others as they are.
fn number(of: Type<'_>, value: &Value, path: &Path<'_>, faults: &mut Faults) {
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
            faults.push(FieldError::invalid(path, factor, &detail));
        } else if !is_multiple {
            let factor = go_float(factor);
            let detail = format!("{path} in body should be a multiple of {factor}");
            faults.push(FieldError::invalid(path, show(value), &detail));
        }
    }
    // A number that rounds to the largest float of 32 bits is one, as Go's parser has it.
    if of.format.as_deref() == Some("float") && (number as f32).is_infinite() {
        let detail = format!("Checked value must be of type number with format float in {path}");
        faults.push(FieldError::invalid("<nil>", "\"\"", &detail));
    }
    let against = |bound: f64| match whole {
        Some(whole) => (whole.cmp(&truncated(bound)), truncated(bound).to_string()),
        None => (number.total_cmp(&bound), go_float(bound)),
    };
    let mut refuse = |relation: &str, bound: &str| {
        let detail = format!("{path} in body should be {relation} {bound}");
        faults.push(FieldError::invalid(path, show(value), &detail));
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

/// Whether a text matches. One that there is no time for does, as far as anybody will know.
fn is_match(pattern: &Pattern, text: &str, faults: &mut Faults) -> bool {
    faults.with_bytes(|left| pattern.is_match(text, left)).unwrap_or(true)
}

/// Whether a value is one of those that are allowed.
fn is_allowed(allowed: &[Value], value: &Value, faults: &mut Faults) -> bool {
    allowed.iter().any(|one| {
        faults.spend(compared(one, value));
        faults.is_full() || is_one(one, value)
    })
}

/// How many steps it takes at most to hold a value against another one.
fn compared(one: &Value, other: &Value) -> usize {
    match (one, other) {
        (Value::String(one), Value::String(other)) if one.len() == other.len() => {
            1 + one.len() / 64
        }
        (Value::Array(one), Value::Array(other)) => {
            one.iter().zip(other).map(|(one, other)| compared(one, other)).sum::<usize>() + 1
        }
        (Value::Object(one), Value::Object(other)) => {
            let both = one.iter().filter_map(|(name, one)| Some((one, other.get(name)?)));
            both.map(|(one, other)| compared(one, other)).sum::<usize>() + 1
        }
        _ => 1,
    }
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
pub(super) fn show(value: &Value) -> String {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    /// The faults of a list of so many items, each `{"v": VALUE}`, by a schema of `v`.
    fn faults(of_v: &Value, value: &Value, count: usize) -> Vec<String> {
        let of_item = json!({"type": "object", "properties": {"v": of_v}});
        let of_list = json!({"type": "array", "items": of_item});
        let schema =
            Schema::of_definition(&json!({"type": "object", "properties": {"list": of_list}}));
        let list = vec![json!({"v": value}); count];
        let Value::Object(tree) = json!({"list": list}) else { return Vec::new() };
        validate(schema.root(), &tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn work_is_bounded_whatever_it_is() {
        let most = 4_000;
        let (many, text) = (0..most, "a".repeat(1 << 16));
        let branches: Vec<Value> =
            many.clone().map(|n| json!({"type": "integer", "maximum": n})).collect();
        let names: Vec<String> = many.clone().map(|n| format!("n{n}")).collect();
        let lengths: Vec<Value> = many
            .map(|n| json!({"type": "string", "maxLength": n + (1 << 16) - most + 1}))
            .collect();
        for (what, of_v, value) in [
            ("branches", json!({"anyOf": branches}), json!(most - 1)),
            ("allowed values", json!({"enum": names}), json!(names.last())),
            ("lengths", json!({"anyOf": lengths}), json!(text)),
        ] {
            let few = faults(&of_v, &value, 1);
            assert!(!few.concat().contains("cost budget"), "{what}: {few:?}");
            let all = faults(&of_v, &value, 10_000);
            assert!(all.len() == 1 && all[0].contains("running out of cost budget"), "{what}");
        }
    }

    #[test]
    fn what_many_schemas_say_is_let_go_of() {
        let of_v = json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
        assert!(faults(&of_v, &json!("a"), 50_000).is_empty());
    }
}
