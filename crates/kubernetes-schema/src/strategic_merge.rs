//! Strategic merge patch: like a merge patch, but lists of known types are merged by the keys of their elements.
//!
//! Fields of a patch that begin with `$` are directives. `$patch` replaces or deletes, and `$deleteFromPrimitiveList/F`
//! removes elements from `F`. `$setElementOrder/F` sets the order of elements, and `$retainKeys` lists the fields to
//! retain.

use serde_json::Value;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::{ListMerge, Schema, Type};
use crate::object::{Tree, to_json};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// A patch, and the schema of the object that it applies to.
#[derive(Clone, Debug)]
pub struct StrategicMergePatch {
    /// The patch.
    pub patch: Tree,
    /// The schema of the object.
    pub schema: Schema,
}

impl StrategicMergePatch {
    /// Applies the patch to an object.
    ///
    /// # Errors
    /// A message about a part of the patch that cannot be applied.
    pub fn apply(&self, object: Tree) -> Result<Tree, String> {
        let mut object = object;
        merge(&mut object, &self.patch, Some(self.schema.root()))?;
        Ok(object)
    }

    /// Returns the patch as messages show it: without nulls for fields that the object does not have.
    pub fn shown(&self, object: &Tree) -> Value {
        Value::Object(shown(&self.patch, object))
    }
}

fn shown(patch: &Tree, object: &Tree) -> Tree {
    let members = patch.iter().filter_map(|(name, value)| {
        let value = match (value, object.get(name)) {
            (Value::Object(patch), Some(Value::Object(object))) => {
                Value::Object(shown(patch, object))
            }
            (value @ Value::Object(_), None) => without_directed(value)?,
            (value, _) => value.clone(),
        };
        Some((name.clone(), value))
    });
    members.collect()
}

fn merge(object: &mut Tree, patch: &Tree, of: Option<Type<'_>>) -> Result<(), String> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(word)) if word == "replace" => {
            *object = patch.clone();
            object.remove(PATCH);
            return Ok(());
        }
        Some(Value::String(word)) if word == "delete" => {
            object.clear();
            return Ok(());
        }
        Some(_) => return Err(unknown_directive(patch)),
    }
    if let Some(retained) = patch.get(RETAIN) {
        let Value::Array(retained) = retained else {
            return Err(format!("{RETAIN} must be a list"));
        };
        let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
        let given = patch.keys().filter(|key| !key.starts_with('$'));
        if given.into_iter().any(|key| !retained.contains(key.as_str())) {
            return Err(format!("{RETAIN} must hold all members of the patch"));
        }
        object.retain(|key, _| retained.contains(key.as_str()));
    }
    // The lists before the patch, for the positions of elements that only the object has.
    let ordered = patch.keys().filter_map(|name| name.strip_prefix(ORDER));
    let before: HashMap<&str, Vec<Value>> =
        ordered.filter_map(|field| Some((field, object.get(field)?.as_array()?.clone()))).collect();
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            let Value::Array(gone) = value else { return Err(format!("{name} must be a list")) };
            let gone: HashSet<String> = gone.iter().map(to_json).collect();
            if let Some(Value::Array(items)) = object.get_mut(field) {
                items.retain(|item| !gone.contains(&to_json(item)));
            }
        } else if !name.starts_with('$') {
            merge_member(object, name, value, of)?;
        }
    }
    for (name, order) in patch {
        let Some(field) = name.strip_prefix(ORDER) else { continue };
        let Value::Array(order) = order else { return Err(format!("{name} must be a list")) };
        let member = of.and_then(|of| of.member(field));
        // A patch that replaces a list determines its order too.
        let list = member.map(|(member, _)| &member.patch.list);
        let list = list.filter(|list| **list != ListMerge::Replace);
        if let (Some(Value::Array(items)), Some(list)) = (object.get_mut(field), list) {
            let given = patch.get(field).and_then(Value::as_array);
            if !is_in_order(given.map_or(&[], Vec::as_slice), order, list) {
                return Err(format!("the order in the patch of {field} doesn't match {name}"));
            }
            let before = before.get(field).map_or(&[][..], Vec::as_slice);
            set_order(items, order, before, list);
        }
    }
    Ok(())
}

