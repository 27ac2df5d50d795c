//! Composition: named expressions, which other expressions use as fields of one variable.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cost::{Budget, Meter};
use crate::environment::{CompileError, Data, Environment, Outcome, Program};
use crate::evaluate::Evaluation;
use crate::types::Type;
use crate::value::{Failure, Outcome as CelOutcome};

/// The named expressions of an environment.
#[derive(Clone, Debug)]
pub(crate) struct Composition {
    /// The variable whose fields are the results.
    pub variable: Arc<str>,
    /// The name of its type.
    pub type_name: Arc<str>,
    expressions: Vec<Arc<NamedExpression>>,
    /// The last expression of each name.
    by_name: HashMap<Box<str>, usize>,
}

/// A named expression.
#[derive(Debug)]
pub(crate) struct NamedExpression {
    name: Box<str>,
    /// The program, or the reason why it cannot be compiled.
    program: Result<Program, String>,
    /// The type of the field.
    of: Type,
}

impl Composition {
    /// The index of a named expression.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The type of the field with this name.
    pub(crate) fn type_of(&self, name: &str) -> Option<&Type> {
        Some(&self.expressions.get(self.find(name)?)?.of)
    }

    /// The depth of a named expression, including the named expressions that it uses.
    pub(crate) fn depth(&self, index: usize) -> usize {
        let program = self.expressions.get(index).and_then(|one| one.program.as_ref().ok());
        program.map_or(0, |program| program.depth)
    }
}

impl Environment {
    /// The same environment with one more variable, whose fields are the results of named expressions. Its type has
    /// this name in error messages.
    ///
    /// ```
    /// use kubernetes_cel::{Budget, Data, Environment, Outcome};
    /// use serde_json::json;
    ///
    /// let environment = Environment::of_variables(&["object"]);
    /// let mut environment = environment.with_composition("variables", "kubernetes.variables");
    /// environment.add_expression("size", "object.items.size()").unwrap();
    /// let program = environment.compile("variables.size > 1").unwrap();
    /// let object = json!({"items": [1, 2]});
    /// let mut activation = environment.activation(&[Data::Value(&object)]);
    /// let mut budget = Budget::new(10_000, 1_000);
    /// assert_eq!(program.evaluate_in(&mut activation, &mut budget), Outcome::Bool(true));
    /// ```
    #[must_use]
    pub fn with_composition(mut self, variable: &str, type_name: &str) -> Self {
        self.composition = Some(Composition {
            variable: variable.into(),
            type_name: type_name.into(),
            expressions: Vec::new(),
            by_name: HashMap::new(),
        });
        self
    }

    /// Adds a named expression, which expressions that are compiled later can use. It is evaluated at its first use. An
    /// expression that cannot be compiled is added too: its evaluation fails.
    ///
    /// # Errors
    /// If the expression cannot be compiled.
    pub fn add_expression(&mut self, name: &str, text: &str) -> Result<(), CompileError> {
        let compiled = self.compile(text);
        let of = compiled.as_ref().map_or(Type::Dyn, |program| field_type(&program.output_type));
        let (program, result) = match compiled {
            Ok(program) => (Ok(program), Ok(())),
            Err(why) => (Err(format!("compilation failed: {why}")), Err(why)),
        };
        if let Some(composition) = &mut self.composition {
            composition.by_name.insert(name.into(), composition.expressions.len());
            let expression = NamedExpression { name: name.into(), program, of };
            composition.expressions.push(Arc::new(expression));
        }
        result
    }

    /// The values of the variables, in the same order, for the evaluation of expressions of this environment.
    pub fn activation<'v>(&'v self, values: &[Data<'v>]) -> Activation<'v> {
        Activation {
            environment: self,
            values: values.iter().map(|value| value.read(&self.declared)).collect(),
            known: HashMap::new(),
            spent: 0,
            pending: 0,
            left: 0,
            per_call: 0,
        }
    }
}

/// The type of the field for a result of this type. Only basic types, lists and maps are known before the evaluation.
fn field_type(output: &Type) -> Type {
    match output {
        Type::List(of) => Type::list(field_type(of)),
        Type::Map(of) => Type::map(field_type(&of.0), field_type(&of.1)),
        Type::Any
        | Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Timestamp
        | Type::Duration => output.clone(),
        _ => Type::Dyn,
    }
}

/// The values of the variables of an environment, and the results of the named expressions that were evaluated with
/// them.
#[derive(Debug)]
pub struct Activation<'v> {
    environment: &'v Environment,
    values: Vec<CelOutcome<'v>>,
    known: HashMap<usize, CelOutcome<'v>>,
    /// The cost of the named expressions that one call has evaluated.
    spent: u64,
    /// The cost so far of the expressions whose evaluation waits for a named expression.
    pending: u64,
    /// The budget of the call.
    left: u64,
    /// The limit of one named expression.
    per_call: u64,
}

