//! IPAddresses.

use aggregated_apiserver::strategy::{NameRule, names};
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::networking::v1::{IPAddress, ParentReference};

use crate::built_in::cell_texts::NONE;
use crate::built_in::checks::{FieldErrors, IMMUTABLE, check_with, go_struct, is_same, quote};
use crate::built_in::networks::faults_of_address_name;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;

pub(crate) fn row() -> Row<IPAddress> {
    let rules = Validation::new().validate(|address, old, _| validate(address, old));
    Row { short_names: &["ip"], columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy {
        names: NameRule::Checked(faults_of_address_name),
        adds_name_suffix: false,
        ..without_generation()
    }
}

fn columns() -> Vec<Column<IPAddress>> {
    vec![Column::computed("ParentRef", |address: &IPAddress, _| {
        parent_of(address).map_or_else(|| NONE.to_owned(), shown_parent)
    })]
}

/// A reference in the format `services/default/kubernetes`.
fn shown_parent(parent: &ParentReference) -> String {
    let resource = match parent.group.as_deref() {
        None | Some("") => parent.resource.to_lowercase(),
        Some(group) => format!("{}.{group}", parent.resource).to_lowercase(),
    };
    match parent.namespace.as_deref() {
        None | Some("") => format!("{resource}/{}", parent.name),
        Some(namespace) => format!("{resource}/{namespace}/{}", parent.name),
    }
}

fn validate(address: &IPAddress, old: Option<&IPAddress>) -> FieldErrors {
    let mut faults = Vec::new();
    let parent = parent_of(address);
    match parent {
        None => faults.push(FieldError::required("spec.parentRef", "")),
        Some(parent) => check_parent(parent, &mut faults),
    }
    if let Some(old) = old
        && !is_same(&parent, &parent_of(old))
    {
        let value = parent.map_or_else(|| "null".to_owned(), shown);
        faults.push(FieldError::invalid("spec.parentRef", value, IMMUTABLE));
    }
    faults
}

/// The parent of an address. The Rust type does not distinguish an empty reference from a missing one.
fn parent_of(address: &IPAddress) -> Option<&ParentReference> {
    let parent = &address.spec.parent_ref;
    (*parent != ParentReference::default()).then_some(parent)
}

fn check_parent(parent: &ParentReference, faults: &mut FieldErrors) {
    const AT: &str = "spec.parentRef";
    let ParentReference { group, name, namespace, resource } = parent;
    if let Some(group) = group.as_deref().filter(|group| !group.is_empty()) {
        check_with(&format!("{AT}.group"), group, names::check_dns_1123_subdomain, faults);
    }
    for (field, value) in [("resource", resource), ("name", name)] {
        let at = format!("{AT}.{field}");
        match value.as_str() {
            "" => faults.push(FieldError::required(at, "")),
            value => check_with(&at, value, names::check_path_segment, faults),
        }
    }
    if let Some(namespace) = namespace {
        check_with(&format!("{AT}.namespace"), namespace, names::check_path_segment, faults);
    }
}

/// A reference in the format of messages, with the field names of Go.
fn shown(parent: &ParentReference) -> String {
    let text = |value: &Option<String>| quote(value.as_deref().unwrap_or_default());
    go_struct(&[
        ("Group", text(&parent.group)),
        ("Resource", quote(&parent.resource)),
        ("Namespace", text(&parent.namespace)),
        ("Name", quote(&parent.name)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    fn address(parent: Value) -> Value {
        json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": parent}})
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for (parent, expected) in [
            (json!({"resource": "services", "name": "a", "namespace": "b"}), vec![]),
            (json!({}), vec!["spec.parentRef: Required value"]),
            (
                json!({"group": "A b", "resource": "a/b", "name": "", "namespace": "%"}),
                vec![
                    "spec.parentRef.group: Invalid value: \"A b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                    "spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'",
                    "spec.parentRef.name: Required value",
                    "spec.parentRef.namespace: Invalid value: \"%\": may not contain '%'",
                ],
            ),
        ] {
            let expected: Vec<String> =
                expected.into_iter().map(|text: &str| text.replace("\\\\.", "\\.")).collect();
            assert_eq!(faults_of_new(validate, address(parent.clone())), expected, "{parent}");
        }
    }

    #[test]
    fn the_parent_of_an_address_does_not_change_and_is_printed() {
        let [old, new] = ["a", "b"]
            .map(|name| address(json!({"group": "x.io", "resource": "Things", "name": name})));
        assert_eq!(
            faults_of_update(validate, old, new.clone()),
            [
                "spec.parentRef: Invalid value: {\"Group\":\"x.io\",\"Resource\":\"Things\",\"Namespace\":\"\",\"Name\":\"b\"}: field is immutable"
            ]
        );
        assert_eq!(cells(columns(), new), json!({"ParentRef": "things.x.io/b"}));
    }
}
