//! Fields that the system fills in or drops, for field ownership: a value that no client has sent has no owner, and a
//! client owns the values that it has sent.

use std::borrow::Cow;

use serde_json::Value;

use crate::object::Tree;

/// A field that the strategy of a kind fills in completely or in part.
#[derive(Clone, Copy, Debug)]
pub struct FilledField {
    /// A JSON pointer; `*` stands for each element of a list.
    field: &'static str,
    /// The field whose value is the initial value if a client omits this one.
    like: Option<&'static str>,
    /// The string that is the initial value if a client omits the field.
    default: Option<&'static str>,
    of_generated_names: bool,
    is_dropped_only: bool,
    is_replaced: bool,
    is_by_admission: bool,
}

impl FilledField {
    /// The field at a JSON pointer, in which `*` stands for each element of a list.
    pub const fn field(field: &'static str) -> Self {
        Self {
            field,
            like: None,
            default: None,
            of_generated_names: false,
            is_dropped_only: false,
            is_replaced: false,
            is_by_admission: false,
        }
    }

    /// A field that the system drops if it does not apply, and never fills in. If the field exists, it is a default or
    /// was sent.
    pub const fn dropped(field: &'static str) -> Self {
        Self { is_dropped_only: true, ..Self::field(field) }
    }

    /// Sets another field as the default value. A client owns the defaults of fields that it has omitted.
    #[must_use]
    pub const fn like(self, other: &'static str) -> Self {
        Self { like: Some(other), ..self }
    }

    /// Sets a string as the default value.
    #[must_use]
    pub const fn with_default(self, text: &'static str) -> Self {
        Self { default: Some(text), ..self }
    }

    /// Marks a field whose value the system can replace. The field still belongs to the owner of the sent value.
    #[must_use]
    pub const fn replaced(self) -> Self {
        Self { is_replaced: true, ..self }
    }

    /// Marks a field that plugins of kube-apiserver fill in before webhooks are called.
    #[must_use]
    pub const fn by_admission(self) -> Self {
        Self { is_by_admission: true, ..self }
    }

    /// Limits the field to objects with generated names; for other objects it is a default.
    #[must_use]
    pub const fn of_generated_names(self) -> Self {
        Self { of_generated_names: true, ..self }
    }
}

/// The values that a client has sent for the fields that will be filled in.
#[derive(Clone, Debug, Default)]
pub struct SentValues {
    values: Vec<(FilledField, Option<Value>)>,
    /// The omitted fields whose default is a copy of another field, with this copy.
    copies: Vec<(&'static str, Value)>,
}

impl SentValues {
    /// The values that this object has for the fields.
    pub fn of(filled: &[FilledField], tree: &Tree) -> Self {
        let is_named = find(tree, "/metadata/name").is_some();
        let filled = filled.iter().filter(|one| !(one.of_generated_names && is_named));
        let filled = filled.filter(|one| !one.is_dropped_only || find(tree, one.field).is_some());
        let said = |one: &FilledField| {
            let (list, _) = one.field.split_once("/*/").unwrap_or((one.field, ""));
            let other = || one.like.and_then(|other| find(tree, other));
            let value = find(tree, list).or_else(other).cloned();
            (*one, value.or_else(|| one.default.map(Value::from)))
        };
        let values: Vec<_> = filled.map(said).collect();
        let is_omitted = |one: &FilledField| one.like.is_some() && find(tree, one.field).is_none();
        let copies = values.iter().filter(|(one, _)| is_omitted(one));
        let copies = copies.filter_map(|(one, copy)| Some((one.field, copy.clone()?)));
        Self { copies: copies.collect(), values }
    }

    /// Removes the values that are filled in after admission, so that admission plugins do not see them.
    pub fn remove_filled_after_admission(&self, tree: &mut Tree) {
        let after = self.values.iter().filter(|(one, _)| !one.is_by_admission).cloned();
        let after = Self { values: after.collect(), copies: Vec::new() };
        if let Cow::Owned(sent) = after.without_filled(tree) {
            *tree = sent;
        }
    }

    /// Removes the copies of other fields that admission has not changed, so that the values are copied again that the
    /// system sets meanwhile. In Go, such a copy and its original are one map.
    pub fn remove_unchanged_copies(&self, tree: &mut Tree) {
        for (field, copy) in &self.copies {
            if find(tree, field) == Some(copy) {
                remove(tree, field);
            }
        }
    }

    /// The object as it would be if nothing had been filled in since.
    pub fn without_filled<'a>(&self, filled: &'a Tree) -> Cow<'a, Tree> {
        if self.values.is_empty() {
            return Cow::Borrowed(filled);
        }
        let mut tree = filled.clone();
        for (FilledField { field, is_replaced, .. }, said) in &self.values {
            match (field.split_once("/*/"), said) {
                (Some((list, member)), Some(Value::Array(said))) => {
                    let items = find_mut(&mut tree, list).and_then(Value::as_array_mut);
                    for (item, said) in items.into_iter().flatten().zip(said) {
                        if let Some(item) = item.as_object_mut() {
                            match said.get(member) {
                                None => drop(item.remove(member)),
                                Some(said) => put_back(item, member, said),
                            }
                        }
                    }
                }
                (Some(_), _) => {}
                (None, None) => remove(&mut tree, field),
                (None, Some(said)) => match find_mut(&mut tree, field) {
                    Some(value) if *is_replaced => value.clone_from(said),
                    Some(value) => leave(value, said),
                    None => {
                        if let Some((members, name)) = parent(&mut tree, field) {
                            put_back(members, &name, said);
                        }
                    }
                },
            }
        }
        Cow::Owned(tree)
    }
}

