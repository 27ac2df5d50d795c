//! Properties that hold for all objects and managers, independently of any reference implementation; and tests of the
//! walkers.

use serde_json::{Map, Value, json};

use super::compare::{Comparison, compare, compare_checked};
use super::field_set::tests::set;
use super::fields_v1;
use super::merge::merge;
use super::remove::{remove, with_declared_parents};
use super::typed::{check_loosely, check_loosely_beside};
use super::unchanged::is_unchanged;
use super::value::are_same;
use super::*;
use crate::schema::Schema;

const VERSION: &str = "example.com/v1";

fn schema() -> Schema {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "x-kubernetes-list-type": "set", "items": text});
    Schema::of_definition(&json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "s": text, "t": text, "i": {"type": "integer"},
            "map": {"type": "object", "additionalProperties": text},
            "set": texts,
            "atomic": {"type": "array", "items": text},
            "inner": {"type": "object", "properties": {"x": text, "y": text}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": text}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "name": text,
                    "tags": texts,
                }},
            },
        },
    }}}))
}

fn object(spec: Value) -> Map<String, Value> {
    let Value::Object(object) =
        json!({"apiVersion": VERSION, "kind": "Foo", "metadata": {"name": "a"}, "spec": spec})
    else {
        unreachable!()
    };
    object
}

/// Returns the place of the objects of a schema.
fn place(schema: &Schema) -> Place<'_> {
    Place::root(schema.root())
}

fn written(set: &FieldSet) -> Value {
    let mut text = String::new();
    fields_v1::write(set, &mut text);
    serde_json::from_str::<Value>(&text).unwrap()["f:spec"].clone()
}

