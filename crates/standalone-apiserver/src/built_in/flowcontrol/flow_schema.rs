//! FlowSchemas.

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::flowcontrol::v1::{
    FlowSchema, FlowSchemaSpec, NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule,
    ServiceAccountSubject, Subject,
};

use super::bootstrap::{EXEMPT, mandatory_schema};
use super::priority_level_configuration::check_conditions;
use crate::built_in::cell_texts::NONE;
use crate::built_in::checks::{
    FieldErrors, check_given, check_with, go_struct, is_same, quote, to_json,
};
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::with_generation;

const DEFAULT_PRECEDENCE: i32 = 1_000;
const LARGEST_PRECEDENCE: i32 = 10_000;
const ANY: &str = "*";
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub(crate) fn row() -> Row<FlowSchema> {
    let rules = Validation::new()
        .prepare(|schema, _| prepare(schema))
        .validate(|schema, _, _| validate(schema))
        .validate_status(|schema, _, _| validate_status(schema));
    Row { subresources: Subresources::Status, columns: columns(), rules, ..Row::new(strategy()) }
}

/// The strategy of both kinds of this group.
pub(super) fn strategy() -> Strategy {
    Strategy { updates_metadata_with_status: false, ..with_generation() }
}

fn columns() -> Vec<Column<FlowSchema>> {
    vec![
        Column::computed("PriorityLevel", |schema: &FlowSchema, _| {
            schema.spec.as_ref().map(|spec| spec.priority_level_configuration.name.clone())
        }),
        Column::computed("MatchingPrecedence", |schema: &FlowSchema, _| {
            schema.spec.as_ref().and_then(|spec| spec.matching_precedence).unwrap_or_default()
        }),
        Column::computed("DistinguisherMethod", |schema: &FlowSchema, _| {
            let method = schema.spec.as_ref().and_then(|spec| spec.distinguisher_method.as_ref());
            method.map_or(NONE, |method| &method.type_).to_owned()
        }),
        Column::age(),
        Column::computed("MissingPL", |schema: &FlowSchema, _| {
            let conditions = schema.status.as_ref().and_then(|status| status.conditions.as_ref());
            let dangling = conditions
                .into_iter()
                .flatten()
                .find(|condition| condition.type_.as_deref() == Some("Dangling"));
            dangling.map_or_else(
                || "?".to_owned(),
                |condition| condition.status.clone().unwrap_or_default(),
            )
        }),
    ]
}

fn prepare(schema: &mut FlowSchema) {
    let spec = schema.spec.get_or_insert_default();
    if spec.matching_precedence.unwrap_or_default() == 0 {
        spec.matching_precedence = Some(DEFAULT_PRECEDENCE);
    }
}

fn validate(schema: &FlowSchema) -> FieldErrors {
    let mut faults = Vec::new();
    let name = schema.metadata.name.as_deref().unwrap_or_default();
    let nothing = FlowSchemaSpec::default();
    let spec = schema.spec.as_ref().unwrap_or(&nothing);
    check_spec(name, spec, &mut faults);
    if let Some(mandatory) = mandatory_schema(name)
        && !is_same(&schema.spec, &mandatory.spec)
    {
        let why = format!("spec of '{name}' must equal the fixed value");
        faults.push(FieldError::invalid("spec", to_json(&schema.spec), &why));
    }
    faults.extend(validate_status(schema));
    faults
}

fn validate_status(schema: &FlowSchema) -> FieldErrors {
    let conditions = schema.status.as_ref().and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default().iter();
    let mut faults = Vec::new();
    check_conditions(conditions.map(|condition| condition.type_.as_deref()), &mut faults);
    faults
}

fn check_spec(name: &str, spec: &FlowSchemaSpec, faults: &mut FieldErrors) {
    let precedence = spec.matching_precedence.unwrap_or_default();
    let at = "spec.matchingPrecedence";
    if precedence <= 0 {
        faults.push(FieldError::invalid(at, precedence, "must be a positive value"));
    }
    if precedence > LARGEST_PRECEDENCE {
        let why = format!("must not be greater than {LARGEST_PRECEDENCE}");
        faults.push(FieldError::invalid(at, precedence, &why));
    }
    if precedence == 1 && name != EXEMPT {
        let why = "only the schema named 'exempt' may have matchingPrecedence 1";
        faults.push(FieldError::invalid(at, precedence, why));
    }
    let methods = ["ByNamespace", "ByUser"];
    if let Some(method) = &spec.distinguisher_method
        && !methods.contains(&method.type_.as_str())
    {
        let shown = go_struct(&[("Type", quote(&method.type_))]);
        let at = "spec.distinguisherMethod.type";
        faults.push(FieldError::not_supported(at, shown, &methods));
    }
    let at = "spec.priorityLevelConfiguration.name";
    match spec.priority_level_configuration.name.as_str() {
        "" => faults.push(FieldError::required(at, "must reference a priority level")),
        level => check_with(at, level, names::check_dns_1123_subdomain, faults),
    }
    for (index, rule) in spec.rules.iter().flatten().enumerate() {
        check_rule(rule, &format!("spec.rules[{index}]"), faults);
    }
}