impl<'v> Activation<'v> {
    fn slots(&self, count: usize) -> Vec<Option<CelOutcome<'v>>> {
        let mut slots = vec![None; count];
        for (slot, value) in slots.iter_mut().zip(&self.values) {
            *slot = Some(value.clone());
        }
        slots
    }

    /// The result of a named expression, which is evaluated at its first use. The evaluation stops once the whole call
    /// has spent its budget.
    pub(crate) fn named(&mut self, index: usize, outer: &mut Meter) -> CelOutcome<'v> {
        if let Some(known) = self.known.get(&index) {
            return known.clone();
        }
        let environment = self.environment;
        let expressions = environment.composition.as_ref().map(|all| &all.expressions);
        let Some(expression) = expressions.and_then(|all| all.get(index)) else {
            return Err(Failure::new("no such attribute"));
        };
        let failed = |what: &str, why: &str| {
            let name = &expression.name;
            Failure::new(format!("composited variable {name:?} fails to {what}: {why}"))
        };
        let outcome = match &expression.program {
            Err(why) => Err(failed("compile", why)),
            Ok(program) => {
                let before = self.pending;
                let pending = before.saturating_add(outer.spent());
                let Some(left) = self.left.checked_sub(self.spent.saturating_add(pending)) else {
                    return Err(Failure::Limit);
                };
                // One more than is left: an evaluation that reaches this limit has spent the budget of the call.
                let limit = self.per_call.min(left.saturating_add(1));
                let mut meter = Meter::new(limit, outer.work_left(), outer.made_left());
                self.pending = pending;
                let slots = self.slots(program.slots);
                let mut evaluation =
                    Evaluation { slots, meter: &mut meter, activation: Some(&mut *self) };
                let outcome = evaluation.evaluate(&program.plan);
                self.pending = before;
                outer.continue_from(&meter);
                self.spent = self.spent.saturating_add(meter.spent());
                outcome.map_err(|why| failed("evaluate", &why.to_string()))
            }
        };
        self.known.insert(index, outcome.clone());
        outcome
    }
}