#[test]
fn owned_fields_depend_on_the_schema_type() {
    let schema = schema();
    let owned = |spec| written(&owned(place(&schema), &object(spec)));
    for (spec, expected) in [
        (json!({"s": "1"}), json!({"f:s": {}})),
        (json!({}), json!({})),
        (
            json!({"inner": {}, "map": {}, "set": [], "atomic": []}),
            json!({"f:inner": {}, "f:map": {}, "f:atomic": {}}),
        ),
        (json!({"inner": {"x": "1"}}), json!({"f:inner": {"f:x": {}}})),
        (json!({"inner": null, "s": null}), json!({"f:inner": {}, "f:s": {}})),
        (json!({"whole": {"x": "1"}, "atomic": ["a"]}), json!({"f:whole": {}, "f:atomic": {}})),
        (json!({"map": {"k": "1"}}), json!({"f:map": {"f:k": {}}})),
        (json!({"set": ["b", "a"]}), json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}})),
        (
            json!({"free": {"a": {"b": 1}, "l": [1]}}),
            json!({"f:free": {"f:a": {".": {}, "f:b": {}}, "f:l": {}}}),
        ),
        (
            json!({"ports": [{"port": 80, "name": "x"}]}),
            json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}}}),
        ),
    ] {
        assert_eq!(owned(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn comparison_lists_the_paths_of_added_modified_and_removed_fields() {
    let schema = schema();
    let compared = |old, new| {
        let Comparison { added, modified, removed } =
            compare(place(&schema), &object(old), &object(new)).unwrap();
        [added, modified, removed].map(|set| written(&set))
    };
    let nothing = || Value::Null;
    for (old, new, expected) in [
        (json!({"s": "1"}), json!({"s": "1"}), [nothing(), nothing(), nothing()]),
        (json!({"i": 1}), json!({"i": 1.0}), [nothing(), nothing(), nothing()]),
        (json!({"s": "1"}), json!({"s": "2"}), [nothing(), json!({"f:s": {}}), nothing()]),
        (json!({}), json!({"s": "2"}), [json!({"f:s": {}}), nothing(), nothing()]),
        (
            json!({"inner": {"x": "1"}}),
            json!({}),
            [nothing(), nothing(), json!({"f:inner": {".": {}, "f:x": {}}})],
        ),
        // The order of a set is irrelevant; the order of a list that is one value is not.
        (json!({"set": ["a", "b"]}), json!({"set": ["b", "a"]}), [nothing(), nothing(), nothing()]),
        (
            json!({"atomic": ["a", "b"]}),
            json!({"atomic": ["b", "a"]}),
            [nothing(), json!({"f:atomic": {}}), nothing()],
        ),
        (
            json!({"set": []}),
            json!({"set": ["x"]}),
            [json!({"f:set": {"v:\"x\"": {}}}), nothing(), nothing()],
        ),
        // Duplicate elements are compared as a group.
        (
            json!({"set": ["a", "a"]}),
            json!({"set": ["a"]}),
            [json!({"f:set": {"v:\"a\"": {}}}), nothing(), json!({"f:set": {"v:\"a\"": {}}})],
        ),
        (
            json!({"free": {"a": {"b": 1}}}),
            json!({"free": {"a": 1}}),
            [nothing(), json!({"f:free": {"f:a": {}}}), json!({"f:free": {"f:a": {"f:b": {}}}})],
        ),
    ] {
        assert_eq!(compared(old.clone(), new.clone()), expected, "{old} {new}");
    }
}

#[test]
fn merged_set_elements_have_the_order_of_the_applied_list() {
    let schema = schema();
    let merged = |live: &[&str], applied: &[&str]| {
        let (live, applied) = (object(json!({"set": live})), object(json!({"set": applied})));
        merge(place(&schema), &live, &applied).unwrap()["spec"]["set"].clone()
    };
    assert_eq!(merged(&["a", "b"], &["x", "y"]), json!(["a", "b", "x", "y"]));
    assert_eq!(merged(&["a", "b", "c"], &["c", "d", "a"]), json!(["b", "c", "d", "a"]));
    assert_eq!(merged(&["a", "b", "x", "y"], &["b", "a", "z"]), json!(["b", "x", "y", "a", "z"]));
    assert_eq!(merged(&["a", "a", "b"], &["a"]), json!(["a", "b"]));
    assert_eq!(merged(&[], &["b", "a"]), json!(["b", "a"]));
}

#[test]
fn merging_empty_or_null_collections_removes_no_live_values() {
    let schema = schema();
    let live = object(json!({"map": {"a": "1"}, "set": ["a"], "inner": {"x": "1"}, "s": "1"}));
    for applied in [json!({}), json!({"map": {}, "set": []}), json!({"map": null, "inner": null})] {
        let merged = merge(place(&schema), &live, &object(applied.clone())).unwrap();
        assert_eq!(merged, live, "{applied}");
    }
    let merged = merge(place(&schema), &live, &object(json!({"s": null}))).unwrap();
    assert_eq!(merged["spec"]["s"], Value::Null);
}

#[test]
fn a_map_without_remaining_keys_becomes_null() {
    let schema = schema();
    let place = place(&schema);
    let found = object(json!({"map": {"a": "1"}, "set": ["a", "b"], "s": "1"}));
    let spec = |paths: Value| {
        let set = fields_v1::read(&json!({"f:spec": paths}).to_string()).unwrap();
        remove(place, &found, &set)["spec"].clone()
    };
    assert_eq!(spec(json!({"f:s": {}})), json!({"map": {"a": "1"}, "set": ["a", "b"]}));
    assert_eq!(
        spec(json!({"f:map": {"f:a": {}}})),
        json!({"map": null, "set": ["a", "b"], "s": "1"})
    );
    assert_eq!(spec(json!({"f:set": {"v:\"a\"": {}}}))["set"], json!(["b"]));
    let parents = with_declared_parents(place, set(&["spec.map.a", "spec.inner.x"]));
    assert_eq!(parents, set(&["spec", "spec.map", "spec.map.a", "spec.inner", "spec.inner.x"]));
}

#[test]
fn type_mismatches_are_reported_with_paths() {
    let schema = schema();
    let check = |spec| check(place(&schema), &object(spec)).unwrap_err();
    assert_eq!(check(json!({"bogus": 1})), ".spec.bogus: field not declared in schema");
    assert_eq!(check(json!({"set": ["a", "a"]})), ".spec.set: duplicate entries for key [=\"a\"]");
    let twice = json!({"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]});
    let expected = ".spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]";
    assert_eq!(check(twice.clone()), expected);
    assert!(check_loosely(place(&schema), &object(twice)).is_ok());
    let several = check(json!({"i": "x", "s": 1}));
    assert_eq!(
        several,
        "errors:\n  .spec.i: expected numeric (int or float), got string\n  .spec.s: expected string, got &value.valueUnstructured{Value:1}"
    );
}

/// Pseudorandom numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn texts(&mut self) -> Value {
        let texts = ["a", "b", "c", "d"].into_iter().filter(|_| self.roll(2) == 0);
        let mut texts: Vec<&str> = texts.collect();
        if self.roll(2) == 0 {
            texts.reverse();
        }
        texts.into()
    }

    fn spec(&mut self) -> Value {
        let mut spec = Map::new();
        for name in ["s", "t", "map", "set", "atomic", "inner", "whole", "free", "ports"] {
            if self.roll(3) == 0 {
                continue;
            }
            let number = self.roll(3).to_string();
            let value = match name {
                "s" | "t" => number.into(),
                "set" | "atomic" => self.texts(),
                "whole" => json!({"x": number}),
                "ports" => {
                    let mut ports = Vec::new();
                    for port in [80, 81, 82] {
                        match self.roll(3) {
                            0 => ports.push(json!({"port": port, "tags": self.texts()})),
                            1 => {
                                ports
                                    .push(json!({"port": port, "protocol": "UDP", "name": number}));
                            }
                            _ => {}
                        }
                    }
                    ports.into()
                }
                _ => {
                    let names = ["x", "y"].into_iter().filter(|_| self.roll(2) == 0);
                    let members = names.map(|name| (name.to_owned(), number.clone().into()));
                    Value::Object(members.collect())
                }
            };
            spec.insert(name.to_owned(), value);
        }
        spec.into()
    }
}

fn manager(name: &str, operation: Operation) -> Manager {
    Manager {
        name: name.to_owned(),
        operation,
        api_version: VERSION.to_owned(),
        subresource: String::new(),
    }
}

/// Returns a value in which some parts have a wrong type and some fields are unknown.
fn spoilt(value: Value, dice: &mut Dice) -> Value {
    const ONE_OF: u64 = 25;
    if dice.roll(ONE_OF) == 0 {
        let others = [json!(null), json!(7), json!("x"), json!([]), json!([1]), json!({"x": [1]})];
        return others[usize::try_from(dice.roll(6)).unwrap()].clone();
    }
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(|item| spoilt(item, dice)).collect();
            if dice.roll(ONE_OF) == 0 {
                items.extend(items.first().cloned());
            }
            items.into()
        }
        Value::Object(members) => {
            let mut members: Map<String, Value> =
                members.into_iter().map(|(name, member)| (name, spoilt(member, dice))).collect();
            if dice.roll(ONE_OF) == 0 {
                members.insert("bogus".to_owned(), 1.into());
            }
            Value::Object(members)
        }
        other => other,
    }
}

#[test]
fn a_combined_walk_equals_a_check_and_a_comparison() {
    let schema = schema();
    let place = place(&schema);
    let mut dice = Dice(4);
    let mut fitting = 0;
    for _ in 0..20_000 {
        let old = dice.spec();
        // Most of a changed object equals the old object.
        let whole = if dice.roll(2) == 0 { old.clone() } else { dice.spec() };
        let (old, new) = (object(old), object(spoilt(whole, &mut dice)));
        let two = check_loosely_beside(place, &new, &old).and_then(|()| compare(place, &old, &new));
        let one = compare_checked(place, &old, &new);
        assert_eq!(one, two, "{old:?} {new:?}");
        fitting += u32::from(one.is_ok());
    }
    assert!((5_000..15_000).contains(&fitting), "{fitting} of 20,000 fit their type");
}

struct World {
    schema: Schema,
    live: Map<String, Value>,
    managers: Managers,
}

impl World {
    fn new() -> Self {
        let mut live = object(json!({}));
        live.remove("spec");
        live.remove("metadata");
        Self { schema: schema(), live, managers: Managers::default() }
    }

    fn apply(&mut self, name: &str, spec: &Value, force: bool) -> Result<bool, Refused> {
        let versions = Versions::new(VERSION).with(VERSION.to_owned(), &self.schema, &[]);
        let outcome = apply(
            &Application {
                versions: &versions,
                manager: &manager(name, Operation::Apply),
                live: &self.live,
                applied: &object(spec.clone()),
                force,
                now: "2026-01-01T00:00:00Z",
            },
            &self.managers,
        )?;
        self.managers = outcome.managers;
        let is_changed = outcome.object.is_some();
        self.live = outcome.object.unwrap_or_else(|| self.live.clone());
        Ok(is_changed)
    }

    fn update(&mut self, name: &str, spec: &Value) {
        let versions = Versions::new(VERSION).with(VERSION.to_owned(), &self.schema, &[]);
        let new = object(spec.clone());
        let change = Update {
            versions: &versions,
            manager: &manager(name, Operation::Update),
            live: &self.live,
            is_live_checked: false,
            new: &new,
            now: "2026-01-01T00:00:00Z",
        };
        update(&change, &mut self.managers).unwrap();
        self.live = new;
    }

    fn everything_owned(&self) -> FieldSet {
        self.managers.iter().fold(FieldSet::default(), |all, one| all.union(one.fields.set()))
    }
}

#[test]
fn applies_detected_as_unchanged_merge_to_an_equal_object() {
    let schema = schema();
    let place = place(&schema);
    let (mut certain, mut uncertain) = (0, 0);
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let live = object(dice.spec());
        // Most applied objects are a part of the live object.
        let mut applied = if dice.roll(4) == 0 { object(dice.spec()) } else { live.clone() };
        let spec = applied["spec"].as_object_mut().unwrap();
        spec.retain(|_, _| dice.roll(4) != 0);
        for item in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            item.as_object_mut().unwrap().retain(|name, _| name == "port" || dice.roll(3) != 0);
        }
        if dice.roll(3) == 0
            && let Some(Value::Array(items)) = spec.get_mut("ports")
        {
            items.reverse();
        }
        let is_same = merge(place, &live, &applied).is_ok_and(|merged| are_same(&live, &merged));
        match is_unchanged(place, &live, &applied) {
            true => {
                assert!(is_same, "{seed}: {live:?} {applied:?}");
                certain += 1;
            }
            false if is_same => uncertain += 1,
            false => {}
        }
    }
    assert!(certain > 3_000 && uncertain < certain, "{certain} {uncertain}");
}