fn merge_member(
    object: &mut Tree,
    name: &str,
    patch: &Value,
    of: Option<Type<'_>>,
) -> Result<(), String> {
    let (member, of) = of.and_then(|of| of.member(name)).unzip();
    match (object.get_mut(name), patch) {
        (_, Value::Null) => {
            object.remove(name);
        }
        (Some(Value::Object(object)), Value::Object(patch))
            if member.is_none_or(|member| !member.patch.replaces_object) =>
        {
            merge(object, patch, of)?;
        }
        (Some(Value::Array(items)), Value::Array(patch)) => {
            let list = member.map_or(&ListMerge::Replace, |member| &member.patch.list);
            let of = of.and_then(Type::of_items);
            let before = items.clone();
            match list {
                ListMerge::By(key) => merge_items(items, patch, key, of)?,
                ListMerge::Union => unite(items, patch),
                ListMerge::Replace => items.clone_from(patch),
            }
            if *list != ListMerge::Replace {
                set_order(items, patch, &before, list);
            }
        }
        (Some(old), Value::Object(patch))
            if member.is_some_and(|member| member.patch.replaces_object) =>
        {
            // The patch is copied without changes. A directive in it is an unknown field.
            *old = Value::Object(patch.clone());
        }
        (_, new) => match without_directed(new) {
            Some(new) => drop(object.insert(name.to_owned(), new)),
            None => drop(object.remove(name)),
        },
    }
    Ok(())
}

/// Merges elements that are identified by a key.
fn merge_items(
    items: &mut Vec<Value>,
    patch: &[Value],
    key: &str,
    of: Option<Type<'_>>,
) -> Result<(), String> {
    let says = |item: &Value, word: &str| item[PATCH] == word;
    if patch.iter().any(|item| says(item, "replace")) {
        let kept = patch.iter().filter(|item| item.get(PATCH).is_none());
        *items = kept.cloned().collect();
        return Ok(());
    }
    let name = |item: &Value| -> Result<String, String> {
        let named = item.as_object().and_then(|item| item.get(key));
        named.map(to_json).ok_or_else(|| {
            format!("map: {} does not contain declared merge key: {key}", to_json(item))
        })
    };
    for item in patch.iter().filter_map(Value::as_object) {
        match item.get(PATCH) {
            None => {}
            Some(word) if word == "delete" => {}
            Some(word) if word == "merge" => {
                return Err("merging lists cannot yet be specified in the patch".to_owned());
            }
            Some(_) => return Err(unknown_directive(item)),
        }
    }
    let mut gone = HashSet::new();
    for item in patch.iter().filter(|item| says(item, "delete")) {
        gone.insert(name(item)?);
    }
    if !gone.is_empty() {
        items.retain(|item| !item.get(key).is_some_and(|named| gone.contains(&to_json(named))));
    }
    // If several elements have the same key, the first one is patched.
    let places = items.iter().enumerate().rev();
    let places = places.filter_map(|(place, item)| Some((to_json(item.get(key)?), place)));
    let mut places: HashMap<String, usize> = places.collect();
    for item in patch.iter().filter(|item| !says(item, "delete")) {
        let Value::Object(patch) = item else {
            return Err(format!("items with the merge key {key} must be objects"));
        };
        let place = match places.entry(name(item)?) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                new.insert(items.len());
                items.push(item.clone());
                continue;
            }
        };
        match &mut items[place] {
            Value::Object(member) => merge(member, patch, of)?,
            other => *other = item.clone(),
        }
    }
    Ok(())
}

/// Adds the elements that are missing.
fn unite(items: &mut Vec<Value>, patch: &[Value]) {
    let mut known: HashSet<String> = items.iter().map(to_json).collect();
    items.extend(patch.iter().filter(|item| known.insert(to_json(item))).cloned());
}

/// Returns the value that identifies an element of a list, if the element has it.
fn name_in(list: &ListMerge, item: &Value) -> Option<String> {
    match list {
        ListMerge::By(key) => item.get(&**key).map(to_json),
        ListMerge::Union | ListMerge::Replace => Some(to_json(item)),
    }
}

/// Whether the elements of a patch are in the given order, which must contain all of them.
fn is_in_order(given: &[Value], order: &[Value], list: &ListMerge) -> bool {
    let name = |item: &Value| name_in(list, item);
    let mut order = order.iter().filter_map(name);
    let given = given.iter().filter(|item| item.get(PATCH).is_none());
    given.filter_map(name).all(|wanted| order.any(|next| next == wanted))
}

