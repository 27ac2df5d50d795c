//! StorageClasses.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::core::v1::TopologySelectorTerm;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::built_in::checks::{FieldErrors, check_immutable, check_one_of, check_with, quote};
use crate::built_in::node_labels;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::without_generation;

/// The annotations that mark the class for claims without a class.
const DEFAULT_ANNOTATIONS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// The largest number of parameters, and their largest total size in bytes.
const PARAMETERS: usize = 512;
const SIZE: usize = 256 << 10;

pub(crate) fn row() -> Row<StorageClass> {
    let rules = Validation::new()
        .prepare(|class, _| prepare(class))
        .validate(|class, old, _| validate(class, old))
        .warn(|class, _, _| warnings(class));
    Row { short_names: &["sc"], columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { has_name_column: true, returns_deleted_object: true, ..without_generation() }
}

fn columns() -> Vec<Column<StorageClass>> {
    vec![
        Column::computed("Name", |class: &StorageClass, _| {
            let name = class.metadata.name.clone().unwrap_or_default();
            if is_default(class) { name + " (default)" } else { name }
        }),
        Column::computed("Provisioner", |class: &StorageClass, _| class.provisioner.clone()),
        Column::computed("ReclaimPolicy", |class: &StorageClass, _| {
            class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned())
        }),
        Column::computed("VolumeBindingMode", |class: &StorageClass, _| {
            class.volume_binding_mode.clone().unwrap_or_else(|| "Immediate".to_owned())
        }),
        Column::computed("AllowVolumeExpansion", |class: &StorageClass, _| {
            class.allow_volume_expansion.unwrap_or_default()
        }),
        Column::age(),
    ]
}

/// Whether this is the class for claims without a class.
pub(crate) fn is_default(class: &StorageClass) -> bool {
    let annotations = class.metadata.annotations.as_ref();
    let value = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    DEFAULT_ANNOTATIONS.iter().any(|key| value(key) == Some("true"))
}

fn prepare(class: &mut StorageClass) {
    class.reclaim_policy.get_or_insert_with(|| "Delete".to_owned());
    class.volume_binding_mode.get_or_insert_with(|| "Immediate".to_owned());
}

fn validate(class: &StorageClass, old: Option<&StorageClass>) -> FieldErrors {
    let mut faults = Vec::new();
    check_provisioner("provisioner", &class.provisioner, &mut faults);
    check_parameters(class.parameters.as_ref(), &mut faults);
    let policy = class.reclaim_policy.as_ref().filter(|policy| !policy.is_empty());
    check_one_of("reclaimPolicy", policy, &["Delete", "Retain"], &mut faults);
    let modes = ["Immediate", "WaitForFirstConsumer"];
    check_one_of("volumeBindingMode", class.volume_binding_mode.as_ref(), &modes, &mut faults);
    check_topologies(class.allowed_topologies.as_deref().unwrap_or_default(), &mut faults);
    let Some(old) = old else { return faults };
    check_immutable("parameters", &class.parameters, &old.parameters, &mut faults);
    check_immutable("provisioner", &class.provisioner, &old.provisioner, &mut faults);
    check_immutable("reclaimPolicy", &class.reclaim_policy, &old.reclaim_policy, &mut faults);
    let (new, old) = (&class.volume_binding_mode, &old.volume_binding_mode);
    check_immutable("volumeBindingMode", new, old, &mut faults);
    faults
}

/// Checks the name of the driver of a class.
pub(super) fn check_provisioner(at: &str, provisioner: &str, faults: &mut FieldErrors) {
    if provisioner.is_empty() {
        return faults.push(FieldError::required(at, ""));
    }
    // kube-apiserver reports the value in lower case, too.
    check_with(at, &provisioner.to_lowercase(), names::check_label_key, faults);
}

/// Checks the number and the size of the parameters of a class.
pub(super) fn check_parameters(
    parameters: Option<&BTreeMap<String, String>>,
    faults: &mut FieldErrors,
) {
    let Some(parameters) = parameters else { return };
    if parameters.len() > PARAMETERS {
        return faults.push(FieldError::too_long("parameters", PARAMETERS as u64));
    }
    if parameters.contains_key("") {
        faults.push(FieldError::invalid("parameters", "\"\"", "field can not be empty."));
    }
    if parameters.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > SIZE {
        faults.push(FieldError::too_long("parameters", SIZE as u64));
    }
}

fn check_topologies(terms: &[TopologySelectorTerm], faults: &mut FieldErrors) {
    let mut seen = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        let at = format!("allowedTopologies[{index}].matchLabelExpressions");
        let wanted = check_term(term, &at, faults);
        // In kube-apiserver, a term without expressions is a duplicate of as many empty terms as there are terms.
        let unwritten = if wanted.is_empty() { terms.len() } else { 0 };
        let count = unwritten + seen.iter().filter(|one| **one == wanted).count();
        let duplicate = || FieldError::duplicate(at.clone(), "\"\"");
        faults.extend(std::iter::repeat_with(duplicate).take(count.min(DUPLICATES)));
        seen.push(wanted);
    }
}