#[test]
fn repeating_an_apply_changes_neither_object_nor_managers() {
    for seed in 0..2_000 {
        let mut dice = Dice(seed);
        let mut world = World::new();
        for step in 0..12 {
            let name = ["a", "b", "c"][dice.roll(3) as usize];
            let spec = dice.spec();
            match dice.roll(3) {
                0 => world.update(name, &spec),
                force => {
                    let before = (world.live.clone(), world.managers.clone());
                    if world.apply(name, &spec, force == 1).is_err() {
                        // A rejected apply changes neither the object nor its managers.
                        assert_eq!((world.live.clone(), world.managers.clone()), before);
                        world.apply(name, &spec, true).unwrap();
                    }
                    if world.live["spec"].to_string().contains("null") {
                        // Validation rejects such an object.
                        (world.live, world.managers) = before;
                        continue;
                    }
                    // Applying the same object again changes nothing.
                    let after = (world.live.clone(), world.managers.clone());
                    let is_changed = world.apply(name, &spec, false).unwrap();
                    if is_changed {
                        // An empty list has no owner, so one apply removes it and the next one adds it again.
                        assert!(spec.to_string().contains("[]"), "{seed} {step}: {spec}");
                        continue;
                    }
                    assert_eq!((world.live.clone(), world.managers.clone()), after);
                }
            }
            // Encoded managers can be parsed.
            assert_eq!(Managers::read(&world.managers.write()).unwrap(), world.managers);
            // An applier owns all fields that it has applied, and the object has all of them.
            let mut paths = 0;
            world.everything_owned().for_each(&mut |_| paths += 1);
            assert!(paths < 200);
        }
    }
}