/// Sorts the elements that the patch names in its order. Elements that only the object has stay between them, at their
/// positions in `before`.
fn set_order(items: &mut Vec<Value>, order: &[Value], before: &[Value], list: &ListMerge) {
    let name = |item: &Value| name_in(list, item);
    let places = |items: &[Value]| -> HashMap<String, usize> {
        let named = items.iter().enumerate().rev();
        named.filter_map(|(place, item)| Some((name(item)?, place))).collect()
    };
    let (wanted, before) = (places(order), places(before));
    // The name of each element is computed once, because it can be the whole element.
    let placed = std::mem::take(items).into_iter().map(|item| {
        let name = name(&item);
        let place = |places: &HashMap<String, usize>| places.get(name.as_ref()?).copied();
        Placed { wanted: place(&wanted), before: place(&before), item }
    });
    let (mut ordered, others): (Vec<Placed>, Vec<Placed>) =
        placed.partition(|one| one.wanted.is_some());
    ordered.sort_by_key(|one| one.wanted);
    let mut others = others.into_iter().peekable();
    for one in ordered {
        let is_first = |other: &Placed| {
            other.before.zip(one.before).is_some_and(|(other, before)| other < before)
        };
        while let Some(other) = others.next_if(is_first) {
            items.push(other.item);
        }
        items.push(one.item);
    }
    items.extend(others.map(|other| other.item));
}

/// A list element, with its indexes in the requested order and in the previous order.
struct Placed {
    wanted: Option<usize>,
    before: Option<usize>,
    item: Value,
}

fn unknown_directive(patch: &Tree) -> String {
    let word =
        patch.get(PATCH).map(|word| word.as_str().map_or_else(|| to_json(word), str::to_owned));
    let shown = to_json(&Value::Object(patch.clone()));
    format!("unknown patch type: {} in map: {shown}", word.unwrap_or_default())
}

