//! Match conditions: CEL expressions that a write must meet, so that a webhook is called about it.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use kubernetes_cel::{Budget, Data, Environment, Outcome, Program};
use serde_json::Value;

use super::Tree;

/// The variables of expressions. `authorizer` of kube-apiserver is missing.
const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];
/// The cost limit of one expression; same as kube-apiserver.
const PER_CALL: u64 = 1_000_000;
/// The cost limit of all conditions of one webhook; same as kube-apiserver.
const BUDGET: u64 = 2_500_000;

/// A compiled condition.
#[derive(Debug)]
pub struct Condition {
    expression: String,
    /// The program, or the reason why it cannot be evaluated.
    program: Result<Program, String>,
}

/// The values of the variables.
pub(super) struct Variables<'a> {
    pub object: Option<&'a Tree>,
    pub old: Option<&'a Tree>,
    pub request: &'a Value,
}

/// Checks the expression of a match condition of a webhook, which may use `object`, `oldObject` and `request`.
///
/// ```
/// use aggregated_apiserver::admission::check_match_condition;
///
/// assert!(check_match_condition("object.metadata.name != 'a'").is_ok());
/// assert_eq!(check_match_condition("1").unwrap_err(), "must evaluate to bool but got int");
/// ```
///
/// # Errors
/// The reason why the expression cannot be evaluated, with the message of kube-apiserver.
pub fn check_match_condition(expression: &str) -> Result<(), String> {
    program(expression).map(drop)
}

fn program(expression: &str) -> Result<Program, String> {
    match Environment::of_variables(&VARIABLES).compile(expression) {
        Ok(program) if program.is_bool() => Ok(program),
        Ok(program) => Err(format!("must evaluate to bool but got {}", program.result_type())),
        Err(why) => Err(format!("compilation failed: {why}")),
    }
}

/// Compiles the conditions of a webhook.
pub(super) fn compile(conditions: &[MatchCondition]) -> Vec<Condition> {
    let compile = |MatchCondition { expression, .. }: &MatchCondition| Condition {
        expression: expression.clone(),
        program: program(expression),
    };
    conditions.iter().map(compile).collect()
}

/// Whether a write meets all conditions. A condition that is false takes precedence over one that fails.
///
/// # Errors
/// The reasons, if conditions cannot be evaluated, with the messages of kube-apiserver.
pub(super) fn are_met(conditions: &[Condition], variables: &Variables<'_>) -> Result<bool, String> {
    let null = Value::Null;
    let values = [
        variables.object.map_or(Data::Value(&null), Data::Object),
        variables.old.map_or(Data::Value(&null), Data::Object),
        Data::Value(variables.request),
    ];
    let mut budget = Budget::new(BUDGET, PER_CALL);
    let mut errors: Vec<String> = Vec::new();
    for condition in conditions {
        let outcome = match &condition.program {
            Ok(program) => program.evaluate_variables(&values, &mut budget),
            Err(why) => Outcome::Failed(why.clone()),
        };
        match outcome {
            Outcome::Bool(true) => {}
            Outcome::Bool(false) => return Ok(false),
            Outcome::OutOfBudget => {
                return Err(
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                        .to_owned(),
                );
            }
            other => errors.push(condition.explain(other)),
        }
    }
    errors.dedup();
    match &errors[..] {
        [] => Ok(true),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

impl Condition {
    fn explain(&self, outcome: Outcome) -> String {
        let why = match outcome {
            Outcome::Failed(why) => why,
            Outcome::CallTooDear => "operation cancelled: actual cost limit exceeded".to_owned(),
            _ => "must evaluate to bool".to_owned(),
        };
        format!("expression '{}' resulted in error: {why}", self.expression)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(expressions: &[&str]) -> Result<bool, String> {
        let condition = |expression: &&str| MatchCondition {
            name: "n".to_owned(),
            expression: (*expression).to_owned(),
        };
        let conditions: Vec<MatchCondition> = expressions.iter().map(condition).collect();
        let object = json!({"spec": {"weight": 7, "names": ["a"]}});
        let request = json!({"operation": "CREATE", "userInfo": {"groups": ["g"]}});
        let variables = Variables { object: object.as_object(), old: None, request: &request };
        are_met(&compile(&conditions), &variables)
    }

    #[test]
    fn conditions_read_the_object_the_old_object_and_the_request() {
        for (expressions, expected) in [
            (&["object.spec.weight == 7", "oldObject == null"][..], Ok(true)),
            (&["request.operation == 'DELETE'"], Ok(false)),
            (&["'g' in request.userInfo.groups && object.spec.names[0] == 'a'"], Ok(true)),
            (&["has(object.spec.height)"], Ok(false)),
            (&["object.spec.names.exists(name, name == 'b')"], Ok(false)),
        ] {
            assert_eq!(judged(expressions), expected, "{expressions:?}");
        }
    }

    #[test]
    fn a_false_condition_takes_precedence_over_one_that_fails() {
        let fails = "object.spec.height > 1";
        let why = format!("expression '{fails}' resulted in error: no such key: height");
        assert_eq!(judged(&[fails]), Err(why));
        assert_eq!(judged(&[fails, "false"]), Ok(false));
        let unknown = judged(&["authorizer.group('').resource('pods').check('get').allowed()"]);
        assert!(unknown.unwrap_err().contains("undeclared reference to 'authorizer'"));
    }
}
