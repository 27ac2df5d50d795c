use serde_json::{Value, json};

use super::{check_rules, judge, judge_at_once, judge_default};
use crate::Schema;
use crate::error::Path;
use crate::object::Tree;

fn tree(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        _ => Tree::new(),
    }
}

fn schema(of_spec: Value) -> Schema {
    Schema::of_definition(&json!({"type": "object", "properties": {"spec": of_spec}}))
}

/// Returns the errors and the warnings about a spec that may replace an old one.
fn said(schema: &Schema, spec: Value, old: Option<Value>) -> (Vec<String>, Vec<String>) {
    let whole = |spec: Value| tree(json!({"spec": spec}));
    let old = old.map(whole);
    let verdict = judge(schema, &whole(spec), old.as_ref());
    (verdict.errors.iter().map(ToString::to_string).collect(), verdict.warnings)
}

fn faults(written: &Value) -> Vec<String> {
    let found = check_rules(&Schema::of_definition(written), written, "s");
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn validation_rules_read_self_and_old_self() {
    let item = json!({
        "type": "object",
        "properties": {"k": {"type": "string"}, "v": {
            "type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "sinks"}],
        }},
    });
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]},
            "l": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": item,
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.l) || self.l.size() < 3", "messageExpression": "'%d'.format([size(self.l)])"},
        ],
    }));
    assert!(said(&schema, json!({"a": 4}), None).0.is_empty());
    let five = "spec.a: Invalid value: 5: failed rule: self < 5".to_owned();
    assert_eq!(said(&schema, json!({"a": 5}), None).0.concat(), five);
    // An error of an unchanged value is only a warning. A different value is rejected.
    let (errors, warnings) = said(&schema, json!({"a": 5}), Some(json!({"a": 5, "l": []})));
    assert!(errors.is_empty());
    assert_eq!(warnings, [five]);
    assert_eq!(said(&schema, json!({"a": 6}), Some(json!({"a": 5}))).0.len(), 1);
    // Elements are matched by their keys.
    let old = json!({"l": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]});
    let sunk = json!({"l": [{"k": "y", "v": 1}, {"k": "x", "v": 1}]});
    assert_eq!(said(&schema, sunk, Some(old.clone())).0, ["spec.l[0].v: Invalid value: 1: sinks"]);
    let more = json!({"l": [{"k": "y", "v": 2}, {"k": "z", "v": 0}, {"k": "x"}]});
    assert_eq!(said(&schema, more, Some(old)).0, ["spec: Invalid value: 3"]);
}

#[test]
fn invalid_or_expensive_rules_in_a_definition_are_reported() {
    let rules = |rules: Value| json!({"type": "object", "x-kubernetes-validations": rules});
    assert!(faults(&rules(json!([{"rule": "self.metadata.name != 'a'"}]))).is_empty());
    let found = faults(&rules(json!([{"rule": "self.a == 1"}])));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("s.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":"));
    assert!(found[0].ends_with("undefined field 'a'\n | self.a == 1\n | ....^"), "{}", found[0]);
    let dear = json!({"type": "object", "properties": {"l": {
        "type": "array",
        "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x != y))"}],
    }}});
    assert!(
        faults(&dear)[0].contains("estimated rule cost exceeds budget by factor of more than 100x")
    );
}

#[test]
fn defaults_are_judged() {
    let schema = Schema::of_definition(&json!({
        "type": "integer",
        "x-kubernetes-validations": [{"rule": "self > 1"}],
    }));
    let path = Path::Member(&Path::Root, "default");
    assert!(judge_default(schema.root(), &json!(2), &path).is_empty());
    let errors = judge_default(schema.root(), &json!(1), &path);
    assert_eq!(errors[0].to_string(), "default: Invalid value: 1: failed rule: self > 1");
}

#[test]
fn kinds_without_rules_are_not_looked_at() {
    let schema = schema(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    assert!(!schema.root().subtree.rules);
    assert!(said(&schema, json!({"a": 1}), None).0.is_empty());
}

#[test]
fn expensive_rules_exceed_the_small_budget() {
    let schema = schema(json!({
        "type": "array",
        "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x + y > 0))"}],
    }));
    let of = |count: usize| tree(json!({"spec": vec![1; count]}));
    let few = judge_at_once(&schema, &of(10), None).unwrap();
    assert!(few.errors.is_empty());
    assert!(judge_at_once(&schema, &of(200), None).is_none());
    assert!(judge(&schema, &of(200), None).errors.is_empty());
    assert!(!judge(&schema, &of(2_000), None).errors.is_empty());
    // A rejection with the small budget has the same message.
    let refused = tree(json!({"spec": [1, -1]}));
    let at_once = judge_at_once(&schema, &refused, None).unwrap();
    let in_full = judge(&schema, &refused, None);
    assert_eq!(at_once.errors[0].to_string(), in_full.errors[0].to_string());
}
