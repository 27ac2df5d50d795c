//! Tests of the limits that apply to all expressions.

#![allow(clippy::unwrap_used)] // the whole file is a test

use std::sync::Arc;

use kubernetes_cel::{Budget, CompileError, Declared, Environment, ListKind, Outcome};
use serde_json::{Value, json};

fn environment() -> Environment {
    let list = Declared::list(Arc::new(Declared::integer()), None, &ListKind::Atomic);
    Environment::new(Arc::new(list))
}

fn outcome(text: &str, value: &Value) -> Outcome {
    let program = environment().compile(text).unwrap();
    program.evaluate(value, None, &mut Budget::new(10_000_000, 1_000_000))
}

/// Runs a function on a stack of 1 MiB, which is the stack of a server's worker without the part that its callers use.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
    thread.join().unwrap();
}

#[test]
fn expressions_nested_too_deeply_are_rejected() {
    on_a_small_stack(|| {
        for (open, close) in [("(", ")"), ("[", "]"), ("-(", ")"), ("!(", ")"), ("{1:", "}")] {
            for depth in [1_000, 20_000] {
                let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let why = environment().compile(&text).unwrap_err().to_string();
                assert!(why.contains("recursion limit exceeded: 250"), "{open}: {why}");
            }
        }
        for text in ["1".to_owned() + &"+1".repeat(1_000), "self".to_owned() + &".a".repeat(1_000)]
        {
            let why = environment().compile(&text).unwrap_err().to_string();
            assert!(why.contains("recursion limit exceeded: 250"), "{why}");
        }
        let long = "a".repeat(100_001);
        let why = environment().compile(&long).unwrap_err().to_string();
        assert!(why.contains("expression code point size exceeds limit"), "{why}");
    });
}

