//! Validates objects against their schemas, with the messages of kube-apiserver.

mod allowed;
mod numbers;
mod types;

use serde_json::Value;

use super::faults::Faults;
use super::node::{Additional, Constraints, Type};
use super::unchanged::is_unchanged;
use super::{Pattern, is_of_format, junctors, list_types};
use crate::error::{FieldError, Path, go_float, quote};
use crate::object::{Tree, to_json};

/// The root fields that are validated elsewhere. Only the names in `metadata` are validated here.
const CHECKED_ELSEWHERE: [&str; 1] = ["metadata"];

/// Validates an object and returns its errors. Most of `metadata` is validated elsewhere.
pub fn validate(of: Type<'_>, tree: &Tree) -> Vec<FieldError> {
    let mut faults = Faults::new();
    validate_junctors(of, tree, &mut faults);
    validate_whole(of, tree, None, &mut faults);
    members(of, tree, None, &Path::Root, &CHECKED_ELSEWHERE, &mut faults);
    names(of, tree, None, &mut faults);
    faults.into_errors().into_iter().map(FieldError::of_whole).collect()
}

/// Validates an object that replaces an old object. Errors of unchanged values are ignored, because new constraints of
/// a definition must not lock its existing objects.
pub fn validate_change(of: Type<'_>, tree: &Tree, old: &Tree) -> Vec<FieldError> {
    let mut faults = Faults::new();
    validate_junctors(of, tree, &mut faults);
    validate_whole(of, tree, Some(old), &mut faults);
    members(of, tree, Some(old), &Path::Root, &CHECKED_ELSEWHERE, &mut faults);
    names(of, tree, Some(old), &mut faults);
    faults.into_errors().into_iter().map(FieldError::of_whole).collect()
}

/// Validates the constraints of a whole object, without its fields.
fn validate_whole(of: Type<'_>, tree: &Tree, old: Option<&Tree>, faults: &mut Faults) {
    let Some(constraints) = of.constraints().filter(|_| of.go.is_none()) else { return };
    if old == Some(tree) {
        return;
    }
    if let Some(allowed) = &constraints.enumeration {
        // An object has a uid, a name and times, so it is hardly ever an allowed value.
        allowed::check(allowed, &Value::Object(tree.clone()), &Path::Root, faults);
    }
    member_count(constraints, tree.len(), &Path::Root, faults);
}

/// Validates the names in `metadata`, the only metadata for which a schema can be stricter than ObjectMeta.
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

/// Validates a whole object against the `allOf`, `anyOf`, `oneOf` and `not` of its schema.
fn validate_junctors(of: Type<'_>, tree: &Tree, faults: &mut Faults) {
    if let Some(constraints) = of.constraints()
        && !constraints.junctors.is_empty()
    {
        let (value, path) = (Value::Object(tree.clone()), Path::Root);
        junctors::validate(of, &constraints.junctors, &value, &path, faults);
    }
}

/// Validates only the status. Messages show paths as if the status were the whole object.
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
    // Values of Go types are validated when they are decoded, and have no other constraints here.
    if of.go.is_some() {
        return;
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
        // `apiVersion` and `kind` always count as changed.
        let is_type = matches!(path, Path::Root) && ["apiVersion", "kind"].contains(&&**name);
        let old = old.filter(|_| !is_type).and_then(|old| old.get(name));
        node(member, value, old, &Path::Member(path, name), faults);
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
}

/// Validates a value, which is at `path`, against a type.
pub fn node(
    of: Type<'_>,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    // Values of Go types are validated when they are decoded.
    faults.spend(1);
    if faults.is_full() || of.go.is_some() {
        return;
    }
    // A value that has not changed stays valid.
    if old.is_some_and(|old| is_unchanged(of, old, value, faults)) {
        return;
    }
    let constraints = of.constraints();
    types::check(of, value, path, faults);
    if let Some(constraints) = constraints
        && !value.is_null()
        && !constraints.junctors.is_empty()
    {
        junctors::validate(of, &constraints.junctors, value, path, faults);
    }
    match value {
        Value::Array(items) => list(of, items, old.and_then(Value::as_array), path, faults),
        Value::String(text) => string(of, text, path, faults),
        Value::Number(_) => numbers::check(of, value, path, faults),
        Value::Object(_) | Value::Null | Value::Bool(_) => {}
    }
    if let Some(allowed) = constraints.and_then(|constraints| constraints.enumeration.as_ref()) {
        allowed::check(allowed, value, path, faults);
    }
    if let Value::Object(tree) = value {
        constraints.inspect(|more| member_count(more, tree.len(), path, faults));
        members(of, tree, old.and_then(Value::as_object), path, &[], faults);
    }
}

fn list(
    of: Type<'_>,
    items: &[Value],
    old: Option<&Vec<Value>>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    if let Some(of_item) = of.of_items() {
        // Only elements of lists with key fields can be matched with old elements.
        let before = list_types::by_key(&of.list_type, old);
        for (index, item) in items.iter().enumerate() {
            node(of_item, item, before.of(item), &Path::Item(path, index), faults);
        }
    }
    let (fewest, most) =
        of.constraints().map(|constraints| constraints.item_count).unwrap_or_default();
    let count = items.len() as u64;
    if let Some(fewest) = fewest.filter(|fewest| count < *fewest) {
        let detail = format!("{path} in body should have at least {fewest} items");
        faults.push(FieldError::invalid(path, count, &detail));
    }
    if let Some(most) = most.filter(|most| count > *most) {
        faults.push(FieldError::too_many(path, items.len(), most));
    }
}

fn member_count(constraints: &Constraints, count: usize, path: &Path<'_>, faults: &mut Faults) {
    let (fewest, most) = constraints.member_count;
    if let Some(fewest) = fewest.filter(|fewest| (count as u64) < *fewest) {
        let detail = format!("{path} in body should have at least {fewest} properties");
        faults.push(FieldError::invalid(path, count, &detail));
    }
    if let Some(most) = most.filter(|most| count as u64 > *most) {
        faults.push(FieldError::too_many(path, count, most));
    }
}

fn string(of: Type<'_>, text: &str, path: &Path<'_>, faults: &mut Faults) {
    faults.spend_bytes(text.len());
    let count = text.chars().count() as u64;
    // Only the first of these errors is reported.
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

/// Whether a text matches. If the steps are exhausted, the result is true, because their end is then the only reported
/// error.
fn is_match(pattern: &Pattern, text: &str, faults: &mut Faults) -> bool {
    faults.with_bytes(|left| pattern.is_match(text, left)).unwrap_or(true)
}

/// Formats a value for messages.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) if !number.is_i64() => go_float(number.as_f64().unwrap_or_default()),
        other => to_json(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Schema;

    /// Returns the errors of a list with `count` elements, each `{"v": VALUE}`, for a schema of `v`.
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
    fn validation_stops_at_the_cost_budget() {
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
    fn errors_of_discarded_any_of_branches_are_released() {
        let of_v = json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
        assert!(faults(&of_v, &json!("a"), 50_000).is_empty());
    }
}