impl Program {
    /// Evaluates the expression on the values of the variables of its environment, and subtracts the cost from the
    /// budget, also that of the named expressions that are evaluated for the first time.
    pub fn evaluate_in<'v>(
        &'v self,
        activation: &mut Activation<'v>,
        budget: &mut Budget,
    ) -> Outcome {
        activation.per_call = budget.per_call;
        (activation.spent, activation.pending, activation.left) = (0, 0, budget.left);
        let outcome = self.metered(budget, |meter| {
            let slots = activation.slots(self.slots);
            let activation = Some(&mut *activation);
            let mut evaluation = Evaluation { slots, meter, activation };
            Ok(Outcome::of(evaluation.evaluate(&self.plan)?))
        });
        let left = budget.left.checked_sub(activation.spent);
        budget.left = left.unwrap_or_default();
        match (left, outcome) {
            (None, _) | (_, None) => Outcome::OutOfBudget,
            (_, Some(outcome)) => outcome.unwrap_or_else(Outcome::of_failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn environment(expressions: &[(&str, &str)]) -> Environment {
        let environment = Environment::of_variables(&["object"]);
        let mut environment = environment.with_composition("variables", "kubernetes.variables");
        for (name, text) in expressions {
            let _ = environment.add_expression(name, text);
        }
        environment
    }

    fn evaluated(environment: &Environment, text: &str, object: &Value, all: u64) -> Outcome {
        let program = environment.compile(text).unwrap();
        let mut activation = environment.activation(&[Data::Value(object)]);
        program.evaluate_in(&mut activation, &mut Budget::new(all, 1_000))
    }

    #[test]
    fn named_expressions_use_earlier_ones_and_are_evaluated_at_their_first_use() {
        let all = environment(&[
            ("a", "object.a + 1"),
            ("b", "variables.a * 2"),
            ("broken", "object.missing"),
            ("wrong", "1 +"),
            ("names", "['x', 'y']"),
        ]);
        let object = json!({"a": 1});
        let failed = |why: &str| Outcome::Failed(why.to_owned());
        for (text, expected) in [
            ("variables.b == 4", Outcome::Bool(true)),
            ("has(variables.b)", Outcome::Bool(true)),
            ("variables.a == 3 && variables.broken", Outcome::Bool(false)),
            ("variables.names.exists(variables, variables == 'y')", Outcome::Bool(true)),
            (
                "variables.broken",
                failed("composited variable \"broken\" fails to evaluate: no such key: missing"),
            ),
        ] {
            assert_eq!(evaluated(&all, text, &object, 10_000), expected, "{text}");
        }
        let Outcome::Failed(why) = evaluated(&all, "variables.wrong", &object, 10_000) else {
            panic!("it cannot be compiled");
        };
        assert!(why.starts_with("composited variable \"wrong\" fails to compile: "), "{why}");
    }

    #[test]
    fn fields_have_the_types_of_the_expressions() {
        let all = environment(&[("names", "['x', 'y']"), ("number", "1")]);
        for (text, expected) in [
            ("variables.other", "undefined field 'other'"),
            ("variables.names + 'x'", "'(list(string), string)'"),
            ("variables.number + 'x'", "'(int, string)'"),
            ("variables + 1", "'(kubernetes.variables, int)'"),
        ] {
            let why = all.compile(text).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn costs_of_named_expressions_count_once() {
        let all = environment(&[("sum", "[1, 2, 3].map(number, number + 1).size()")]);
        let object = json!({});
        let one = "variables.sum == 3";
        let two = "variables.sum + variables.sum == 6";
        let cost = |text: &str| {
            let program = all.compile(text).unwrap();
            let mut activation = all.activation(&[Data::Value(&object)]);
            let mut budget = Budget::new(10_000, 1_000);
            assert_eq!(program.evaluate_in(&mut activation, &mut budget), Outcome::Bool(true));
            10_000 - budget.left()
        };
        assert!(cost(two) < cost(one) + 10);
        assert_eq!(evaluated(&all, one, &object, cost(one)), Outcome::Bool(true));
        assert_eq!(evaluated(&all, one, &object, cost(one) - 1), Outcome::OutOfBudget);
    }

    #[test]
    fn named_expressions_stop_at_the_budget_of_the_call() {
        let text = "[1, 2, 3, 4, 5].map(number, number + 1).size() == 5";
        let names: Vec<String> = (0..200).map(|number| format!("a{number}")).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text)).collect();
        let all = environment(&all);
        let uses: Vec<String> = names.iter().map(|name| format!("variables.{name}")).collect();
        let negated: Vec<String> = uses.iter().take(40).map(|one| format!("!{one}")).collect();
        let object = json!({});
        for text in [format!("[{}].size() == 200", uses.join(", ")), negated.join(" || ")] {
            let program = all.compile(&text).unwrap();
            let mut activation = all.activation(&[Data::Value(&object)]);
            let mut budget = Budget::new(500, 400);
            assert_eq!(program.evaluate_in(&mut activation, &mut budget), Outcome::OutOfBudget);
            // A list costs at least 10.
            assert!(activation.known.len() <= 51, "{}", activation.known.len());
        }
    }

    #[test]
    fn chains_of_named_expressions_stop_at_the_budget_of_the_call() {
        let size = "[1, 2, 3, 4, 5].map(number, number + 1).size()";
        let mut all = environment(&[("a0", size)]);
        for number in 1..20 {
            let text = format!("{size} + variables.a{}", number - 1);
            all.add_expression(&format!("a{number}"), &text).unwrap();
        }
        let (program, object) = (all.compile("variables.a19 > 0").unwrap(), json!({}));
        let mut activation = all.activation(&[Data::Value(&object)]);
        let mut budget = Budget::new(1_000, 900);
        assert_eq!(program.evaluate_in(&mut activation, &mut budget), Outcome::OutOfBudget);
        assert!(activation.spent <= 1_100, "{}", activation.spent);
    }

    #[test]
    fn long_chains_of_named_expressions_are_refused() {
        let mut all = environment(&[("a0", "object.a")]);
        let refused = (1..10_000).find(|number| {
            let text = format!("variables.a{} + 1", number - 1);
            all.add_expression(&format!("a{number}"), &text).is_err()
        });
        // The last one has the largest depth, so no expression can use it.
        let last = format!("variables.a{}", refused.unwrap() - 2);
        assert!(matches!(evaluated(&all, &last, &json!({"a": 1}), 100_000), Outcome::Other(_)));
    }
}
