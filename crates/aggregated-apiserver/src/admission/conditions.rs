//! Match conditions: CEL expressions that a write must meet, so that a webhook is called about it or a policy applies.

use std::borrow::Cow;
use std::sync::LazyLock;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use kubernetes_cel::{Activation, Budget, Data, Environment, Outcome};
use serde_json::Value;

use super::expressions::{self, BOOL, Expression, OUT_OF_BUDGET, OutOfBudget, PER_CALL};
use crate::object::Tree;

/// The cost limit of all conditions of one webhook or policy; same as kube-apiserver.
const BUDGET: u64 = 2_500_000;

/// The environment of the conditions of webhooks.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| expressions::environment(false));

/// The values of the variables of an expression.
#[derive(Clone, Copy)]
pub(super) struct Variables<'a> {
    pub object: Option<&'a Tree>,
    pub old: Option<&'a Tree>,
    pub request: &'a Value,
    pub namespace: Option<&'a Tree>,
    /// The parameters; not used if the environment has no parameters.
    pub params: Option<&'a Tree>,
}

impl<'a> Variables<'a> {
    /// The values in the order of the variables of an environment.
    pub(super) fn values(&self) -> [Data<'a>; 5] {
        static NULL: Value = Value::Null;
        let data = |tree: Option<&'a Tree>| tree.map_or(Data::Value(&NULL), Data::Object);
        [
            data(self.object),
            data(self.old),
            Data::Value(self.request),
            data(self.namespace),
            data(self.params),
        ]
    }
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
    expressions::compile(&ENVIRONMENT, expression, BOOL).map(drop)
}

/// The data of a write for match conditions, in which `resource` is that of the request in every version; same as
/// kube-apiserver.
pub(super) fn data(attributes: &Value) -> Cow<'_, Value> {
    match attributes.get("requestResource") {
        Some(own) if attributes.get("resource") != Some(own) => {
            let mut data = attributes.clone();
            data["resource"] = own.clone();
            Cow::Owned(data)
        }
        _ => Cow::Borrowed(attributes),
    }
}

/// Compiles the conditions of a webhook.
pub(super) fn compile(conditions: &[MatchCondition]) -> Vec<Expression> {
    compile_in(&ENVIRONMENT, conditions)
}

/// Compiles conditions in an environment.
pub(super) fn compile_in(
    environment: &Environment,
    conditions: &[MatchCondition],
) -> Vec<Expression> {
    let compile = |one: &MatchCondition| Expression::new(environment, &one.expression, BOOL);
    conditions.iter().map(compile).collect()
}

/// Whether a write meets all conditions of a webhook. A condition that is false takes precedence over one that fails.
///
/// # Errors
/// The reasons, if conditions cannot be evaluated, with the messages of kube-apiserver.
pub(super) fn are_met(
    conditions: &[Expression],
    variables: &Variables<'_>,
) -> Result<bool, String> {
    are_met_in(conditions, &mut ENVIRONMENT.activation(&variables.values()[..4]))
}

/// Same as [`are_met`], for conditions that were compiled in another environment.
///
/// # Errors
/// Same as [`are_met`].
pub(super) fn are_met_in<'v>(
    conditions: &'v [Expression],
    activation: &mut Activation<'v>,
) -> Result<bool, String> {
    let mut budget = Budget::new(BUDGET, PER_CALL);
    let (mut errors, mut is_false): (Vec<String>, bool) = (Vec::new(), false);
    for condition in conditions {
        match condition.evaluate(activation, &mut budget) {
            Ok(Ok(outcome)) => is_false |= outcome == Outcome::Bool(false),
            Ok(Err(why)) if errors.contains(&why) => {}
            Ok(Err(why)) => errors.push(why),
            Err(OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
        }
    }
    match &errors[..] {
        _ if is_false => Ok(false),
        [] => Ok(true),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
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
        let object = object.as_object();
        let request = &request;
        let variables = Variables { object, old: None, request, namespace: None, params: None };
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
    fn conditions_get_the_resource_of_the_request() {
        let own = json!({"resource": {"version": "v1"}, "requestResource": {"version": "v1"}});
        assert!(matches!(data(&own), Cow::Borrowed(_)));
        let other = json!({
            "kind": {"version": "v2"},
            "resource": {"version": "v2"}, "requestResource": {"version": "v1"},
        });
        let expected = json!({
            "kind": {"version": "v2"},
            "resource": {"version": "v1"}, "requestResource": {"version": "v1"},
        });
        assert_eq!(*data(&other), expected);
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
