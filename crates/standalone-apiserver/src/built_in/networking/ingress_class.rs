//! IngressClasses.

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::networking::v1::{
    IngressClass, IngressClassParametersReference, IngressClassSpec,
};

use crate::built_in::cell_texts::NONE;
use crate::built_in::checks::{FieldErrors, check_immutable, check_with, quote};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::with_generation;

/// The annotation that marks the class for Ingresses without a class.
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

const CONTROLLER_LIMIT: usize = 250;

const PATH: &str = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";

pub(crate) fn row() -> Row<IngressClass> {
    let rules = Validation::new()
        .prepare(|class, _| prepare(class))
        .validate(|class, old, _| validate(class, old));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { has_name_column: true, ..with_generation() }
}

fn columns() -> Vec<Column<IngressClass>> {
    vec![
        Column::computed("Name", |class: &IngressClass, _| {
            let name = class.metadata.name.clone().unwrap_or_default();
            if is_default(class) { name + " (default)" } else { name }
        }),
        Column::computed("Controller", |class: &IngressClass, _| {
            class.spec.as_ref().and_then(|spec| spec.controller.clone()).unwrap_or_default()
        }),
        Column::computed("Parameters", |class: &IngressClass, _| {
            let parameters = class.spec.as_ref().and_then(|spec| spec.parameters.as_ref());
            parameters.map_or_else(|| NONE.to_owned(), shown_parameters)
        }),
        Column::age(),
    ]
}

/// Whether this is the class for Ingresses without a class.
pub(crate) fn is_default(class: &IngressClass) -> bool {
    let annotations = class.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(DEFAULT_ANNOTATION)).is_some_and(|value| value == "true")
}

/// Parameters in the format `Kind.group/name`.
fn shown_parameters(parameters: &IngressClassParametersReference) -> String {
    let IngressClassParametersReference { api_group, kind, name, .. } = parameters;
    match api_group {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

fn prepare(class: &mut IngressClass) {
    let parameters = class.spec.as_mut().and_then(|spec| spec.parameters.as_mut());
    if let Some(parameters) = parameters {
        parameters.scope.get_or_insert_with(|| "Cluster".to_owned());
    }
}

fn validate(class: &IngressClass, old: Option<&IngressClass>) -> FieldErrors {
    let mut faults = Vec::new();
    let nothing = IngressClassSpec::default();
    let spec = class.spec.as_ref().unwrap_or(&nothing);
    let controller = |spec: &IngressClassSpec| spec.controller.clone().unwrap_or_default();
    if let Some(old) = old {
        let before = old.spec.as_ref().map(controller).unwrap_or_default();
        check_immutable("spec.controller", &controller(spec), &before, &mut faults);
    }
    check_controller(&controller(spec), &mut faults);
    if let Some(parameters) = &spec.parameters {
        check_parameters(parameters, &mut faults);
    }
    faults
}

/// Checks the name of a controller, which has the format `acme.io/foo`.
fn check_controller(controller: &str, faults: &mut FieldErrors) {
    const AT: &str = "spec.controller";
    if controller.len() > CONTROLLER_LIMIT {
        faults.push(FieldError::too_long(AT, CONTROLLER_LIMIT as u64));
    }
    if controller.is_empty() {
        return faults.push(FieldError::required(AT, ""));
    }
    match controller.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        Some((host, path)) => {
            check_with(AT, host, names::check_dns_1123_subdomain, faults);
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(is_allowed) {
                faults.push(FieldError::invalid(AT, quote(path), PATH));
            }
        }
        None => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            faults.push(FieldError::invalid(AT, quote(controller), why));
        }
    }
}

fn check_parameters(parameters: &IngressClassParametersReference, faults: &mut FieldErrors) {
    const AT: &str = "spec.parameters";
    let IngressClassParametersReference { api_group, kind, name, namespace, scope } = parameters;
    if let Some(group) = api_group {
        check_with(&format!("{AT}.apiGroup"), group, names::check_dns_1123_subdomain, faults);
    }
    for (field, value) in [("kind", kind), ("name", name)] {
        let at = format!("{AT}.{field}");
        if value.is_empty() {
            faults.push(FieldError::required(at, ""));
        } else {
            check_with(&at, value, names::check_path_segment, faults);
        }
    }
    let at = format!("{AT}.namespace");
    match (scope.as_deref(), namespace) {
        (None, _) => faults.push(FieldError::required(format!("{AT}.scope"), "")),
        (Some("Namespace"), None) => {
            let why = "`parameters.scope` is set to 'Namespace'";
            faults.push(FieldError::required(at, why));
        }
        (Some("Namespace"), Some(namespace)) => {
            check_with(&at, namespace, names::check_dns_1123_label, faults);
        }
        (Some("Cluster"), Some(_)) => {
            faults.push(FieldError::forbidden(at, "`parameters.scope` is set to 'Cluster'"));
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => {
            let all = ["Cluster", "Namespace"];
            faults.push(FieldError::not_supported(format!("{AT}.scope"), quote(other), &all));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, prepared};
    use serde_json::{Value, json};

    #[test]
    fn defaults() {
        let class = json!({"spec": {"parameters": {"kind": "X", "name": "a"}}});
        assert_eq!(prepared(prepare, class)["spec"]["parameters"]["scope"], "Cluster");
    }

    #[test]
    fn invalid_ingress_classes_are_rejected() {
        let parameters = |more: Value| {
            let mut all = json!({"kind": "X", "name": "a", "scope": "Cluster"});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"controller": "a.io/b", "parameters": all})
        };
        for (spec, expected) in [
            (json!({"controller": "a.io/b"}), vec![]),
            (json!({}), vec!["spec.controller: Required value".to_owned()]),
            (
                json!({"controller": "a"}),
                vec![
                    "spec.controller: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned(),
                ],
            ),
            (
                json!({"controller": "a/b c"}),
                vec![format!("spec.controller: Invalid value: \"b c\": {PATH}")],
            ),
            (parameters(json!({})), vec![]),
            (
                parameters(json!({"kind": "", "namespace": "n"})),
                vec![
                    "spec.parameters.kind: Required value".to_owned(),
                    "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'".to_owned(),
                ],
            ),
            (
                parameters(json!({"scope": "Namespace"})),
                vec![
                    "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'".to_owned(),
                ],
            ),
            (
                parameters(json!({"scope": "X"})),
                vec![
                    "spec.parameters.scope: Unsupported value: \"X\": supported values: \"Cluster\", \"Namespace\"".to_owned(),
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, json!({"spec": spec})), expected, "{spec}");
        }
        let of = |controller: &str| json!({"spec": {"controller": controller}});
        assert_eq!(
            faults_of_update(validate, of("a.io/b"), of("a.io/c")),
            ["spec.controller: Invalid value: \"a.io/c\": field is immutable"]
        );
    }

    #[test]
    fn an_ingress_class_is_printed_as_a_table_row() {
        let class = json!({
            "metadata": {"name": "fast", "annotations": {DEFAULT_ANNOTATION: "true"}},
            "spec": {"controller": "a.io/b", "parameters": {"apiGroup": "x.io", "kind": "X", "name": "a"}},
        });
        assert_eq!(
            cells(columns(), class),
            json!({
                "Name": "fast (default)", "Controller": "a.io/b", "Parameters": "X.x.io/a",
                "Age": "<unknown>",
            })
        );
    }
}
