//! The validation of the spec of ValidatingAdmissionPolicies, with the messages of kube-apiserver.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::admission::PolicyExpressions;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::admissionregistration::v1::{
    AuditAnnotation, ParamKind, ValidatingAdmissionPolicySpec, Validation, Variable,
};

use super::match_resources;
use super::validation::check_conditions;
use crate::built_in::checks::{
    FieldErrors, check_given, check_one_of, check_with, go_struct, quote,
};

const MOST_ANNOTATIONS: usize = 20;
/// The longest expression of an audit annotation, in bytes.
const LONGEST_EXPRESSION: usize = 5 << 10;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// The words of CEL that are no identifiers.
const WORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Checks the spec of a policy. `old` is the spec before an update.
pub(super) fn check(
    name: &str,
    spec: &ValidatingAdmissionPolicySpec,
    old: Option<&ValidatingAdmissionPolicySpec>,
    faults: &mut FieldErrors,
) {
    let policies = ["Fail", "Ignore"];
    check_one_of("spec.failurePolicy", spec.failure_policy.as_ref(), &policies, faults);
    if let Some(kind) = &spec.param_kind {
        check_param_kind(kind, "spec.paramKind", faults);
    }
    let at = "spec.matchConstraints";
    match &spec.match_constraints {
        None => faults.push(FieldError::required(at, "")),
        Some(constraints) => {
            match_resources::check(constraints, at, faults);
            if constraints.resource_rules.as_ref().is_none_or(Vec::is_empty) {
                faults.push(FieldError::required(format!("{at}.resourceRules"), ""));
            }
        }
    }
    let has_params = spec.param_kind.is_some();
    let is_same = |old: &ValidatingAdmissionPolicySpec| {
        let conditions = |spec: &ValidatingAdmissionPolicySpec| {
            spec.match_conditions.clone().unwrap_or_default()
        };
        old.param_kind == spec.param_kind && conditions(old) == conditions(spec)
    };
    if !old.is_some_and(is_same) {
        let expressions = PolicyExpressions::new(has_params, false);
        let conditions = spec.match_conditions.as_deref().unwrap_or_default();
        let check = |expression: &str| expressions.check_validation(expression);
        check_conditions(conditions, "spec.matchConditions", check, faults);
    }
    let variables = spec.variables.as_deref().unwrap_or_default();
    let mut expressions = PolicyExpressions::new(has_params, !variables.is_empty());
    for (index, variable) in variables.iter().enumerate() {
        check_variable(variable, &mut expressions, &format!("spec.variables[{index}]"), faults);
    }
    let validations = spec.validations.as_deref().unwrap_or_default();
    let annotations = spec.audit_annotations.as_deref().unwrap_or_default();
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        faults.push(FieldError::required("spec.validations", why));
        faults.push(FieldError::required("spec.auditAnnotations", why));
        return;
    }
    for (index, validation) in validations.iter().enumerate() {
        check_validation(validation, &expressions, &format!("spec.validations[{index}]"), faults);
    }
    let at = "spec.auditAnnotations";
    if annotations.len() > MOST_ANNOTATIONS {
        let why = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        faults.push(FieldError::invalid(at, shown(annotations), &why));
    }
    let mut keys = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let at = format!("{at}[{index}]");
        check_annotation((name, annotation), &expressions, &at, faults);
        if !keys.insert(&annotation.key) {
            faults.push(FieldError::duplicate(format!("{at}.key"), quote(&annotation.key)));
        }
    }
}

fn check_param_kind(kind: &ParamKind, at: &str, faults: &mut FieldErrors) {
    let api_version = kind.api_version.as_deref().unwrap_or_default();
    let at_version = format!("{at}.apiVersion");
    if check_given(&at_version, api_version, faults) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            let why = format!("unexpected GroupVersion string: {api_version}");
            faults.push(FieldError::invalid(at_version, quote(api_version), &why));
        } else {
            let mut check = |part: &str, errors: Vec<String>| {
                if !errors.is_empty() {
                    let why = errors.join(",");
                    faults.push(FieldError::invalid(&at_version, quote(part), &why));
                }
            };
            if !group.is_empty() {
                check(group, names::check_dns_1123_subdomain(group));
            }
            match version {
                "" => check(api_version, vec!["version must be specified".to_owned()]),
                version => check(version, names::check_dns_1035_label(version)),
            }
        }
    }
    let (kind, at) = (kind.kind.as_deref().unwrap_or_default(), format!("{at}.kind"));
    if check_given(&at, kind, faults) {
        let errors = names::check_dns_1035_label(&kind.to_lowercase());
        if !errors.is_empty() {
            let why = errors.join(",");
            let why = format!("may have mixed case, but should otherwise match: {why}");
            faults.push(FieldError::invalid(at, quote(kind), &why));
        }
    }
}