/// Returns the value to insert where the object has none: without nulls, and without objects that have a `$patch`
/// directive. Other directives stay as unknown fields.
fn without_directed(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(members) if members.contains_key(PATCH) => None,
        Value::Object(members) => {
            let kept = members.iter();
            let kept = kept.filter_map(|(name, one)| Some((name.clone(), without_directed(one)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => {
            let kept = items.iter().filter(|item| item.get(PATCH).is_none());
            let plain = |item: &Value| without_directed(item).unwrap_or_default();
            Some(Value::Array(kept.map(plain).collect()))
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Types;
    use super::*;
    use serde_json::json;

    const TABLE: &str = "\
package example.com/api/core/v1 v1
Container
 name 1 string +
 ports 2 []pkg/runtime.RawExtension merge=port
Pod kind
 spec 1 Spec +
Spec
 containers 1 []Container merge=name
 names 2 []string merge
 volumes 3 []Container merge=name retainKeys
 selector 4 pkg/runtime.RawExtension * replace
";

    fn patch_of(spec: Value) -> StrategicMergePatch {
        let Value::Object(patch) = json!({"spec": spec}) else { unreachable!() };
        let types = Arc::new(Types::parse(&[TABLE]).unwrap());
        types.check().unwrap();
        StrategicMergePatch { patch, schema: types.schema("", "v1", "Pod").unwrap() }
    }

    fn check(spec: Value, patch: Value, expected: Value) {
        let Value::Object(object) = json!({"spec": spec}) else { unreachable!() };
        let patched = patch_of(patch).apply(object).unwrap();
        assert_eq!(json!(patched), json!({"spec": expected}));
    }

    #[test]
    fn lists_of_objects_are_merged_by_merge_key() {
        let containers = json!([{"name": "a", "image": "x", "args": ["1"]}, {"name": "b"}]);
        check(
            json!({"containers": containers}),
            json!({"containers": [{"name": "a", "image": "y", "args": ["2"]}, {"name": "c", "env": null}]}),
            json!({"containers": [{"name": "a", "image": "y", "args": ["2"]}, {"name": "c", "env": null}, {"name": "b"}]}),
        );
        check(
            json!({"containers": containers}),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b"}]}),
        );
        check(
            json!({"containers": containers}),
            json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
            json!({"containers": [{"name": "z"}]}),
        );
        check(
            json!({"containers": [{"name": "a", "ports": [{"port": 1, "x": 1}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"port": 1, "y": 2}, {"port": 2}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"port": 1, "x": 1, "y": 2}, {"port": 2}]}]}),
        );
    }

    #[test]
    fn primitive_lists_and_maps_are_merged_or_replaced() {
        check(
            json!({"names": ["a", "b"]}),
            json!({"names": ["b", "c"]}),
            json!({"names": ["a", "b", "c"]}),
        );
        check(
            json!({"names": ["a", "b"]}),
            json!({"$deleteFromPrimitiveList/names": ["a"]}),
            json!({"names": ["b"]}),
        );
        check(json!({"other": ["a"]}), json!({"other": ["b"]}), json!({"other": ["b"]}));
        check(
            json!({"x": {"a": 1}}),
            json!({"x": {"$patch": "replace", "b": 2}}),
            json!({"x": {"b": 2}}),
        );
        check(json!({"x": {"a": 1}}), json!({"x": null}), json!({}));
        check(
            json!({"selector": {"a": 1}}),
            json!({"selector": {"b": 2}}),
            json!({"selector": {"b": 2}}),
        );
        check(
            json!({"selector": {"a": 1}}),
            json!({"selector": {"$patch": "replace", "b": 2}}),
            json!({"selector": {"$patch": "replace", "b": 2}}),
        );
        check(
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"$retainKeys": ["name", "secret"], "name": "v", "secret": {"s": 1}}]}),
            json!({"volumes": [{"name": "v", "secret": {"s": 1}}]}),
        );
    }

    #[test]
    fn new_list_elements_are_added_unchanged() {
        let ports = json!([{"port": 53, "p": "UDP"}, {"port": 53, "p": "TCP"}]);
        check(
            json!({"containers": [{"name": "a"}]}),
            json!({"containers": [{"name": "a", "ports": ports}, {"name": "b", "ports": ports}]}),
            json!({"containers": [{"name": "a", "ports": ports}, {"name": "b", "ports": ports}]}),
        );
    }

    #[test]
    fn patch_directives_in_new_values_are_processed() {
        check(
            json!({}),
            json!({"x": {"$patch": "merge", "a": 1}, "y": {"a": {"$patch": "replace"}, "b": null}}),
            json!({"y": {}}),
        );
        check(
            json!({}),
            json!({"names": ["a", null], "containers": [{"name": "a"}, {"name": "b", "$patch": "delete"}]}),
            json!({"names": ["a", null], "containers": [{"name": "a"}]}),
        );
        check(
            json!({"x": {"a": 1}, "other": [1]}),
            json!({"x": {"$patch": "replace", "b": {"$patch": "odd"}}, "other": [{"$patch": "odd"}]}),
            json!({"x": {"b": {"$patch": "odd"}}, "other": [{"$patch": "odd"}]}),
        );
    }

    #[test]
    fn set_element_order_determines_the_order_of_merged_lists() {
        check(
            json!({"containers": [{"name": "sidecar"}, {"name": "app"}]}),
            json!({
                "$setElementOrder/containers": [{"name": "app"}],
                "containers": [{"name": "app", "image": "y"}],
            }),
            json!({"containers": [{"name": "sidecar"}, {"name": "app", "image": "y"}]}),
        );
        check(
            json!({"containers": [{"name": "nginx"}]}),
            json!({"containers": [{"name": "redis"}]}),
            json!({"containers": [{"name": "redis"}, {"name": "nginx"}]}),
        );
        check(
            json!({"containers": [{"name": "a"}, {"name": "s"}, {"name": "b"}]}),
            json!({
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
                "containers": [{"name": "c"}],
            }),
            json!({"containers": [{"name": "c"}, {"name": "a"}, {"name": "s"}, {"name": "b"}]}),
        );
    }

    #[test]
    fn invalid_strategic_merge_patches_are_rejected() {
        let refuse_in = |patch: Value| {
            let Value::Object(object) = json!({"spec": {}}) else { unreachable!() };
            patch_of(patch).apply(object).unwrap_err()
        };
        let keyless = patch_of(json!({"containers": [{"image": "x"}]}));
        let Value::Object(object) = json!({"spec": {"containers": []}}) else { unreachable!() };
        assert_eq!(
            keyless.apply(object).unwrap_err(),
            "map: {\"image\":\"x\"} does not contain declared merge key: name"
        );
        assert_eq!(
            refuse_in(json!({"$patch": "poem"})),
            "unknown patch type: poem in map: {\"$patch\":\"poem\"}"
        );
        assert_eq!(
            refuse_in(json!({"$retainKeys": ["a"], "b": 1})),
            "$retainKeys must hold all members of the patch"
        );
    }
}