/// Reduces a value to the fields or elements that it had before.
fn leave(value: &mut Value, said: &Value) {
    match (value, said) {
        (Value::Object(members), Value::Object(said)) => {
            members.retain(|name, _| said.contains_key(name));
        }
        (Value::Array(items), Value::Array(said)) => items.retain(|item| said.contains(item)),
        _ => {}
    }
}

fn steps(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/"))
}

pub(super) fn find<'a>(tree: &'a Tree, pointer: &str) -> Option<&'a Value> {
    let mut steps = steps(pointer);
    let first = tree.get(&steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

fn find_mut<'a>(tree: &'a mut Tree, pointer: &str) -> Option<&'a mut Value> {
    let mut steps = steps(pointer);
    let first = tree.get_mut(&steps.next()?)?;
    steps.try_fold(first, |value, step| value.get_mut(step))
}

fn remove(tree: &mut Tree, pointer: &str) {
    if let Some((members, name)) = parent(tree, pointer) {
        members.remove(&name);
    }
}

fn put_back(members: &mut Tree, name: &str, said: &Value) {
    if !members.contains_key(name) {
        members.insert(name.to_owned(), said.clone());
    }
}

/// The object that contains a field, and the name of the field.
fn parent<'a>(tree: &'a mut Tree, pointer: &str) -> Option<(&'a mut Tree, String)> {
    let (parent, name) = pointer.rsplit_once('/')?;
    let members = match parent {
        "" => tree,
        parent => find_mut(tree, parent)?.as_object_mut()?,
    };
    Some((members, name.replace("~1", "/")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_copies_of_omitted_fields_are_removed() {
        const FILLED: [FilledField; 1] = [FilledField::field("/labels").like("/spec/labels")];
        let check = |given: Value, admitted: Value, expected: Value| {
            let (Value::Object(given), Value::Object(mut tree)) = (given, admitted) else { return };
            SentValues::of(&FILLED, &given).remove_unchanged_copies(&mut tree);
            assert_eq!(json!(tree), expected);
        };
        let spec = json!({"labels": {"a": "b"}});
        let whole = json!({"spec": spec, "labels": {"a": "b"}});
        check(json!({"spec": spec}), whole.clone(), json!({"spec": spec}));
        check(whole.clone(), whole.clone(), whole);
        let changed = json!({"spec": spec, "labels": {"a": "c"}});
        check(json!({"spec": spec}), changed.clone(), changed);
    }

    #[test]
    fn server_filled_fields_are_omitted_unless_the_client_set_them() {
        const FILLED: [FilledField; 6] = [
            FilledField::dropped("/spec/policy"),
            FilledField::field("/spec/ip"),
            FilledField::field("/spec/taints"),
            FilledField::field("/spec/ports/*/node"),
            FilledField::field("/metadata/labels").like("/spec/labels"),
            FilledField::field("/spec/of/a~1b").of_generated_names(),
        ];
        let check = |given: Value, filled: Value, expected: Value| {
            let (Value::Object(given), Value::Object(filled)) = (given, filled) else { return };
            assert_eq!(json!(SentValues::of(&FILLED, &given).without_filled(&filled)), expected);
        };
        let filled = json!({
            "metadata": {"name": "x", "labels": {"a": "b", "uid": "1"}},
            "spec": {
                "ip": "1", "taints": [1, 2], "ports": [{"port": 1, "node": 5}, {"port": 2, "node": 6}],
                "labels": {"a": "b", "uid": "1"}, "of": {"a/b": "x"},
            },
        });
        check(
            json!({"metadata": {"name": "x"}, "spec": {"policy": "p", "ports": [{"port": 1}, {"port": 2, "node": 6}], "taints": [2]}}),
            filled.clone(),
            json!({
                "metadata": {"name": "x"},
                "spec": {
                    "policy": "p", "taints": [2], "ports": [{"port": 1}, {"port": 2, "node": 6}],
                    "labels": {"a": "b", "uid": "1"}, "of": {"a/b": "x"},
                },
            }),
        );
        check(
            json!({"metadata": {}, "spec": {"ip": "1", "labels": {"a": "b"}}}),
            filled.clone(),
            json!({
                "metadata": {"name": "x", "labels": {"a": "b"}},
                "spec": {
                    "ip": "1", "ports": [{"port": 1, "node": 5}, {"port": 2, "node": 6}],
                    "labels": {"a": "b", "uid": "1"}, "of": {},
                },
            }),
        );
        let mut dropped = filled;
        dropped["spec"]["ports"][1] = json!({"port": 2});
        let given = json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}, {"port": 2, "node": 6}], "ip": "2"}});
        let (Value::Object(given), Value::Object(dropped)) = (given, dropped) else { return };
        let alone = json!(SentValues::of(&FILLED, &given).without_filled(&dropped));
        assert_eq!(alone["spec"]["ports"], json!([{"port": 1}, {"port": 2, "node": 6}]));
        assert_eq!((&alone["spec"]["ip"], alone["spec"].get("taints")), (&json!("1"), None));
    }
}
