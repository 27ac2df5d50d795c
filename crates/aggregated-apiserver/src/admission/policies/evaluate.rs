//! The evaluation of the expressions of a policy for one write and one parameter object.

use kubernetes_cel::{Activation, Budget, Outcome};

use super::decision::{Annotation, Decision};
use super::policy::{Compiled, Policy, Validation};
use crate::admission::conditions::{self, Variables, are_met_in};
use crate::admission::expressions::{Expression, OUT_OF_BUDGET, OutOfBudget, PER_CALL};

/// The cost limit of all validations of one policy; same as kube-apiserver.
const BUDGET: u64 = 10_000_000;
/// The longest message, in bytes; same as kube-apiserver.
const LONGEST_MESSAGE: usize = 5 << 10;

/// The results of a policy for one write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Evaluated {
    /// The result of each validation.
    pub decisions: Vec<Decision>,
    pub annotations: Vec<Annotation>,
}

/// Evaluates the expressions of a policy. The budget applies to one call.
pub(super) fn evaluate(policy: &Policy, variables: &Variables<'_>) -> Evaluated {
    let compiled = policy.compiled();
    let evaluation = Evaluation { policy, compiled, variables };
    evaluation.run().unwrap_or_else(|why| Evaluated {
        decisions: vec![evaluation.failed(why)],
        annotations: Vec::new(),
    })
}

struct Evaluation<'v> {
    policy: &'v Policy,
    compiled: &'v Compiled,
    variables: &'v Variables<'v>,
}

impl<'v> Evaluation<'v> {
    /// The decision about an expression that fails.
    fn failed(&self, message: String) -> Decision {
        match self.policy.fails_closed {
            true => Decision::Deny { message, reason: None },
            false => Decision::Admit,
        }
    }

    /// New values of the variables: the variables of the policy are evaluated again.
    fn activation<'a>(&'a self, variables: &Variables<'a>) -> Activation<'a> {
        self.compiled.environment.activation(&match self.policy.param_kind {
            Some(_) => variables.values().to_vec(),
            None => variables.values()[..4].to_vec(),
        })
    }

    fn run(&self) -> Result<Evaluated, String> {
        if !self.compiled.conditions.is_empty() {
            // Conditions cannot use the namespace.
            let request = &conditions::data(self.variables.request);
            let variables = Variables { namespace: None, request, ..*self.variables };
            let are_met = are_met_in(&self.compiled.conditions, &mut self.activation(&variables));
            match are_met {
                Ok(true) => {}
                Ok(false) => return Ok(Evaluated::default()),
                Err(why) if self.policy.fails_closed => return Err(why),
                Err(_) => return Ok(Evaluated::default()),
            }
        }
        let out_of_budget = |_| OUT_OF_BUDGET.to_owned();
        let mut budget = Budget::new(BUDGET, PER_CALL);
        let validations = &self.compiled.validations;
        let expressions = validations.iter().map(|one| &one.expression);
        let results = self.all(expressions, &mut budget).map_err(out_of_budget)?;
        let messages = self.messages(&mut budget);
        let decisions = results.into_iter().enumerate().map(|(index, result)| {
            let outcome = match result {
                Ok(outcome) => outcome,
                Err(why) => return self.failed(why),
            };
            let messages = match &messages {
                Ok(messages) => messages,
                Err(OutOfBudget) => {
                    return self.failed(format!("failed messageExpression: {OUT_OF_BUDGET}"));
                }
            };
            if outcome == Outcome::Bool(true) {
                return Decision::Admit;
            }
            let message = messages.get(index).and_then(Option::as_deref);
            validations.get(index).map_or(Decision::Admit, |one| denied(one, message))
        });
        let decisions = decisions.collect();
        let annotations = self.annotations().map_err(out_of_budget)?;
        Ok(Evaluated { decisions, annotations })
    }

    fn all(
        &self,
        expressions: impl Iterator<Item = &'v Expression>,
        budget: &mut Budget,
    ) -> Result<Vec<Result<Outcome, String>>, OutOfBudget> {
        let mut activation = self.activation(self.variables);
        expressions.map(|one| one.evaluate(&mut activation, budget)).collect()
    }

    /// The results of the message expressions: `None` for a validation without one, or whose expression fails.
    fn messages(&self, budget: &mut Budget) -> Result<Vec<Option<String>>, OutOfBudget> {
        let mut activation = self.activation(self.variables);
        let message = |one: &'v Validation| {
            let Some(expression) = &one.message else { return Ok(None) };
            Ok(match expression.evaluate(&mut activation, budget)? {
                Ok(Outcome::String(message)) => Some(message),
                _ => None,
            })
        };
        self.compiled.validations.iter().map(message).collect()
    }

    fn annotations(&self) -> Result<Vec<Annotation>, OutOfBudget> {
        let annotations = &self.compiled.annotations;
        let mut budget = Budget::new(BUDGET, PER_CALL);
        let values = self.all(annotations.iter().map(|one| &one.value), &mut budget)?;
        let annotation = |(key, value): (String, Result<Outcome, String>)| match value {
            Ok(Outcome::String(value)) if value.trim().is_empty() => Annotation::Exclude,
            Ok(Outcome::String(value)) => {
                Annotation::Publish { key, value: value.trim().to_owned() }
            }
            Ok(_) => Annotation::Exclude,
            Err(why) if self.policy.fails_closed => Annotation::Deny(why),
            Err(_) => Annotation::Exclude,
        };
        let keys = annotations.iter().map(|one| one.key.clone());
        Ok(keys.zip(values).map(annotation).collect())
    }
}

