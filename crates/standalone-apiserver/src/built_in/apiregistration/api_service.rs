//! APIServices.

use aggregated_apiserver::encoding::truncate_to_seconds;
use aggregated_apiserver::strategy::{NameRule, names};
use aggregated_apiserver::{FieldError, Strategy, Validation};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{
    APIService, APIServiceCondition, APIServiceSpec, ServiceReference,
};

use crate::built_in::checks::{FieldErrors, check_with, quote};
use crate::built_in::defaulting::is_new;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::requiring_resource_version;

pub(crate) fn row() -> Row<APIService> {
    let rules = Validation::new()
        .prepare(|api, context| {
            set_port(api);
            if context.is_admitted && is_new(&api.metadata) {
                mark_local(api, context.now);
            }
        })
        .validate(|api, _, _| validate(api))
        .validate_status(|api, _, _| validate_status(api));
    Row {
        categories: &["api-extensions"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        names: NameRule::PathSegment,
        updates_metadata_with_status: false,
        ..requiring_resource_version()
    }
}

fn columns() -> Vec<Column<APIService>> {
    vec![
        Column::computed("Service", |api, _| service(api)),
        Column::computed("Available", |api, _| available(api)),
        Column::age(),
    ]
}

fn service(api: &APIService) -> String {
    let service = api.spec.as_ref().and_then(|spec| spec.service.as_ref());
    service.map_or_else(
        || "Local".to_owned(),
        |service| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", text(&service.namespace), text(&service.name))
        },
    )
}

fn available(api: &APIService) -> String {
    let conditions = api.status.as_ref().and_then(|status| status.conditions.as_ref());
    let available =
        conditions.into_iter().flatten().find(|condition| condition.type_ == "Available");
    match available {
        None => "Unknown".to_owned(),
        Some(condition) if condition.status == "True" => condition.status.clone(),
        Some(condition) => {
            let reason = condition.reason.as_deref().unwrap_or_default();
            format!("{} ({reason})", condition.status)
        }
    }
}

fn set_port(api: &mut APIService) {
    if let Some(service) = service_of(api) {
        service.port.get_or_insert(443);
    }
}

/// Marks a new local API as available. APIs of other servers get no condition, because no controller checks their
/// availability.
fn mark_local(api: &mut APIService, now: Timestamp) {
    if api.spec.is_none() || service_of(api).is_some() {
        return;
    }
    api.status.get_or_insert_default().conditions = Some(vec![APIServiceCondition {
        type_: "Available".to_owned(),
        status: "True".to_owned(),
        reason: Some("Local".to_owned()),
        message: Some("Local APIServices are always available".to_owned()),
        last_transition_time: Some(Time(truncate_to_seconds(now))),
    }]);
}

fn service_of(api: &mut APIService) -> Option<&mut ServiceReference> {
    api.spec.as_mut()?.service.as_mut()
}

fn validate(api: &APIService) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = api.spec.clone().unwrap_or_default();
    check_api(api.metadata.name.as_deref().unwrap_or_default(), &spec, &mut faults);
    faults
}

fn validate_status(api: &APIService) -> FieldErrors {
    const STATES: [&str; 3] = ["True", "False", "Unknown"];
    let conditions = api.status.as_ref().and_then(|status| status.conditions.as_ref());
    let conditions = conditions.into_iter().flatten().enumerate();
    let unknown = conditions.filter(|(_, one)| !STATES.contains(&one.status.as_str()));
    let fault = |(index, one): (usize, &APIServiceCondition)| {
        let at = format!("status.conditions[{index}].status");
        FieldError::not_supported(at, quote(&one.status), &STATES)
    };
    unknown.map(fault).collect()
}