fn check_rule(rule: &PolicyRulesWithSubjects, at: &str, faults: &mut FieldErrors) {
    for (index, subject) in rule.subjects.iter().enumerate() {
        check_subject(subject, &format!("{at}.subjects[{index}]"), faults);
    }
    if rule.subjects.is_empty() {
        let why = "subjects must contain at least one value";
        faults.push(FieldError::required(format!("{at}.subjects"), why));
    }
    let of_resources = rule.resource_rules.as_deref().unwrap_or_default();
    let of_paths = rule.non_resource_rules.as_deref().unwrap_or_default();
    if of_resources.is_empty() && of_paths.is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        faults.push(FieldError::required(at, why));
    }
    for (index, rule) in of_resources.iter().enumerate() {
        check_resource_rule(rule, &format!("{at}.resourceRules[{index}]"), faults);
    }
    for (index, rule) in of_paths.iter().enumerate() {
        check_path_rule(rule, &format!("{at}.nonResourceRules[{index}]"), faults);
    }
}

fn check_subject(subject: &Subject, at: &str, faults: &mut FieldErrors) {
    let Subject { group, kind, service_account, user } = subject;
    let names = |of: &str| match of {
        "ServiceAccount" => "serviceAccount",
        "User" => "user",
        _ => "group",
    };
    let required = |of: &str| {
        let field = names(of);
        let why = format!("{field} is required when subject kind is '{of}'");
        FieldError::required(format!("{at}.{field}"), &why)
    };
    let others = match kind.as_str() {
        "ServiceAccount" => {
            match service_account {
                None => faults.push(required(kind)),
                Some(account) => check_account(account, &format!("{at}.serviceAccount"), faults),
            }
            [("User", user.is_some()), ("Group", group.is_some())]
        }
        "User" => {
            match user {
                None => faults.push(required(kind)),
                Some(user) => {
                    check_given(&format!("{at}.user.name"), &user.name, faults);
                }
            }
            [("ServiceAccount", service_account.is_some()), ("Group", group.is_some())]
        }
        "Group" => {
            match group {
                None => faults.push(required(kind)),
                Some(group) => {
                    check_given(&format!("{at}.group.name"), &group.name, faults);
                }
            }
            [("ServiceAccount", service_account.is_some()), ("User", user.is_some())]
        }
        other => {
            let all = ["Group", "ServiceAccount", "User"];
            let at = format!("{at}.kind");
            return faults.push(FieldError::not_supported(at, quote(other), &all));
        }
    };
    for (of, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
        let field = names(of);
        let why = format!("{field} is forbidden when subject kind is not '{of}'");
        faults.push(FieldError::forbidden(format!("{at}.{field}"), &why));
    }
}

fn check_account(account: &ServiceAccountSubject, at: &str, faults: &mut FieldErrors) {
    let at_name = format!("{at}.name");
    if check_given(&at_name, &account.name, faults) && account.name != ANY {
        check_with(&at_name, &account.name, names::check_dns_1123_subdomain, faults);
    }
    let at = format!("{at}.namespace");
    match account.namespace.as_str() {
        "" => {
            faults.push(FieldError::required(at, "must specify namespace for service account"));
        }
        namespace => check_with(&at, namespace, names::check_dns_1123_label, faults),
    }
}

fn check_resource_rule(rule: &ResourcePolicyRule, at: &str, faults: &mut FieldErrors) {
    check_verbs(&rule.verbs, at, faults);
    let why = "resource rules must supply at least one api group";
    check_list(&rule.api_groups, &format!("{at}.apiGroups"), (why, "api groups"), faults);
    let why = "resource rules must supply at least one resource";
    check_list(&rule.resources, &format!("{at}.resources"), (why, "resources"), faults);
    let at = format!("{at}.namespaces");
    let namespaces = rule.namespaces.as_deref().unwrap_or_default();
    let is_any = namespaces.iter().any(|one| one == ANY);
    if namespaces.is_empty() && !rule.cluster_scope.unwrap_or_default() {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        faults.push(FieldError::required(at, why));
    } else if is_any {
        check_alone(namespaces, &at, "namespaces", faults);
    } else {
        for (index, namespace) in namespaces.iter().enumerate() {
            for why in names::check_dns_1123_label(namespace) {
                let why =
                    format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                let at = format!("{at}[{index}]");
                faults.push(FieldError::invalid(at, quote(namespace), &why));
            }
        }
    }
}

