//! Compares this crate with recorded results of cel-go with kube-apiserver's functions, for expressions and for rules
//! about an object with a schema. Each fact is a line with the expression, its estimated largest cost (only for rules),
//! its actual cost, and its result: `is VALUE`, `failed WHY`, `refused WHY`, or `any` value.

#![allow(clippy::unwrap_used)] // the whole file is a test

use std::sync::Arc;

use kubernetes_cel::{Budget, CompileError, Data, Declared, Environment, Field, ListKind, Outcome};
use serde_json::{Value, json};

const RULES: &str = include_str!("facts/rules.txt");
const EXPRESSIONS: &str = include_str!("facts/expressions.txt");

/// The cost limit of one call.
const PER_CALL: u64 = 1_000_000;

fn unescaped(text: &str) -> String {
    let mut unescaped = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        unescaped.push(match char {
            '\\' => match chars.next().unwrap() {
                'n' => '\n',
                't' => '\t',
                same => same,
            },
            char => char,
        });
    }
    unescaped
}

/// The estimated cost of an expression, its actual cost, and its result.
fn said(environment: &Environment, text: &str, value: &Value, old: &Value) -> (u64, u64, String) {
    let program = match environment.compile(text) {
        Ok(program) => program,
        Err(why @ CompileError::Program(_)) => {
            return (0, 0, format!("refused program: {why}"));
        }
        Err(why) => return (0, 0, format!("refused {why}")),
    };
    let mut budget = Budget::new(u64::MAX, PER_CALL);
    let came_to = match program.evaluate(value, Some(Data::Value(old)), &mut budget) {
        Outcome::Bool(flag) => format!("is {flag}"),
        Outcome::String(text) | Outcome::Other(text) => format!("is {text}"),
        Outcome::Failed(why) => format!("failed {why}"),
        other => format!("{other:?}"),
    };
    (program.most_cost(), u64::MAX - budget.left(), came_to)
}

fn agree(expected: &str, said: &str) -> bool {
    match expected {
        "any" => said.starts_with("is "),
        expected => expected == said,
    }
}

#[test]
fn expressions_have_the_cost_and_result_of_cel_go() {
    let environment = Environment::new(Arc::new(Declared::object(Vec::new())));
    let mut differ = Vec::new();
    for line in EXPRESSIONS.lines() {
        let fields: Vec<String> = line.split('\t').map(unescaped).collect();
        let [text, cost, expected] = &fields[..] else { panic!("{line}") };
        let (_, spent, said) = said(&environment, text, &json!({}), &json!({}));
        if spent.to_string() != *cost || !agree(expected, &said) {
            differ.push(format!("{text}\n  {cost} {expected}\n  {spent} {said}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn validation_rules_have_the_cost_and_result_of_cel_go() {
    let environment = Environment::new(Arc::new(declared()));
    let (value, old) = (value(), old());
    let mut differ = Vec::new();
    for line in RULES.lines() {
        let fields: Vec<String> = line.split('\t').map(unescaped).collect();
        let [text, most, cost, expected] = &fields[..] else { panic!("{line}") };
        let (most_cost, spent, said) = said(&environment, text, &value, &old);
        let costs = (most_cost.to_string(), spent.to_string());
        if costs != (most.clone(), cost.clone()) || !agree(expected, &said) {
            differ
                .push(format!("{text}\n  {most} {cost} {expected}\n  {most_cost} {spent} {said}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

fn field(name: &str, of: Declared, is_required: bool) -> Field {
    Field { name: name.to_owned(), of: Some(Arc::new(of)), is_required, has_default: false }
}

fn text(longest: Option<u64>) -> Declared {
    Declared::string("", longest, &[])
}

fn list(of: Declared, most: Option<u64>) -> Declared {
    Declared::list(Arc::new(of), most, &ListKind::Atomic)
}

fn object(fields: Vec<(&str, Declared)>) -> Declared {
    Declared::object(fields.into_iter().map(|(name, of)| field(name, of, false)).collect())
}

fn declared() -> Declared {
    let key = field("k", text(None), true);
    let item = Declared::object(vec![key, field("v", Declared::integer(), false)]);
    let keyed = ListKind::Map(vec!["k".to_owned()]);
    let inner = object(vec![("q", text(None))]);
    let members = vec![
        ("x", Declared::integer()),
        ("y-z", text(None)),
        ("in", text(None)),
        ("a__b", text(None)),
        ("ob", inner),
    ];
    let fields = vec![
        ("u", text(None)),
        ("f", Declared::number()),
        ("b", Declared::boolean()),
        ("e", Declared::string("", None, &["aa", "bbb"])),
        ("t", Declared::string("date-time", None, &[])),
        ("d", Declared::string("date", None, &[])),
        ("du", Declared::string("duration", None, &[])),
        ("by", Declared::string("byte", None, &[])),
        ("io", Declared::int_or_string(None)),
        ("ios", Declared::int_or_string(Some(5))),
        ("l", list(Declared::integer(), Some(10))),
        ("ls", list(text(Some(30)), None)),
        ("lu", list(text(None), None)),
        ("set", Declared::list(Arc::new(text(None)), None, &ListKind::Set)),
        ("lm", Declared::list(Arc::new(item), None, &keyed)),
        ("m", Declared::map(Arc::new(text(None)), None)),
        ("mm", Declared::map(Arc::new(Declared::integer()), Some(5))),
        ("o", object(members)),
        ("o2", object(vec![("x", Declared::integer())])),
        ("p", object(Vec::new())),
        ("pp", object(vec![("z", Declared::integer())])),
        ("nu", text(None).nullable()),
        ("ll", list(list(Declared::integer(), Some(4)), Some(3))),
    ];
    let optional = fields.into_iter().map(|(name, of)| field(name, of, false));
    let required =
        [field("n", Declared::integer(), true), field("s", text(Some(20)), true)].into_iter();
    Declared::object(required.chain(optional).collect())
}

fn value() -> Value {
    json!({
        "n": 3, "s": "abc", "u": "hello world", "f": 1.5, "b": true, "e": "aa",
        "t": "2020-05-06T07:08:09Z", "d": "2020-01-02", "du": "1h30m", "by": "YWJj",
        "io": 5, "ios": "50%", "l": [1, 2, 3], "ls": ["a", "b", "c"], "lu": ["x", "yy"],
        "set": ["a", "b"], "lm": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
        "m": {"a": "1", "b": "2"}, "mm": {"x": 1, "y": 2},
        "o": {"x": 1, "y-z": "w", "in": "i", "a__b": "c", "ob": {"q": "1"}}, "o2": {"x": 1},
        "p": {"any": 1}, "pp": {"z": 1, "w": 2}, "nu": null, "ll": [[1, 2], [3]],
    })
}

fn old() -> Value {
    json!({
        "n": 2, "s": "abd", "set": ["b", "a"], "lm": [{"k": "b", "v": 2}, {"k": "a", "v": 1}],
        "l": [1, 2], "m": {"a": "1"},
    })
}
