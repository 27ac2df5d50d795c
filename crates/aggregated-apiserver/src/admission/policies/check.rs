//! The check of the expressions of a policy, before the policy is stored.

use kubernetes_cel::Environment;

use crate::admission::expressions::{BOOL, STRING, STRING_OR_NULL, compile, environment, explain};

/// The expressions of a ValidatingAdmissionPolicy, which may use `object`, `oldObject`, `request`, `namespaceObject`,
/// `params` if the policy has parameters, and the variables that were added before.
///
/// ```
/// use aggregated_apiserver::admission::PolicyExpressions;
///
/// let mut expressions = PolicyExpressions::new(false, true);
/// expressions.add_variable("replicas", "object.spec.replicas").unwrap();
/// assert!(expressions.check_validation("variables.replicas < 5").is_ok());
/// let why = expressions.check_validation("variables.replicas").unwrap_err();
/// assert_eq!(why, "must evaluate to bool but got dyn");
/// ```
///
/// The errors are the reasons why an expression cannot be evaluated, with the messages of kube-apiserver.
#[derive(Clone, Debug)]
pub struct PolicyExpressions {
    environment: Environment,
}

impl PolicyExpressions {
    /// Creates the expressions of a policy with or without parameters and variables.
    pub fn new(has_params: bool, has_variables: bool) -> Self {
        let environment = environment(has_params);
        let environment = match has_variables {
            true => environment.with_composition("variables", "kubernetes.variables"),
            false => environment,
        };
        Self { environment }
    }

    /// Adds a variable, which later expressions can use as `variables.name`. A variable with an invalid expression is
    /// added too, with an unknown type.
    ///
    /// # Errors
    /// The reason why the expression of the variable cannot be compiled.
    pub fn add_variable(&mut self, name: &str, expression: &str) -> Result<(), String> {
        self.environment.add_expression(name, expression).map_err(|why| explain(&why))
    }

    /// Checks the expression of a validation or of a match condition.
    ///
    /// # Errors
    /// The reason why it cannot be evaluated to a bool.
    pub fn check_validation(&self, expression: &str) -> Result<(), String> {
        compile(&self.environment, expression, BOOL).map(drop)
    }

    /// Checks the expression of a message.
    ///
    /// # Errors
    /// The reason why it cannot be evaluated to a string.
    pub fn check_message(&self, expression: &str) -> Result<(), String> {
        compile(&self.environment, expression, STRING).map(drop)
    }

    /// Checks the expression of the value of an audit annotation.
    ///
    /// # Errors
    /// The reason why it cannot be evaluated to a string or null.
    pub fn check_audit_annotation(&self, expression: &str) -> Result<(), String> {
        compile(&self.environment, expression, STRING_OR_NULL).map(drop)
    }
}