fn check_variable(
    Variable { name, expression }: &Variable,
    expressions: &mut PolicyExpressions,
    at: &str,
    faults: &mut FieldErrors,
) {
    let at_name = format!("{at}.name");
    if name.trim().is_empty() {
        faults.push(FieldError::required(at_name, "name is not specified"));
    } else if !is_identifier(name) {
        let why = "must be a valid CEL identifier";
        faults.push(FieldError::invalid(at_name, quote(name), why));
    }
    let at = format!("{at}.expression");
    if expression.trim().is_empty() {
        faults.push(FieldError::required(at, "expression is not specified"));
    } else if let Err(why) = expressions.add_variable(name, expression) {
        faults.push(FieldError::invalid(at, quote(expression), &why));
    }
}

fn is_identifier(name: &str) -> bool {
    let is_inner = |char: char| char.is_ascii_alphanumeric() || char == '_';
    !name.starts_with(|char: char| char.is_ascii_digit())
        && name.chars().all(is_inner)
        && !WORDS.contains(&name)
}

fn check_validation(
    validation: &Validation,
    expressions: &PolicyExpressions,
    at: &str,
    faults: &mut FieldErrors,
) {
    let Validation { expression, message, message_expression, reason } = validation;
    let at_expression = format!("{at}.expression");
    if expression.trim().is_empty() {
        faults.push(FieldError::required(at_expression, "expression is not specified"));
    } else if let Err(why) = expressions.check_validation(expression) {
        faults.push(FieldError::invalid(at_expression, quote(expression), &why));
    }
    let empty = "must be non-empty if specified";
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(expression) = given(message_expression) {
        let checked = match expression.trim().is_empty() {
            true => Err(empty.to_owned()),
            false => expressions.check_message(&expression),
        };
        if let Err(why) = checked {
            let at = format!("{at}.messageExpression");
            faults.push(FieldError::invalid(at, quote(&expression), &why));
        }
    }
    if let Some(message) = given(message) {
        let why = match message.trim() {
            "" => Some(empty),
            trimmed => trimmed.contains(['\n', '\r']).then_some("must not contain line breaks"),
        };
        if let Some(why) = why {
            faults.push(FieldError::invalid(format!("{at}.message"), quote(&message), why));
        }
    }
    check_one_of(format!("{at}.reason"), reason.as_ref(), &REASONS, faults);
}

fn check_annotation(
    (policy, annotation): (&str, &AuditAnnotation),
    expressions: &PolicyExpressions,
    at: &str,
    faults: &mut FieldErrors,
) {
    let AuditAnnotation { key, value_expression } = annotation;
    let at_key = format!("{at}.key");
    if policy.is_empty() {
        let why = "requires metadata.name be non-empty";
        faults.push(FieldError::invalid(at_key, quote(key), why));
    } else {
        check_with(&at_key, &format!("{policy}/{key}"), names::check_label_key, faults);
    }
    let (at, trimmed) = (format!("{at}.valueExpression"), value_expression.trim());
    if trimmed.is_empty() {
        faults.push(FieldError::required(at, "valueExpression is not specified"));
    } else if trimmed.len() > LONGEST_EXPRESSION {
        let why = format!("must not exceed {LONGEST_EXPRESSION} bytes in length");
        faults.push(FieldError::required(at, &why));
    } else if let Err(why) = expressions.check_audit_annotation(trimmed) {
        faults.push(FieldError::invalid(at, quote(value_expression), &why));
    }
}

/// Audit annotations in the format of messages, with the field names of Go.
fn shown(annotations: &[AuditAnnotation]) -> String {
    let one = |AuditAnnotation { key, value_expression }: &AuditAnnotation| {
        go_struct(&[("Key", quote(key)), ("ValueExpression", quote(value_expression))])
    };
    format!("[{}]", annotations.iter().map(one).collect::<Vec<_>>().join(","))
}
