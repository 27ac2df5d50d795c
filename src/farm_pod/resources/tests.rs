use super::*;
use serde_json::{Value, json};

fn container(cpu: &str) -> Value {
    let amounts = json!({"cpu": cpu});
    json!({"name": "c", "resources": {"requests": amounts, "limits": amounts}})
}

fn sidecar(cpu: &str) -> Value {
    let mut container = container(cpu);
    container["restartPolicy"] = json!("Always");
    container
}

fn named(mut container: Value, name: &str) -> Value {
    container["name"] = json!(name);
    container
}

fn read(spec: Value, status: Value) -> PodView {
    let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
    serde_json::from_value(pod).unwrap()
}

/// The sums of the CPU requests and of the CPU limits.
fn cpu(spec: Value, status: Value) -> (String, String) {
    let Amount { request, limit, .. } = resources(&read(spec, status)).cpu;
    (request.unwrap_or_default(), limit.unwrap_or_default())
}

fn check(spec: Value, expected: &str) {
    let (request, limit) = cpu(spec.clone(), json!({}));
    assert_eq!((request.as_str(), limit.as_str()), (expected, expected), "{spec}");
}

#[test]
fn containers_are_summed_and_init_containers_are_not() {
    check(json!({"containers": [container("100m"), container("0.9")]}), "1");
    check(json!({"containers": [container("1")], "initContainers": [container("500m")]}), "1");
    check(
        json!({"containers": [container("1")], "initContainers": [container("2"), container("3")]}),
        "3",
    );
}

#[test]
fn sidecar_requests_are_added_to_containers_that_start_later() {
    check(json!({"containers": [container("1")], "initContainers": [sidecar("2")]}), "3");
    // An init container behind a sidecar runs together with it; one before the sidecar does not.
    let init = json!([sidecar("1"), container("3")]);
    check(json!({"containers": [container("2")], "initContainers": init}), "4");
    let init = json!([container("3"), sidecar("1")]);
    check(json!({"containers": [container("1")], "initContainers": init}), "3");
    let init = json!([sidecar("1"), container("1"), sidecar("2")]);
    check(json!({"containers": [container("1")], "initContainers": init}), "4");
}

#[test]
fn pod_overhead_is_added_to_requests_and_to_existing_limits() {
    let spec = json!({"containers": [container("1")], "overhead": {"cpu": "250m"}});
    check(spec, "1250m");
    let requested = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
    let spec = json!({"containers": requested, "overhead": {"cpu": "250m"}});
    assert_eq!(cpu(spec, json!({})), ("1250m".to_owned(), String::new()));
    let spec = json!({"containers": [{"name": "c"}], "overhead": {"cpu": "250m"}});
    assert_eq!(cpu(spec, json!({})), ("250m".to_owned(), String::new()));
}

#[test]
fn pod_level_resources_override_container_resources() {
    let amounts = json!({"cpu": "4", "example.com/gpu": "9"});
    let own = json!({"requests": amounts, "limits": amounts});
    let spec = json!({"containers": [container("1")], "resources": own, "overhead": {"cpu": "1"}});
    check(spec.clone(), "5");
    assert!(resources(&read(spec, json!({}))).extended.is_empty());
}

#[test]
fn a_resize_counts_as_the_larger() {
    let spec =
        json!({"containers": [container("2")], "initContainers": [named(sidecar("1"), "s")]});
    let resized = |given: &str, allocated: &str, condition: Value| {
        let status = |name: &str| {
            let given = json!({"requests": {"cpu": given}, "limits": {"cpu": given}});
            json!({"name": name, "resources": given, "allocatedResources": {"cpu": allocated}})
        };
        let status = json!({
            "containerStatuses": [status("c")], "initContainerStatuses": [status("s")],
            "conditions": [condition],
        });
        cpu(spec.clone(), status)
    };
    let texts = |request: &str, limit: &str| (request.to_owned(), limit.to_owned());
    let deferred = json!({"type": "PodResizePending", "reason": "Deferred"});
    let infeasible = json!({"type": "PodResizePending", "reason": "Infeasible"});
    assert_eq!(resized("1", "1", deferred.clone()), texts("3", "3"));
    assert_eq!(resized("3", "1", deferred.clone()), texts("6", "6"));
    assert_eq!(resized("1", "3", deferred), texts("6", "3"));
    assert_eq!(resized("1", "500m", infeasible), texts("2", "2"));
}

#[test]
fn every_resource_is_summed() {
    let one = json!({"name": "c", "resources": {
        "requests": {"memory": "1Gi", "ephemeral-storage": "1G", "example.com/gpu": "1"},
        "limits": {"memory": "2Gi", "example.com/gpu": "1"},
    }});
    let found = resources(&read(json!({"containers": [one, one]}), json!({})));
    let expected = json!({
        "memory": {"request": "2Gi", "limit": "4Gi"}, "ephemeralStorage": {"request": "2G"},
        "extended": {"example.com/gpu": "2"},
    });
    assert_eq!(serde_json::to_value(&found).unwrap(), expected);
}

#[test]
fn memory_table_cells_are_rounded_to_short_quantities() {
    for (amount, expected) in [
        ("128Mi", "128Mi"),
        ("1000Mi", "1Gi"),
        ("1088Mi", "1.1Gi"),
        ("1Gi", "1Gi"),
        ("16Gi", "16Gi"),
        ("100.5Gi", "100Gi"),
        ("1000Gi", "1Ti"),
        ("1.5Ti", "1.5Ti"),
        ("100M", "95Mi"),
        ("5k", "5k"),
        ("0", "0"),
    ] {
        assert_eq!(memory_cell(amount).as_deref(), Some(expected), "{amount}");
    }
    assert_eq!(memory_cell("much"), None);
}

#[test]
fn usage_cells_contain_percentages() {
    let amount = |request: Option<&str>, usage: Option<&str>, percent| Amount {
        request: request.map(str::to_owned),
        usage: usage.map(str::to_owned),
        percent_of_request: percent,
        ..Amount::default()
    };
    for (amount, expected, used) in [
        (amount(Some("1088Mi"), None, None), Some("1.1Gi"), None),
        (amount(Some("1Gi"), Some("512Mi"), Some(50)), Some("50%"), Some("512Mi (50%, -)")),
        (amount(None, Some("512Mi"), None), Some("512Mi"), Some("512Mi (-, -)")),
        (Amount::default(), None, None),
    ] {
        let cell = usage_cell(&amount, amount.percent_of_request, memory_cell);
        assert_eq!((cell.as_deref(), used_cell(&amount, memory_cell).as_deref()), (expected, used));
    }
}

#[test]
fn percent_of_limit_requires_a_limit_on_every_container() {
    let percent = |spec: Value| {
        let pod = read(spec, json!({}));
        let mut resources = resources(&pod);
        resources.cpu.percent_of_limit = Some(80);
        drop_partial_limits(&pod, &mut resources);
        resources.cpu.percent_of_limit
    };
    let (limited, free) = (container("1"), json!({"name": "free"}));
    assert_eq!(percent(json!({"containers": [limited]})), Some(80));
    assert_eq!(percent(json!({"containers": [limited, free]})), None);
    let own = json!({"limits": {"cpu": "2"}});
    assert_eq!(percent(json!({"containers": [limited, free], "resources": own})), Some(80));
    // An init container that has completed uses nothing.
    assert_eq!(percent(json!({"containers": [limited], "initContainers": [free]})), Some(80));
}
