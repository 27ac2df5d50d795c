//! CSIDrivers.

use std::collections::BTreeSet;

use aggregated_apiserver::strategy::FilledField;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, TokenRequest};

use crate::built_in::cell_texts::{NONE, UNSET};
use crate::built_in::checks::{FieldErrors, check_immutable, check_one_of, is_same, quote};
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::requiring_resource_version;

/// The warning about tokens without a field that keeps them out of logs.
const TOKENS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
/// The limits of the lifetime of a token, in seconds.
const SHORTEST_LIFETIME: i64 = 600;
const LONGEST_LIFETIME: i64 = 1 << 32;
/// The shortest period between two updates of the number of volumes, in seconds.
const SHORTEST_PERIOD: i64 = 10;

pub(crate) fn row() -> Row<CSIDriver> {
    let rules = Validation::new()
        .prepare(|driver: &mut CSIDriver, context| {
            set_defaults(&mut driver.spec);
            if let Some(old) = context.old().filter(|_| context.is_admitted) {
                count_change(driver, &old);
            }
        })
        .validate(|driver, old, _| validate(driver, old))
        .warn(|driver, old, _| warnings(driver, old));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    // The feature of the field is off by default.
    const FILLED: &[FilledField] = &[FilledField::dropped("/spec/preventPodSchedulingIfMissing")];
    Strategy {
        returns_deleted_object: true,
        filled_by_system: FILLED,
        ..requiring_resource_version()
    }
}

fn columns() -> Vec<Column<CSIDriver>> {
    let flag = |heading, of: fn(&CSIDriverSpec) -> bool| {
        Column::computed(heading, move |driver: &CSIDriver, _| of(&driver.spec)).of_type("boolean")
    };
    vec![
        flag("AttachRequired", |spec| spec.attach_required.unwrap_or(true)),
        flag("PodInfoOnMount", |spec| spec.pod_info_on_mount.unwrap_or_default()),
        flag("StorageCapacity", |spec| spec.storage_capacity.unwrap_or_default()),
        Column::computed("TokenRequests", |driver: &CSIDriver, _| {
            let audiences = |requests: &Vec<TokenRequest>| {
                let all: Vec<&str> = requests.iter().map(|one| one.audience.as_str()).collect();
                all.join(",")
            };
            driver.spec.token_requests.as_ref().map_or_else(|| UNSET.to_owned(), audiences)
        }),
        flag("RequiresRepublish", |spec| spec.requires_republish.unwrap_or_default()),
        Column::computed("Modes", |driver: &CSIDriver, _| {
            let modes = driver.spec.volume_lifecycle_modes.as_deref().unwrap_or_default();
            if modes.is_empty() { NONE.to_owned() } else { modes.join(",") }
        }),
        Column::age(),
    ]
}

fn set_defaults(spec: &mut CSIDriverSpec) {
    spec.attach_required.get_or_insert(true);
    spec.pod_info_on_mount.get_or_insert(false);
    spec.storage_capacity.get_or_insert(false);
    spec.fs_group_policy.get_or_insert_with(|| "ReadWriteOnceWithFSType".to_owned());
    if spec.volume_lifecycle_modes.as_ref().is_none_or(Vec::is_empty) {
        spec.volume_lifecycle_modes = Some(vec!["Persistent".to_owned()]);
    }
    spec.requires_republish.get_or_insert(false);
    spec.se_linux_mount.get_or_insert(false);
    spec.prevent_pod_scheduling_if_missing = None;
}

/// Increments the generation if the spec has changed. A new object has no generation.
fn count_change(driver: &mut CSIDriver, old: &CSIDriver) {
    if !is_same(&driver.spec, &old.spec) {
        let generation = old.metadata.generation.unwrap_or_default();
        driver.metadata.generation = Some(generation + 1);
    }
}

fn validate(driver: &CSIDriver, old: Option<&CSIDriver>) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = &driver.spec;
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    check_one_of("spec.fsGroupPolicy", spec.fs_group_policy.as_ref(), &policies, &mut faults);
    check_token_requests(spec.token_requests.as_deref().unwrap_or_default(), &mut faults);
    for mode in spec.volume_lifecycle_modes.iter().flatten() {
        let modes = ["Persistent", "Ephemeral"];
        check_one_of("spec.volumeLifecycleModes", Some(mode), &modes, &mut faults);
    }
    let period = spec.node_allocatable_update_period_seconds;
    if let Some(period) = period.filter(|period| *period < SHORTEST_PERIOD) {
        let why = "must be greater than or equal to 10 seconds";
        let at = "spec.nodeAllocatableUpdatePeriodSeconds";
        faults.push(FieldError::invalid(at, period, why));
    }
    let in_secrets = spec.service_account_token_in_secrets;
    if let Some(is_set) = in_secrets.filter(|_| !has_token_requests(spec)) {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        faults.push(FieldError::invalid("spec.serviceAccountTokenInSecrets", is_set, why));
    }
    let Some(old) = old.map(|old| &old.spec) else { return faults };
    // The path has this name in kube-apiserver.
    let (new_attach, old_attach) = (&spec.attach_required, &old.attach_required);
    check_immutable("spec.attachedRequired", new_attach, old_attach, &mut faults);
    let (new_modes, old_modes) = (&spec.volume_lifecycle_modes, &old.volume_lifecycle_modes);
    check_immutable("spec.volumeLifecycleModes", new_modes, old_modes, &mut faults);
    faults
}

