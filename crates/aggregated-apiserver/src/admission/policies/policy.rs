//! A policy with its compiled expressions, and a binding of a policy.

use std::sync::OnceLock;

use k8s_openapi::api::admissionregistration::v1::{
    ParamKind, ParamRef, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicySpec, Variable,
};
use kubernetes_cel::Environment;

use super::constraints::Constraints;
use crate::admission::AdmissionRequest;
use crate::admission::conditions;
use crate::admission::expressions::{self, BOOL, Expression, STRING, STRING_OR_NULL};

/// A policy in one of its revisions.
#[derive(Debug)]
pub(super) struct Policy {
    pub name: String,
    /// The rules and selectors; `None` if the policy has none, which is invalid.
    pub constraints: Option<Constraints>,
    /// Whether a write is denied if an expression fails.
    pub fails_closed: bool,
    pub param_kind: Option<ParamKind>,
    spec: ValidatingAdmissionPolicySpec,
    /// The expressions, which are compiled at the first use.
    compiled: OnceLock<Compiled>,
}

/// The compiled expressions of a policy.
#[derive(Debug)]
pub(super) struct Compiled {
    pub environment: Environment,
    pub conditions: Vec<Expression>,
    pub validations: Vec<Validation>,
    pub annotations: Vec<AuditAnnotation>,
    /// Whether an expression uses `namespaceObject`.
    pub uses_namespace: bool,
}

/// A validation of a policy.
#[derive(Debug)]
pub(super) struct Validation {
    pub expression: Expression,
    pub message: Option<Expression>,
    /// The message if the message expression has no result; `None` if it is empty.
    pub fixed_message: Option<String>,
    pub reason: Option<String>,
}

/// An audit annotation of a policy.
#[derive(Debug)]
pub(super) struct AuditAnnotation {
    pub key: String,
    pub value: Expression,
}

impl Policy {
    pub(super) fn new(policy: &ValidatingAdmissionPolicy) -> Self {
        let spec = policy.spec.clone().unwrap_or_default();
        Self {
            name: policy.metadata.name.clone().unwrap_or_default(),
            constraints: spec.match_constraints.as_ref().map(Constraints::new),
            fails_closed: spec.failure_policy.as_deref() != Some("Ignore"),
            param_kind: spec.param_kind.clone(),
            spec,
            compiled: OnceLock::new(),
        }
    }

    /// Whether the policy applies to a write by its rules.
    pub(super) fn applies_to(&self, request: &AdmissionRequest<'_>) -> bool {
        self.constraints.as_ref().is_none_or(|all| all.version(request).is_some())
    }

    /// Whether the expressions are compiled.
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// The compiled expressions.
    pub(super) fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| Compiled::new(&self.spec))
    }
}

impl Compiled {
    fn new(spec: &ValidatingAdmissionPolicySpec) -> Self {
        let environment = expressions::environment(spec.param_kind.is_some());
        let mut environment = environment.with_composition("variables", "kubernetes.variables");
        for Variable { name, expression } in spec.variables.iter().flatten() {
            // The evaluation reports an expression that cannot be compiled.
            let _ = environment.add_expression(name, expression);
        }
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let validations = spec.validations.iter().flatten().map(|one| Validation {
            expression: Expression::new(&environment, &one.expression, BOOL),
            message: given(&one.message_expression)
                .map(|text| Expression::new(&environment, &text, STRING)),
            fixed_message: given(&one.message),
            reason: one.reason.clone(),
        });
        let validations = validations.collect();
        let annotations = spec.audit_annotations.iter().flatten().map(|one| AuditAnnotation {
            key: one.key.clone(),
            value: Expression::new(&environment, &one.value_expression, STRING_OR_NULL),
        });
        let annotations = annotations.collect();
        let conditions = spec.match_conditions.as_deref().unwrap_or_default();
        let conditions = conditions::compile_in(&environment, conditions);
        Self {
            conditions,
            validations,
            annotations,
            uses_namespace: mentions(spec, "namespaceObject"),
            environment,
        }
    }
}

/// Whether an expression of a policy contains this word.
fn mentions(spec: &ValidatingAdmissionPolicySpec, word: &str) -> bool {
    let variables = spec.variables.iter().flatten().map(|one| &one.expression);
    let annotations = spec.audit_annotations.iter().flatten().map(|one| &one.value_expression);
    let validations = spec.validations.iter().flatten();
    let validations =
        validations.flat_map(|one| one.message_expression.iter().chain([&one.expression]));
    let conditions = spec.match_conditions.iter().flatten().map(|one| &one.expression);
    let all = variables.chain(annotations).chain(validations).chain(conditions);
    { all }.any(|expression| expression.contains(word))
}

/// The consequence of a validation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    Audit,
}

/// A binding of a policy.
#[derive(Debug)]
pub(super) struct Binding {
    pub name: String,
    pub policy: String,
    pub param_ref: Option<ParamRef>,
    pub constraints: Option<Constraints>,
    pub actions: Vec<Action>,
    /// The actions as in the binding, for audit events.
    pub action_names: Vec<String>,
}

impl Binding {
    pub(super) fn new(binding: &ValidatingAdmissionPolicyBinding) -> Self {
        let spec = binding.spec.clone();
        let action_names = spec.validation_actions;
        let action = |name: &String| match name.as_str() {
            "Deny" => Some(Action::Deny),
            "Warn" => Some(Action::Warn),
            "Audit" => Some(Action::Audit),
            _ => None,
        };
        Self {
            name: binding.metadata.name.clone().unwrap_or_default(),
            policy: spec.policy_name,
            param_ref: spec.param_ref,
            constraints: spec.match_resources.as_ref().map(Constraints::new),
            actions: action_names.iter().filter_map(action).collect(),
            action_names,
        }
    }
}
