//! CSINodes.

use std::collections::BTreeSet;

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, Strategy, Validation};
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, VolumeNodeResources};

use crate::built_in::checks::{
    FieldErrors, IMMUTABLE, check_not_negative, check_with, go_struct, is_same, quote, to_json,
};
use crate::built_in::core::persistent_volume::check_driver_name;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::requiring_resource_version;

const LONGEST_NODE_ID: usize = 256;

pub(crate) fn row() -> Row<CSINode> {
    let rules = Validation::new().validate(|node, old, _| validate(node, old));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { returns_deleted_object: true, ..requiring_resource_version() }
}

fn columns() -> Vec<Column<CSINode>> {
    vec![
        Column::computed("Drivers", |node: &CSINode, _| node.spec.drivers.len()).of_type("integer"),
        Column::age(),
    ]
}

fn validate(node: &CSINode, old: Option<&CSINode>) -> FieldErrors {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, driver) in node.spec.drivers.iter().enumerate() {
        check_driver(driver, &mut seen, &format!("spec.drivers[{index}]"), &mut faults);
    }
    for before in old.iter().flat_map(|old| &old.spec.drivers) {
        for driver in node.spec.drivers.iter().filter(|driver| driver.name == before.name) {
            let [new, old] = [driver, before].map(without_allocatable);
            if !is_same(&new, &old) {
                faults.push(FieldError::invalid("spec.drivers", shown(&new), IMMUTABLE));
            }
        }
    }
    faults
}

fn check_driver<'a>(
    driver: &'a CSINodeDriver,
    seen: &mut BTreeSet<&'a str>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let at_name = format!("{at}.name");
    check_driver_name(&at_name, &driver.name, faults);
    let (id, at_id) = (&driver.node_id, format!("{at}.nodeID"));
    if id.is_empty() {
        faults.push(FieldError::required(&*at_id, ""));
    }
    if id.len() > LONGEST_NODE_ID {
        let why = format!("must be {LONGEST_NODE_ID} characters or less");
        faults.push(FieldError::invalid(at_id, quote(id), &why));
    }
    let count = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
    check_not_negative(format!("{at}.allocatable.count"), count, faults);
    if !seen.insert(&driver.name) {
        faults.push(FieldError::duplicate(at_name, quote(&driver.name)));
    }
    let mut keys = BTreeSet::new();
    for key in driver.topology_keys.iter().flatten() {
        if key.is_empty() {
            faults.push(FieldError::required(at, ""));
        }
        if !keys.insert(key) {
            faults.push(FieldError::duplicate(at, quote(key)));
        }
        check_with(at, key, names::check_label_key, faults);
    }
}

/// A driver without its number of volumes, which may change.
fn without_allocatable(driver: &CSINodeDriver) -> CSINodeDriver {
    CSINodeDriver { allocatable: None::<VolumeNodeResources>, ..driver.clone() }
}

/// A driver in the format of messages, with the field names of Go.
fn shown(driver: &CSINodeDriver) -> String {
    go_struct(&[
        ("Name", quote(&driver.name)),
        ("NodeID", quote(&driver.node_id)),
        ("TopologyKeys", to_json(&driver.topology_keys)),
        ("Allocatable", "null".to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update};
    use serde_json::{Value, json};

    fn node(drivers: Value) -> Value {
        json!({"spec": {"drivers": drivers}})
    }

    #[test]
    fn invalid_drivers_are_rejected() {
        let driver = json!({"name": "a.b", "nodeID": "n", "topologyKeys": ["a/b"]});
        let broken = json!({
            "name": "", "nodeID": "", "topologyKeys": ["", "a", "a"], "allocatable": {"count": -1},
        });
        let twice = json!([driver, driver]);
        for (drivers, expected) in [
            (json!([]), vec![]),
            (json!([driver]), vec![]),
            (twice, vec!["spec.drivers[1].name: Duplicate value: \"a.b\""]),
        ] {
            assert_eq!(faults_of_new(validate, node(drivers.clone())), expected, "{drivers}");
        }
        let faults = faults_of_new(validate, node(json!([broken])));
        assert_eq!(
            faults[..4],
            [
                "spec.drivers[0].name: Required value",
                "spec.drivers[0].nodeID: Required value",
                "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
                "spec.drivers[0]: Required value",
            ]
        );
        assert_eq!(faults.last().unwrap(), "spec.drivers[0]: Duplicate value: \"a\"");
    }

    #[test]
    fn only_the_number_of_volumes_of_a_driver_can_change() {
        let old = node(json!([{"name": "a", "nodeID": "n"}]));
        let larger = node(json!([{"name": "a", "nodeID": "n", "allocatable": {"count": 5}}]));
        assert_eq!(faults_of_update(validate, old.clone(), larger), [] as [&str; 0]);
        let moved = node(json!([{"name": "a", "nodeID": "m", "topologyKeys": ["z"]}]));
        assert_eq!(
            faults_of_update(validate, old, moved),
            [
                "spec.drivers: Invalid value: {\"Name\":\"a\",\"NodeID\":\"m\",\"TopologyKeys\":[\"z\"],\"Allocatable\":null}: field is immutable"
            ]
        );
    }

    #[test]
    fn a_csi_node_is_printed_as_a_table_row() {
        let shown = node(json!([{"name": "a", "nodeID": "n"}]));
        assert_eq!(cells(columns(), shown), json!({"Drivers": 1, "Age": "<unknown>"}));
    }
}
