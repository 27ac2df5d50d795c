//! ResourceSlices.

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::names;
use aggregated_apiserver::{FieldError, SelectableFields, Strategy, Validation};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{
    Counter, CounterSet, Device, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::checks::{check_label, check_pool_name, check_set};
use super::devices;
use crate::built_in::checks::{FieldErrors, check_immutable, check_with, quote, to_json};
use crate::built_in::core::persistent_volume::check_driver_name;
use crate::built_in::pod_template::affinity::check_node_selector;
use crate::built_in::row::{Column, Row};
use crate::built_in::strategy::common;

/// The largest numbers of devices: of simple ones, and of those with taints or counters.
const DEVICES: usize = 128;
const ADVANCED_DEVICES: usize = 64;
const COUNTER_SETS: usize = 8;
const COUNTERS: usize = 32;

pub(crate) fn row() -> Row<ResourceSlice> {
    let rules = Validation::new()
        .prepare(|slice: &mut ResourceSlice, context| {
            set_defaults(&mut slice.spec, context.now);
            if context.is_admitted {
                devices::drop_disabled(&mut slice.spec, context.old::<ResourceSlice>().as_ref());
            }
        })
        .validate(|slice, old, _| validate(slice, old))
        .warn(|slice, _, _| warnings(slice));
    Row { columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    let selectable =
        SelectableFields::default().with_field("spec.driver", "").with_field("spec.nodeName", "");
    Strategy { returns_deleted_object: true, selectable, ..common() }
}

fn columns() -> Vec<Column<ResourceSlice>> {
    vec![
        Column::computed("Node", |slice: &ResourceSlice, _| {
            slice.spec.node_name.clone().unwrap_or_default()
        }),
        Column::path("Driver", ".spec.driver"),
        Column::path("Pool", ".spec.pool.name"),
        Column::age(),
    ]
}

fn set_defaults(spec: &mut ResourceSliceSpec, now: Timestamp) {
    for device in spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten() {
            let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
            taint.time_added.get_or_insert(Time(now));
        }
    }
}

/// A warning about a driver in upper case.
fn warnings(slice: &ResourceSlice) -> Vec<String> {
    let driver = &slice.spec.driver;
    let warning = || {
        let driver = quote(driver);
        format!(
            "spec.driver: driver names should be lowercase; {driver} contains uppercase characters"
        )
    };
    if *driver == driver.to_lowercase() { Vec::new() } else { vec![warning()] }
}

fn validate(slice: &ResourceSlice, old: Option<&ResourceSlice>) -> FieldErrors {
    let mut faults = Vec::new();
    let (spec, old) = (&slice.spec, old.map(|old| &old.spec));
    check_driver_name("spec.driver", &spec.driver, &mut faults);
    check_pool(spec, &mut faults);
    if let Some(old) = old {
        check_immutable("spec.pool.name", &spec.pool.name, &old.pool.name, &mut faults);
        check_immutable("spec.driver", &spec.driver, &old.driver, &mut faults);
        check_immutable("spec.nodeName", &spec.node_name, &old.node_name, &mut faults);
    }
    check_nodes(spec, &mut faults);
    if spec.shared_counters.is_some() && spec.devices.is_some() {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        faults.push(FieldError::invalid("spec", quote(""), why));
    }
    let all = spec.devices.as_ref();
    let most = if all.into_iter().flatten().any(devices::is_advanced) {
        ADVANCED_DEVICES
    } else {
        DEVICES
    };
    let name = |device: &Device| quote(&device.name);
    check_set(all, most, "spec.devices", &mut faults, name, |device, at, faults| {
        let mut known = old.into_iter().flat_map(|old| old.devices.iter().flatten());
        let known = known.find(|known| known.name == device.name);
        devices::check(device, known, spec.per_device_node_selection == Some(true), at, faults);
    });
    let sets = spec.shared_counters.as_ref();
    let name = |set: &CounterSet| quote(&set.name);
    check_set(sets, COUNTER_SETS, "spec.sharedCounters", &mut faults, name, |set, at, faults| {
        check_counters(&set.name, "name", &set.counters, at, faults);
    });
    faults
}

fn check_pool(spec: &ResourceSliceSpec, faults: &mut FieldErrors) {
    check_pool_name(&spec.pool.name, "spec.pool.name", faults);
    let count = spec.pool.resource_slice_count;
    if count <= 0 {
        let why = "must be greater than zero";
        faults.push(FieldError::invalid("spec.pool.resourceSliceCount", count, why));
    }
    let generation = spec.pool.generation;
    if generation < 0 {
        let why = "must be greater than or equal to zero";
        faults.push(FieldError::invalid("spec.pool.generation", generation, why));
    }
}

/// Checks that a slice is for one node, for nodes, for all nodes, or that each of its devices is.
fn check_nodes(spec: &ResourceSliceSpec, faults: &mut FieldErrors) {
    const WHY: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set = Vec::new();
    let empty = "must be either unset or set to a non-empty string";
    check_node_name(spec.node_name.as_deref(), "spec", empty, &mut set, faults);
    if let Some(selector) = &spec.node_selector {
        set.push("`nodeSelector`");
        check_node_selector(selector, "spec.nodeSelector", faults);
        check_one_term(selector, faults);
    }
    check_flag(spec.all_nodes, "spec", "allNodes", "`allNodes`", &mut set, faults);
    let each = spec.per_device_node_selection;
    let (field, shown) = ("perDeviceNodeSelection", "`perDeviceNodeSelection`");
    check_flag(each, "spec", field, shown, &mut set, faults);
    match set.len() {
        0 => faults.push(FieldError::required("spec", WHY)),
        1 => {}
        _ => {
            let why = format!("{WHY}, but multiple fields are set");
            let value = quote(&format!("{{{}}}", set.join(", ")));
            faults.push(FieldError::invalid("spec", value, &why));
        }
    }
}

fn check_one_term(selector: &NodeSelector, faults: &mut FieldErrors) {
    let terms = &selector.node_selector_terms;
    if terms.len() != 1 {
        let why = "must have exactly one node selector term";
        let value = if terms.is_empty() { "null".to_owned() } else { to_json(terms) };
        faults.push(FieldError::invalid("spec.nodeSelector.nodeSelectorTerms", value, why));
    }
}

/// Checks the name of a node. `set` gets the field, if it is set.
pub(super) fn check_node_name(
    name: Option<&str>,
    at: &str,
    empty: &str,
    set: &mut Vec<&'static str>,
    faults: &mut FieldErrors,
) {
    let at = format!("{at}.nodeName");
    match name {
        None => {}
        Some("") => faults.push(FieldError::invalid(at, quote(""), empty)),
        Some(name) => {
            set.push("`nodeName`");
            check_with(&at, name, names::check_dns_1123_subdomain, faults);
        }
    }
}

/// Checks a field that may only be true. `set` gets the field, if it is set.
pub(super) fn check_flag(
    flag: Option<bool>,
    at: &str,
    field: &str,
    shown: &'static str,
    set: &mut Vec<&'static str>,
    faults: &mut FieldErrors,
) {
    match flag {
        None => {}
        Some(true) => set.push(shown),
        Some(false) => {
            let why = "must be either unset or set to true";
            faults.push(FieldError::invalid(format!("{at}.{field}"), "false", why));
        }
    }
}

/// Checks counters, and the name of their set at `field`.
pub(super) fn check_counters(
    name: &str,
    field: &str,
    counters: &BTreeMap<String, Counter>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let at_name = format!("{at}.{field}");
    match name {
        "" => faults.push(FieldError::required(at_name, "")),
        name => check_label(name, &at_name, faults),
    }
    let at = format!("{at}.counters");
    match counters.len() {
        0 => faults.push(FieldError::required(at, "")),
        count if count > COUNTERS => {
            faults.push(FieldError::too_many(at, count, COUNTERS as u64));
        }
        _ => counters.keys().for_each(|name| check_label(name, &at, faults)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{faults_of_new, faults_of_update, object};
    use serde_json::{Value, json};

    fn slice(more: Value) -> Value {
        let mut spec = json!({"driver": "a.b", "pool": {"name": "p", "resourceSliceCount": 1}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    }

    #[test]
    fn invalid_slices_are_rejected() {
        const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
        for (more, expected) in [
            (json!({"nodeName": "n", "devices": [{"name": "d"}]}), vec![]),
            (json!({}), vec![format!("spec: Required value: {ONE}")]),
            (
                json!({"nodeName": "n", "allNodes": true}),
                vec![format!(
                    "spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {ONE}, but multiple fields are set"
                )],
            ),
            (
                json!({"allNodes": true, "devices": [], "sharedCounters": [{"name": "c", "counters": {"x": {"value": "1"}}}]}),
                vec!["spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed".to_owned()],
            ),
            (
                json!({"nodeName": "n", "devices": [{"name": "d", "nodeName": "n", "attributes": {"a": {}}}]}),
                vec![
                    "spec.devices[0].attributes[a]: Invalid value: \"\": exactly one value must be specified".to_owned(),
                    "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec".to_owned(),
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, slice(more.clone())), expected, "{more}");
        }
        let [old, new] = ["n", "m"].map(|node| slice(json!({"nodeName": node})));
        assert_eq!(
            faults_of_update(validate, old, new),
            ["spec.nodeName: Invalid value: \"m\": field is immutable"]
        );
        let mut upper = slice(json!({"nodeName": "n"}));
        upper["spec"]["driver"] = "A.b".into();
        assert_eq!(warnings(&object(upper)).len(), 1);
    }
}