#[test]
fn applies_give_equal_results_with_encoded_and_decoded_field_sets() {
    for seed in 0..1_000 {
        let mut dice = Dice(seed);
        let (mut written, mut sets) = (World::new(), World::new());
        for step in 0..10 {
            let name = ["a", "b", "c"][dice.roll(3) as usize];
            let spec = dice.spec();
            let way = dice.roll(3);
            for world in [&mut written, &mut sets] {
                match way {
                    0 => world.update(name, &spec),
                    way => {
                        let before = (world.live.clone(), world.managers.clone());
                        let refused = world.apply(name, &spec, way == 1).is_err();
                        if refused || world.live["spec"].to_string().contains("null") {
                            (world.live, world.managers) = before;
                        }
                    }
                }
            }
            written.managers = Managers::read(&written.managers.write()).unwrap();
            sets.managers.retain(|_, fields| Some(fields.set().into()));
            assert_eq!(written.live, sets.live, "{seed} {step}");
            assert_eq!(written.managers, sets.managers, "{seed} {step}");
            assert_eq!(written.managers.write(), sets.managers.write(), "{seed} {step}");
        }
    }
}

#[test]
fn applies_without_common_fields_commute() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let (Value::Object(first), Value::Object(second)) = (dice.spec(), dice.spec()) else {
            unreachable!()
        };
        // The two objects have no fields in common.
        let is_first = |name: &String| name.as_bytes()[0].is_multiple_of(2);
        let first: Map<_, _> = first.into_iter().filter(|(name, _)| is_first(name)).collect();
        let second: Map<_, _> = second.into_iter().filter(|(name, _)| !is_first(name)).collect();
        if first.is_empty() || second.is_empty() {
            // A manager that changes nothing has no time.
            continue;
        }
        let (first, second) = (Value::Object(first), Value::Object(second));
        let (mut one, mut other) = (World::new(), World::new());
        one.apply("a", &first, false).unwrap();
        one.apply("b", &second, false).unwrap();
        other.apply("b", &second, false).unwrap();
        other.apply("a", &first, false).unwrap();
        assert_eq!(one.live, other.live, "{seed}");
        assert_eq!(one.managers, other.managers, "{seed}");
    }
}

#[test]
fn conflicts_name_every_owner_and_path() {
    let mut world = World::new();
    world.apply("a", &json!({"s": "1", "ports": [{"port": 80, "name": "x"}]}), false).unwrap();
    world.update("u", &json!({"s": "2", "ports": [{"port": 80, "name": "x"}]}));
    let refused = world.apply("b", &json!({"s": "3", "ports": [{"port": 80, "name": "y"}]}), false);
    let Err(Refused::Conflicts(conflicts)) = refused else { panic!("{refused:?}") };
    assert_eq!(
        conflicts.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.ports[port=80,protocol=\"TCP\"].name\nconflicts with \"u\" using example.com/v1:\n- .spec.s"
    );
    let refused = world.apply("b", &json!({"s": "3"}), false);
    let Err(Refused::Conflicts(conflicts)) = refused else { panic!("{refused:?}") };
    let expected =
        "Apply failed with 1 conflict: conflict with \"u\" using example.com/v1: .spec.s";
    assert_eq!(conflicts.to_string(), expected);
}