#[test]
fn the_deepest_expression_is_evaluated_on_a_small_stack() {
    on_a_small_stack(|| {
        let parentheses = format!("{}true{}", "(".repeat(200), ")".repeat(200));
        assert_eq!(outcome(&parentheses, &json!([])), Outcome::Bool(true));
        let sum = format!("1{} == 200", "+1".repeat(199));
        assert_eq!(outcome(&sum, &json!([])), Outcome::Bool(true));
        let and = format!("true{}", " && true".repeat(5_000));
        assert_eq!(outcome(&and, &json!([])), Outcome::Bool(true));
        let lists = |depth| format!("{}1{}.size() == 1", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(outcome(&lists(200), &json!([])), Outcome::Bool(true));
        // Macros make an expression deeper.
        let nested = |depth: usize| {
            let all: String = (0..depth).map(|at| format!("[1].all(x{at}, ")).collect();
            format!("{all}true{}", ")".repeat(depth))
        };
        assert_eq!(outcome(&nested(70), &json!([])), Outcome::Bool(true));
        let why = environment().compile(&nested(200)).unwrap_err();
        assert!(matches!(why, CompileError::Unsupported(_)), "{why}");
    });
}

#[test]
fn nested_macros_that_double_a_list_fail_to_compile() {
    let mut text = "self.size() == 1".to_owned();
    for _ in 0..40 {
        text = format!("optional.of(self).optMap(l, l + l).hasValue() && {text}");
    }
    assert_eq!(outcome(&text, &json!([1])), Outcome::Bool(true));
    let double = (0..40).fold("self".to_owned(), |list, at| {
        format!("optional.of({list}).optMap(l{at}, l{at} + l{at}).value()")
    });
    // The copies of the macro are limited too.
    let why = environment().compile(&format!("{double}.size() > 0")).unwrap_err();
    assert!(why.to_string().contains("optMap() makes the expression too large"), "{why}");
}

#[test]
fn loops_stop_at_the_cost_limit() {
    let many = json!((0..2_000).collect::<Vec<_>>());
    let nested = "self.all(x, self.all(y, self.all(z, x >= 0 || y >= z)))";
    assert_eq!(outcome(nested, &many), Outcome::CallTooDear);
    let program = environment().compile("self.all(x, x >= 0)").unwrap();
    let mut budget = Budget::new(20_000, 1_000_000);
    assert_eq!(program.evaluate(&many, None, &mut budget), Outcome::Bool(true));
    assert_eq!(program.evaluate(&many, None, &mut budget), Outcome::OutOfBudget);
    assert_eq!(budget.left(), 0);
}

#[test]
fn work_that_cel_costs_undercount_is_limited() {
    let many = json!((0..100_000).collect::<Vec<_>>());
    // Each comparison costs a tenth of the number of items, and reads all of them.
    let text = format!("lists.range(100000).all(x, {})", ["self == self"; 20].join(" && "));
    assert_eq!(outcome(&text, &many), Outcome::CallTooDear);
    assert_eq!(outcome("lists.range(5000000).size() == 1", &json!([])), Outcome::CallTooDear);
    assert_eq!(outcome("lists.range(1000000000).size() == 1", &json!([])), Outcome::OutOfBudget);
}

/// An expression whose value has very many parts, which are shared.
fn shared(times: usize) -> String {
    let ten = ".map(x, [x, x, x, x, x, x, x, x, x, x])";
    format!("[0]{}", ten.repeat(times))
}

#[test]
fn repeated_references_to_one_list_count_each_time() {
    let stopped = |text: &str, value: &Value| {
        let outcome = outcome(text, value);
        let is_stopped = matches!(outcome, Outcome::CallTooDear | Outcome::OutOfBudget);
        assert!(is_stopped, "{text}: {outcome:?}");
    };
    let lists = shared(12);
    stopped(&format!("'%s'.format([{lists}]) != ''"), &json!([]));
    stopped(&format!("dyn({lists}).indexOf(dyn([])) == -1"), &json!([]));
    stopped(&format!("{lists} == {lists}"), &json!([]));
    // Messages contain only the beginning of a value.
    for text in
        [format!("[?dyn({})].size() == 1", shared(8)), format!("[dyn({lists})].join() == ''")]
    {
        let program = environment().compile(&text).unwrap();
        let failed = program.evaluate(&json!([]), None, &mut Budget::new(10_000_000, 1_000_000));
        let Outcome::Failed(why) = failed else { panic!("{text}: {failed:?}") };
        assert!(why.len() < 20_000, "{}", why.len());
    }
}

#[test]
fn words_lead_deeper_too() {
    on_a_small_stack(|| {
        let text = format!("true{}", " in [true]".repeat(100));
        assert_eq!(outcome(&text, &json!([])), Outcome::Bool(true));
        let text = format!("self{}", " in self".repeat(240));
        assert!(environment().compile(&text).is_err(), "a flag is in no list of numbers");
    });
}

#[test]
fn work_on_long_strings_is_limited() {
    let text = Declared::string("", None, &[]);
    let environment = Environment::new(Arc::new(text));
    let long = Value::from("x".repeat(1 << 20));
    let outcome = |text: &str, value: &Value| {
        let program = environment.compile(text).unwrap();
        program.evaluate(value, None, &mut Budget::new(10_000_000, 1_000_000))
    };
    let hundred = "y".repeat(100);
    assert_eq!(
        outcome(&format!("self.replace('', '{hundred}').size() > 0"), &long),
        Outcome::CallTooDear
    );
    assert_eq!(outcome("self.split('').size() > 0", &long), Outcome::CallTooDear);
    assert_eq!(outcome("[1, 2].all(x, self != 'x')", &long), Outcome::Bool(true));
    let many = "lists.range(50000).all(x, self != 'x')";
    assert_eq!(outcome(many, &long), Outcome::CallTooDear);
    assert_eq!(outcome(many, &json!("short")), Outcome::Bool(true));
    for (text, expected) in [
        ("self.lastIndexOf('abb', 1) == 0", true),
        ("self.lastIndexOf('abb', 3) == 0", true),
        ("self.lastIndexOf('abb', 4) == 4", true),
        ("self.lastIndexOf('é', 2) == -1", true),
        ("self.lastIndexOf('é', 3) == 3", true),
    ] {
        assert_eq!(outcome(text, &json!("abbéabb")), Outcome::Bool(expected), "{text}");
    }
}