/// The largest number of errors about duplicates of one term.
const DUPLICATES: usize = 100;

/// The values that a term requires for each label.
fn check_term<'a>(
    term: &'a TopologySelectorTerm,
    at: &str,
    faults: &mut FieldErrors,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut wanted = BTreeMap::new();
    for (index, one) in term.match_label_expressions.iter().flatten().enumerate() {
        let at = format!("{at}[{index}]");
        let mut values = BTreeSet::new();
        if one.values.is_empty() {
            faults.push(FieldError::required(format!("{at}.values"), ""));
        }
        for (index, value) in one.values.iter().enumerate() {
            if !values.insert(value.as_str()) {
                faults.push(FieldError::duplicate(format!("{at}.values[{index}]"), quote(value)));
            }
        }
        check_with(&format!("{at}.key"), &one.key, names::check_label_key, faults);
        if wanted.insert(one.key.as_str(), values).is_some() {
            faults.push(FieldError::duplicate(format!("{at}.key"), quote(&one.key)));
        }
    }
    wanted
}

/// Warnings about deprecated labels of Nodes.
fn warnings(class: &StorageClass) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, term) in class.allowed_topologies.iter().flatten().enumerate() {
        for (number, one) in term.match_label_expressions.iter().flatten().enumerate() {
            warnings.extend(node_labels::deprecation(&one.key).map(|why| {
                format!("allowedTopologies[{index}].matchLabelExpressions[{number}].key: {why}")
            }));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, object, prepared};
    use serde_json::{Value, json};

    #[test]
    fn invalid_storage_classes_are_rejected() {
        let topologies =
            |terms: Value| json!({"provisioner": "a.io/b", "allowedTopologies": terms});
        for (class, expected) in [
            (json!({"provisioner": "a.io/b"}), vec![]),
            (json!({"provisioner": ""}), vec!["provisioner: Required value"]),
            (
                json!({"provisioner": "a.io/b", "reclaimPolicy": "Recycle", "volumeBindingMode": "X"}),
                vec![
                    "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
                    "volumeBindingMode: Unsupported value: \"X\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
                ],
            ),
            (
                json!({"provisioner": "a.io/b", "parameters": {"": "x"}}),
                vec!["parameters: Invalid value: \"\": field can not be empty."],
            ),
            (
                topologies(json!([{"matchLabelExpressions": [
                    {"key": "a", "values": []}, {"key": "a", "values": ["b", "b"]},
                ]}])),
                vec![
                    "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
                    "allowedTopologies[0].matchLabelExpressions[1].values[1]: Duplicate value: \"b\"",
                    "allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: \"a\"",
                ],
            ),
            (
                topologies(json!([
                    {"matchLabelExpressions": [{"key": "a", "values": ["b", "c"]}]},
                    {"matchLabelExpressions": [{"key": "a", "values": ["c", "b"]}]},
                ])),
                vec!["allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\""],
            ),
        ] {
            assert_eq!(faults_of_new(validate, class.clone()), expected, "{class}");
        }
        assert_eq!(faults_of_new(validate, topologies(json!([{}, {}]))).len(), 5);
    }

    #[test]
    fn changes() {
        let old = json!({"provisioner": "a.io/b", "reclaimPolicy": "Delete"});
        let new = json!({
            "provisioner": "a.io/c", "reclaimPolicy": "Retain", "parameters": {"a": "b"},
            "allowVolumeExpansion": true,
        });
        assert_eq!(
            faults_of_update(validate, old, new),
            [
                "parameters: Invalid value: {\"a\":\"b\"}: field is immutable",
                "provisioner: Invalid value: \"a.io/c\": field is immutable",
                "reclaimPolicy: Invalid value: \"Retain\": field is immutable",
            ]
        );
    }

    #[test]
    fn storage_classes_have_defaults_warnings_and_table_rows() {
        let class = json!({
            "metadata": {"name": "fast", "annotations": {DEFAULT_ANNOTATIONS[1]: "true"}},
            "provisioner": "a.io/b", "allowedTopologies": [
                {"matchLabelExpressions": [{"key": "beta.kubernetes.io/os", "values": ["linux"]}]},
            ],
        });
        let class = prepared(prepare, class);
        assert_eq!(
            warnings(&object(class.clone())),
            [
                "allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.14; use \"kubernetes.io/os\" instead"
            ]
        );
        assert_eq!(
            cells(columns(), class),
            json!({
                "Name": "fast (default)", "Provisioner": "a.io/b", "ReclaimPolicy": "Delete",
                "VolumeBindingMode": "Immediate", "AllowVolumeExpansion": false,
                "Age": "<unknown>",
            })
        );
    }
}