fn check_api(name: &str, spec: &APIServiceSpec, faults: &mut FieldErrors) {
    let group = spec.group.as_deref().unwrap_or_default();
    let version = spec.version.as_deref().unwrap_or_default();
    let expected = format!("{version}.{group}");
    if name != expected {
        let why = format!("must be `spec.version+\".\"+spec.group`: {}", quote(&expected));
        faults.push(FieldError::invalid("metadata.name", quote(name), &why));
    }
    if group.is_empty() && version != "v1" {
        let why = "only v1 may have an empty group and it better be legacy kube";
        faults.push(FieldError::required("spec.group", why));
    }
    if !group.is_empty() {
        check_with("spec.group", group, names::check_dns_1123_subdomain, faults);
    }
    check_with("spec.version", version, names::check_dns_1035_label, faults);
    let mut check_priority = |field: &str, number: i32, most: i32| {
        if number <= 0 || number > most {
            let why = format!("must be positive and less than {most}");
            faults.push(FieldError::invalid(format!("spec.{field}"), number, &why));
        }
    };
    check_priority("groupPriorityMinimum", spec.group_priority_minimum, 20_000);
    check_priority("versionPriority", spec.version_priority, 1_000);
    let bundle = spec.ca_bundle.as_ref().map_or(0, |bundle| bundle.0.len());
    let is_unverified = spec.insecure_skip_tls_verify == Some(true);
    let Some(service) = &spec.service else {
        if bundle > 0 {
            let shown = quote(&format!("{bundle} bytes"));
            let why = "local APIServices may not have a caBundle";
            faults.push(FieldError::invalid("spec.caBundle", shown, why));
        }
        if is_unverified {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            faults.push(FieldError::invalid("spec.insecureSkipTLSVerify", true, why));
        }
        return;
    };
    for (field, text) in [("namespace", &service.namespace), ("name", &service.name)] {
        if text.as_ref().is_none_or(String::is_empty) {
            faults.push(FieldError::required(format!("spec.service.{field}"), ""));
        }
    }
    if let Some(port) = service.port.filter(|port| !(1..=65_535).contains(port)) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        faults.push(FieldError::invalid("spec.service.port", port, why));
    }
    if is_unverified && bundle > 0 {
        let why = "may not be true if caBundle is present";
        faults.push(FieldError::invalid("spec.insecureSkipTLSVerify", true, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, now, object, prepared, texts};
    use serde_json::{Value, json};

    fn of_service(service: Value) -> Value {
        json!({
            "metadata": {"name": "v1.a.b"},
            "spec": {
                "group": "a.b", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
                "service": service,
            },
        })
    }

    #[test]
    fn a_local_api_is_available_at_once() {
        let prepare = |api: &mut APIService| {
            set_port(api);
            mark_local(api, now());
        };
        let defaulted = |api: Value| prepared(prepare, api);
        let conditions = defaulted(of_service(json!(null)))["status"]["conditions"].clone();
        assert_eq!(
            conditions,
            json!([{
                "type": "Available", "status": "True", "reason": "Local",
                "message": "Local APIServices are always available",
                "lastTransitionTime": "2024-05-01T12:00:00Z",
            }])
        );
        let other = defaulted(of_service(json!({"namespace": "n", "name": "s"})));
        assert_eq!(other["status"], json!(null));
        assert_eq!(other["spec"]["service"]["port"], 443);
    }

    #[test]
    fn api_service_validation_reports_invalid_fields() {
        let api = |more: Value| {
            let mut api = of_service(json!(null));
            api["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            api
        };
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"version": "v2"}),
                vec![
                    "metadata.name: Invalid value: \"v1.a.b\": must be `spec.version+\".\"+spec.group`: \"v2.a.b\"",
                ],
            ),
            (
                json!({"groupPriorityMinimum": 0, "versionPriority": 1_001}),
                vec![
                    "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
                    "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
                ],
            ),
            (
                json!({"caBundle": "AAE=", "insecureSkipTLSVerify": true}),
                vec![
                    "spec.caBundle: Invalid value: \"2 bytes\": local APIServices may not have a caBundle",
                    "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
                ],
            ),
            (
                json!({"service": {"namespace": "", "port": 0}, "caBundle": "AAE=", "insecureSkipTLSVerify": true}),
                vec![
                    "spec.service.namespace: Required value",
                    "spec.service.name: Required value",
                    "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                    "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
                ],
            ),
        ] {
            assert_eq!(texts(&validate(&object(api(more.clone())))), expected, "{more}");
        }
    }

    #[test]
    fn api_service_printer_columns_are_filled() {
        let shown = |api: Value| cells(columns(), api);
        assert_eq!(
            shown(of_service(json!(null))),
            json!({"Service": "Local", "Available": "Unknown", "Age": "<unknown>"})
        );
        let mut other = of_service(json!({"namespace": "n", "name": "s"}));
        let condition = json!({"type": "Available", "status": "False", "reason": "Missing"});
        other["status"] = json!({"conditions": [condition]});
        let shown = shown(other);
        assert_eq!(shown["Service"], "n/s");
        assert_eq!(shown["Available"], "False (Missing)");
    }
}