fn check_path_rule(rule: &NonResourcePolicyRule, at: &str, faults: &mut FieldErrors) {
    check_verbs(&rule.verbs, at, faults);
    let at = format!("{at}.nonResourceURLs");
    let paths = &rule.non_resource_urls;
    if paths.is_empty() {
        let why = "nonResourceURLs must contain at least one value";
        faults.push(FieldError::required(at, why));
    } else if paths.iter().any(|one| one == ANY) {
        check_alone(paths, &at, "non-resource URLs", faults);
    } else {
        for (index, path) in paths.iter().enumerate() {
            if let Some(why) = fault_of_path(path) {
                faults.push(FieldError::invalid(format!("{at}[{index}]"), quote(path), why));
            }
        }
    }
}

fn fault_of_path(path: &str) -> Option<&'static str> {
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        path if !path.starts_with('/') => Some("must start with slash"),
        path if path.contains(' ') => Some("must not contain white-space"),
        path if path.contains("//") => Some("must not contain double slash"),
        path => match path.matches('*').count() {
            0 => None,
            1 if path.ends_with("/*") => None,
            _ => Some("wildcard can only do suffix matching"),
        },
    }
}

fn check_verbs(verbs: &[String], at: &str, faults: &mut FieldErrors) {
    let at = format!("{at}.verbs");
    if verbs.is_empty() {
        faults.push(FieldError::required(at, "verbs must contain at least one value"));
    } else if verbs.iter().any(|verb| verb == ANY) {
        check_alone(verbs, &at, "verbs", faults);
    } else if verbs.iter().any(|verb| !VERBS.contains(&verb.as_str())) {
        faults.push(FieldError::not_supported(at, to_json(&verbs), &VERBS));
    }
}

fn check_list(list: &[String], at: &str, (why, what): (&str, &str), faults: &mut FieldErrors) {
    if list.is_empty() {
        faults.push(FieldError::required(at, why));
    } else if list.iter().any(|one| one == ANY) {
        check_alone(list, at, what, faults);
    }
}

/// Checks that a list with `*` has no other element.
fn check_alone(list: &[String], at: &str, what: &str, faults: &mut FieldErrors) {
    if list.len() > 1 {
        let why = format!("if '*' is present, must not specify other {what}");
        faults.push(FieldError::invalid(at, to_json(&list), &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::flowcontrol::bootstrap;
    use crate::built_in::testing::{cells, now, object, prepared, texts};
    use serde_json::{Value, json};

    fn faults(schema: Value) -> Vec<String> {
        texts(&validate(&object(schema)))
    }

    fn schema(rule: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {
            "priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 5, "rules": [rule],
        }})
    }

    #[test]
    fn the_flow_schemas_of_the_start_are_valid() {
        let mut count = 0;
        for object in bootstrap::objects(now()) {
            if object["kind"] == "FlowSchema" {
                assert_eq!(faults(object), [] as [&str; 0]);
                count += 1;
            }
        }
        assert_eq!(count, 11);
        let mut changed = json!({"metadata": {"name": "exempt"}});
        changed["spec"] = schema(json!({}))["spec"].clone();
        let found = faults(changed).pop().unwrap();
        assert!(found.ends_with("spec of 'exempt' must equal the fixed value"), "{found}");
    }

    #[test]
    fn invalid_rules_are_rejected() {
        let path = |path: &str| {
            let rule = json!({"verbs": ["get"], "nonResourceURLs": [path]});
            let user = json!({"kind": "User", "user": {"name": "u"}});
            schema(json!({"subjects": [user], "nonResourceRules": [rule]}))
        };
        for (text, why) in [
            ("/", None),
            ("/a/*", None),
            ("a", Some("must start with slash")),
            ("/a b", Some("must not contain white-space")),
            ("//a", Some("must not contain double slash")),
            ("/*a", Some("wildcard can only do suffix matching")),
        ] {
            let at = "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]";
            let expected = why.map(|why| format!("{at}: Invalid value: \"{text}\": {why}"));
            assert_eq!(faults(path(text)), expected.into_iter().collect::<Vec<_>>(), "{text}");
        }
        let subject = json!({"kind": "User", "group": {"name": "g"}});
        assert_eq!(
            faults(schema(json!({"subjects": [subject]}))),
            [
                "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
                "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
                "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
            ]
        );
    }

    #[test]
    fn flow_schemas_have_defaults_and_table_rows() {
        let filled = prepared(prepare, json!({"metadata": {"name": "a"}}));
        assert_eq!(filled["spec"]["matchingPrecedence"], 1_000);
        assert_eq!(
            cells(columns(), schema(json!({"subjects": []}))),
            json!({
                "PriorityLevel": "l", "MatchingPrecedence": 5, "DistinguisherMethod": "<none>",
                "Age": "<unknown>", "MissingPL": "?",
            })
        );
    }
}