fn check_token_requests(requests: &[TokenRequest], faults: &mut FieldErrors) {
    let mut audiences = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let at = format!("spec.tokenRequests[{index}]");
        if !audiences.insert(&request.audience) {
            faults.push(FieldError::duplicate(format!("{at}.audience"), quote(&request.audience)));
            continue;
        }
        let Some(seconds) = request.expiration_seconds else { continue };
        let at = format!("{at}.expirationSeconds");
        if seconds < SHORTEST_LIFETIME {
            let why = "may not specify a duration less than 10 minutes";
            faults.push(FieldError::invalid(at, seconds, why));
        } else if seconds > LONGEST_LIFETIME {
            let why = "may not specify a duration larger than 2^32 seconds";
            faults.push(FieldError::invalid(at, seconds, why));
        }
    }
}

fn has_token_requests(spec: &CSIDriverSpec) -> bool {
    spec.token_requests.as_ref().is_some_and(|requests| !requests.is_empty())
}

fn warnings(driver: &CSIDriver, old: Option<&CSIDriver>) -> Vec<String> {
    let spec = &driver.spec;
    let is_same = old.is_some_and(|old| is_same(&old.spec.token_requests, &spec.token_requests));
    let is_unset = spec.service_account_token_in_secrets.is_none();
    if has_token_requests(spec) && is_unset && !is_same { vec![TOKENS.to_owned()] } else { vec![] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, object, prepared};
    use serde_json::{Value, json};

    #[test]
    fn invalid_csi_drivers_are_rejected() {
        for (spec, expected) in [
            (json!({}), vec![]),
            (
                json!({"fsGroupPolicy": "X", "volumeLifecycleModes": ["Y"], "nodeAllocatableUpdatePeriodSeconds": 9, "serviceAccountTokenInSecrets": true}),
                vec![
                    "spec.fsGroupPolicy: Unsupported value: \"X\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
                    "spec.volumeLifecycleModes: Unsupported value: \"Y\": supported values: \"Persistent\", \"Ephemeral\"",
                    "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
                    "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified",
                ],
            ),
            (
                json!({"tokenRequests": [
                    {"audience": "a", "expirationSeconds": 5},
                    {"audience": "a"},
                    {"audience": "", "expirationSeconds": 5_000_000_000_i64},
                ]}),
                vec![
                    "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
                    "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
                    "spec.tokenRequests[2].expirationSeconds: Invalid value: 5000000000: may not specify a duration larger than 2^32 seconds",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, json!({"spec": spec})), expected, "{spec}");
        }
        let old = json!({"spec": {"attachRequired": true, "volumeLifecycleModes": ["Persistent"]}});
        let new = json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}});
        assert_eq!(
            faults_of_update(validate, old, new),
            [
                "spec.attachedRequired: Invalid value: false: field is immutable",
                "spec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable",
            ]
        );
    }

    #[test]
    fn requests_for_tokens_are_warned_about_when_they_change() {
        let driver = |requests: Value| object(json!({"spec": {"tokenRequests": requests}}));
        let [none, one] = [json!([]), json!([{"audience": "a"}])].map(driver);
        assert_eq!(warnings(&one, None).len(), 1);
        assert_eq!(warnings(&one, Some(&none)).len(), 1);
        assert!(warnings(&one, Some(&one)).is_empty());
        assert!(warnings(&none, None).is_empty());
    }

    #[test]
    fn csi_drivers_have_defaults_generations_and_table_rows() {
        let driver =
            prepared(|driver: &mut CSIDriver| set_defaults(&mut driver.spec), json!({"spec": {}}));
        assert_eq!(
            driver["spec"],
            json!({
                "attachRequired": true, "podInfoOnMount": false, "storageCapacity": false,
                "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"],
                "requiresRepublish": false, "seLinuxMount": false,
            })
        );
        let old: CSIDriver = object(driver.clone());
        let mut new = old.clone();
        count_change(&mut new, &old);
        assert_eq!(new.metadata.generation, None);
        new.spec.pod_info_on_mount = Some(true);
        count_change(&mut new, &old);
        assert_eq!(new.metadata.generation, Some(1));
        assert_eq!(
            cells(columns(), driver),
            json!({
                "AttachRequired": true, "PodInfoOnMount": false, "StorageCapacity": false,
                "TokenRequests": "<unset>", "RequiresRepublish": false, "Modes": "Persistent",
                "Age": "<unknown>",
            })
        );
    }
}