/// The denial by a validation, with the result of its message expression.
fn denied(validation: &Validation, message: Option<&str>) -> Decision {
    let computed = message.map(str::trim).filter(|message| {
        !message.is_empty() && message.len() <= LONGEST_MESSAGE && !message.contains('\n')
    });
    let fixed = validation.fixed_message.as_deref().map(str::trim);
    let fixed = fixed.filter(|message| !message.is_empty());
    let message = match computed.or(fixed) {
        Some(message) => message.to_owned(),
        None => format!("failed expression: {}", validation.expression.text().trim()),
    };
    let reason = validation.reason.clone().or_else(|| Some("Invalid".to_owned()));
    Decision::Deny { message, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
    use serde_json::{Value, json};

    fn evaluated(spec: Value) -> Evaluated {
        let policy: ValidatingAdmissionPolicy =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let object =
            json!({"metadata": {"name": "a"}, "spec": {"size": 7, "text": "a".repeat(100_000)}});
        let request = json!({"operation": "CREATE", "name": "a"});
        evaluate(
            &Policy::new(&policy),
            &Variables {
                object: object.as_object(),
                old: None,
                request: &request,
                namespace: None,
                params: None,
            },
        )
    }

    fn deny(message: &str, reason: Option<&str>) -> Decision {
        Decision::Deny { message: message.to_owned(), reason: reason.map(str::to_owned) }
    }

    #[test]
    fn messages_come_from_the_expression_the_validation_or_its_text() {
        let size = "object.spec.size < 5";
        for (validation, message) in [
            (json!({"expression": size}), "failed expression: object.spec.size < 5"),
            (json!({"expression": size, "message": " m "}), "m"),
            (
                json!({"expression": size, "message": "m", "messageExpression": "'size ' + string(object.spec.size)"}),
                "size 7",
            ),
            (json!({"expression": size, "message": "m", "messageExpression": "object.none"}), "m"),
            (json!({"expression": size, "message": "m", "messageExpression": "'a\\nb'"}), "m"),
            (json!({"expression": size, "message": "m", "messageExpression": "' '"}), "m"),
        ] {
            let decisions = evaluated(json!({"validations": [validation]})).decisions;
            assert_eq!(decisions, [deny(message, Some("Invalid"))], "{validation}");
        }
    }

    #[test]
    fn the_failure_policy_decides_about_expressions_that_fail() {
        let fails = "object.spec.none == 1";
        let why = format!("expression '{fails}' resulted in error: no such key: none");
        let spec = |policy: &str| {
            json!({
                "failurePolicy": policy, "validations": [{"expression": fails}, {"expression": "true"}],
                "auditAnnotations": [{"key": "k", "valueExpression": "object.spec.none"}],
            })
        };
        let failed = evaluated(spec("Fail"));
        assert_eq!(failed.decisions, [deny(&why, None), Decision::Admit]);
        assert!(
            matches!(&failed.annotations[..], [Annotation::Deny(why)] if why.contains("must evaluate"))
        );
        let ignored = evaluated(spec("Ignore"));
        assert_eq!(ignored.decisions, [Decision::Admit, Decision::Admit]);
        assert_eq!(ignored.annotations, [Annotation::Exclude]);
    }

    #[test]
    fn conditions_and_variables_are_evaluated() {
        let spec = |condition: &str| {
            json!({
                "matchConditions": [{"name": "c", "expression": condition}],
                "variables": [
                    {"name": "size", "expression": "object.spec.size"},
                    {"name": "twice", "expression": "variables.size * 2"},
                ],
                "validations": [{"expression": "variables.twice < 14", "reason": "Forbidden"}],
                "auditAnnotations": [
                    {"key": "twice", "valueExpression": "' ' + string(variables.twice)"},
                    {"key": "nothing", "valueExpression": "null"},
                ],
            })
        };
        let met = evaluated(spec("true"));
        let expected = deny("failed expression: variables.twice < 14", Some("Forbidden"));
        assert_eq!(met.decisions, [expected]);
        let published = Annotation::Publish { key: "twice".to_owned(), value: "14".to_owned() };
        assert_eq!(met.annotations, [published, Annotation::Exclude]);
        assert_eq!(evaluated(spec("false")), Evaluated::default());
    }

    #[test]
    fn a_spent_budget_denies_the_write() {
        // A search costs a tenth of the text times a quarter of the pattern: 100,000 each.
        let search = format!("!object.spec.text.matches('{}')", "b".repeat(40));
        let validation = json!({"expression": search});
        let spec = json!({"validations": vec![validation; 120]});
        assert_eq!(evaluated(spec).decisions, [deny(OUT_OF_BUDGET, None)]);
    }
}
