//! ValidatingAdmissionPolicies.

use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

use super::configuration::{strategy, warnings};
use super::{match_resources, policy_status, policy_validation};
use crate::built_in::checks::FieldErrors;
use crate::built_in::defaulting::set_missing;
use crate::built_in::row::{Column, Row, Subresources};

pub(crate) fn row() -> Row<ValidatingAdmissionPolicy> {
    let rules = Validation::new()
        .prepare(|policy, _| prepare(policy))
        .validate(|policy, old, _| validate(policy, old))
        .validate_status(|policy, _, _| policy_status::validate(policy))
        .warn(|policy: &ValidatingAdmissionPolicy, _, _| warnings(&policy.metadata));
    Row {
        categories: &["api-extensions"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(Strategy { updates_metadata_with_status: false, ..strategy() })
    }
}

fn columns() -> Vec<Column<ValidatingAdmissionPolicy>> {
    let validations = |policy: &ValidatingAdmissionPolicy, _| {
        let validations = policy.spec.as_ref().and_then(|spec| spec.validations.as_ref());
        validations.map_or(0, Vec::len)
    };
    let param_kind = |policy: &ValidatingAdmissionPolicy, _| {
        let kind = policy.spec.as_ref().and_then(|spec| spec.param_kind.as_ref());
        kind.map_or_else(
            || "<unset>".to_owned(),
            |kind| {
                let api_version = kind.api_version.as_deref().unwrap_or_default();
                format!("{api_version}/{}", kind.kind.as_deref().unwrap_or_default())
            },
        )
    };
    vec![
        Column::computed("Validations", validations).of_type("integer"),
        Column::computed("ParamKind", param_kind),
        Column::age(),
    ]
}

fn prepare(policy: &mut ValidatingAdmissionPolicy) {
    let spec = policy.spec.get_or_insert_default();
    set_missing(&mut spec.failure_policy, "Fail");
    if let Some(constraints) = &mut spec.match_constraints {
        match_resources::set_defaults(constraints);
    }
}

fn validate(
    policy: &ValidatingAdmissionPolicy,
    old: Option<&ValidatingAdmissionPolicy>,
) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = policy.spec.clone().unwrap_or_default();
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    let old = old.map(|old| old.spec.clone().unwrap_or_default());
    policy_validation::check(name, &spec, old.as_ref(), &mut faults);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, prepared};
    use serde_json::{Value, json};

    fn policy(more: Value) -> Value {
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"],
                }],
            },
            "validations": [{"expression": "object.metadata.name != 'a'"}],
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": "p.example.com"}, "spec": spec})
    }

    #[test]
    fn defaults() {
        let constraints = json!({"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
        }]});
        let filled = prepared(prepare, json!({"spec": {"matchConstraints": constraints}}));
        assert_eq!(filled["spec"]["failurePolicy"], "Fail");
        let constraints = &filled["spec"]["matchConstraints"];
        assert_eq!(constraints["matchPolicy"], "Equivalent");
        assert_eq!(constraints["namespaceSelector"], json!({}));
        assert_eq!(constraints["resourceRules"][0]["scope"], "*");
    }

    #[test]
    fn invalid_policies_are_rejected() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({
                    "paramKind": {"apiVersion": "a.b/v1", "kind": "C"},
                    "variables": [{"name": "a", "expression": "params.a"}],
                    "validations": [{
                        "expression": "variables.a == 1",
                        "messageExpression": "string(variables.a) + request.name",
                    }],
                    "auditAnnotations": [{"key": "k", "valueExpression": "null"}],
                }),
                vec![],
            ),
            (
                json!({"validations": [], "matchConstraints": null, "failurePolicy": "X"}),
                vec![
                    "spec.failurePolicy: Unsupported value: \"X\": supported values: \"Fail\", \"Ignore\"",
                    "spec.matchConstraints: Required value",
                    "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                    "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
                ],
            ),
            (
                json!({"paramKind": {"apiVersion": "a/b/c", "kind": "a b"}}),
                vec![
                    "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                    "spec.paramKind.kind: Invalid value: \"a b\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
                ],
            ),
            (
                json!({"validations": [
                    {"expression": "1", "messageExpression": "2", "message": "a\nb", "reason": "X"},
                ]}),
                vec![
                    "spec.validations[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
                    "spec.validations[0].messageExpression: Invalid value: \"2\": must evaluate to string but got int",
                    "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
                    "spec.validations[0].reason: Unsupported value: \"X\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
                ],
            ),
            (
                json!({
                    "variables": [{"name": "in", "expression": "1"}],
                    "auditAnnotations": [
                        {"key": "k", "valueExpression": "[1]"}, {"key": "k", "valueExpression": " "},
                    ],
                }),
                vec![
                    "spec.variables[0].name: Invalid value: \"in\": must be a valid CEL identifier",
                    "spec.auditAnnotations[0].valueExpression: Invalid value: \"[1]\": must evaluate to one of [string null_type] but got list(int)",
                    "spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
                    "spec.auditAnnotations[1].key: Duplicate value: \"k\"",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, policy(more.clone())), expected, "{more}");
        }
    }

    #[test]
    fn unchanged_match_conditions_are_not_checked_again() {
        let broken = json!({"matchConditions": [{"name": "a", "expression": "1"}]});
        let faults = faults_of_new(validate, policy(broken.clone()));
        assert_eq!(faults.len(), 1);
        let of_update = |old| faults_of_update(validate, policy(old), policy(broken.clone()));
        assert_eq!(of_update(broken.clone()), [] as [&str; 0]);
        assert_eq!(of_update(json!({})), faults);
    }

    #[test]
    fn policies_are_printed_as_table_rows() {
        let shown =
            cells(columns(), policy(json!({"paramKind": {"apiVersion": "v1", "kind": "C"}})));
        let expected = json!({"Validations": 1, "ParamKind": "v1/C", "Age": "<unknown>"});
        assert_eq!(shown, expected);
        assert_eq!(cells(columns(), policy(json!({})))["ParamKind"], "<unset>");
    }
}
