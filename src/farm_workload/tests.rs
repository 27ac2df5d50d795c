use aggregated_apiserver::Lookup;
use aggregated_apiserver::computed::{
    LookupOptions, SourceType, Variant, check_variant_field_permissions,
};
use serde_json::{Value, json};

use super::view::Workload;
use super::*;

fn lookup<K: SourceType, S: LookupOptions>(objects: &[Value]) -> Lookup<K, S> {
    Lookup::from_objects(objects.iter().map(|one| serde_json::from_value(one.clone()).unwrap()))
}

fn metadata(name: &str, owner: Option<(&str, &str)>) -> Value {
    let owners = owner.map(|(kind, name)| {
        json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": true})
    });
    let owners: Vec<Value> = owners.into_iter().collect();
    json!({"namespace": "n", "name": name, "uid": name, "ownerReferences": owners})
}

/// A Pod with an owner and a state: `Running`, a phase that means the Pod has ended, or the waiting reason of its
/// container.
fn pod(name: &str, owner: (&str, &str), state: &str) -> Value {
    let resources = json!({"requests": {"cpu": "250m", "memory": "128Mi"}});
    let (phase, container) = match state {
        "Running" => ("Running", json!({"running": {}})),
        "Succeeded" | "Failed" => {
            let code = i32::from(state == "Failed");
            (state, json!({"terminated": {"exitCode": code, "reason": "Error"}}))
        }
        reason => {
            ("Running", json!({"waiting": {"reason": reason, "message": "it does not start"}}))
        }
    };
    let status = json!({
        "name": "a", "ready": state == "Running", "restartCount": 2, "state": container,
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T03:04:05Z"}},
    });
    json!({
        "metadata": metadata(name, Some(owner)),
        "spec": {"nodeName": "m", "containers": [{"name": "a", "resources": resources}]},
        "status": {"phase": phase, "containerStatuses": [status]},
    })
}

fn metrics(name: &str) -> Value {
    let usage = json!({"cpu": "125m", "memory": "32Mi"});
    json!({"metadata": {"namespace": "n", "name": name}, "containers": [{"name": "a", "usage": usage}]})
}

fn show<W: Workload>(workload: Value, pods: &[Value], sets: &[Value]) -> FarmWorkload
where
    WorkloadView<W>: SourceType,
{
    let workload = serde_json::from_value(workload).unwrap();
    let metrics = [metrics("a"), metrics("b"), metrics("elsewhere")];
    let related = (lookup(pods), lookup(sets), lookup(&metrics));
    Of::<W>::compute(&workload, &related).unwrap()
}

#[test]
fn a_farm_workload_of_a_deployment_aggregates_pods_of_its_replica_sets() {
    let deployment = json!({
        "metadata": {"namespace": "n", "name": "web", "uid": "web", "labels": {"app": "web"}},
        "spec": {"replicas": 3, "paused": true},
        "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
    });
    let set = |name: &str, of: &str| json!({"metadata": metadata(name, Some(("Deployment", of)))});
    let sets = [set("web-1", "web"), set("web-2", "web"), set("other-1", "other")];
    let pods = [
        pod("a", ("ReplicaSet", "web-1"), "Running"),
        pod("b", ("ReplicaSet", "web-2"), "CrashLoopBackOff"),
        pod("c", ("ReplicaSet", "web-2"), "ImagePullBackOff"),
        pod("d", ("ReplicaSet", "web-2"), "ImagePullBackOff"),
        pod("gone", ("ReplicaSet", "web-2"), "Failed"),
        pod("elsewhere", ("ReplicaSet", "other-1"), "Running"),
        pod("namesake", ("StatefulSet", "web-1"), "Running"),
    ];
    let shown = show::<Deployment>(deployment, &pods, &sets);
    assert_eq!(shown.metadata.name.as_deref(), Some("farm-web.deploy"));
    let (spec, status) = (&shown.spec, serde_json::to_value(&shown.status).unwrap());
    assert_eq!((spec.kind.as_str(), spec.workload.as_str()), ("Deployment", "web"));
    let expected = json!({
        "readiness": "1/3", "wanted": 3, "ready": 1, "updated": 2, "available": 1,
        "paused": true, "pods": 4, "restarts": 8, "lastRestartTime": "2026-01-02T03:04:05Z",
        "resources": {
            "cpu": {"request": "1", "usage": "250m", "percentOfRequest": 25},
            "memory": {"request": "512Mi", "usage": "64Mi", "percentOfRequest": 12},
        },
        "why": {"code": "ImagePullBackOff", "message": "container a: it does not start", "pods": 2},
    });
    assert_eq!(status, expected);
}

#[test]
fn sets_of_pods_own_them() {
    let named = |name: &str| json!({"namespace": "n", "name": name, "uid": name});
    let set = json!({
        "metadata": named("db"), "spec": {"replicas": 2}, "status": {"readyReplicas": 2},
    });
    let pods = [
        pod("a", ("StatefulSet", "db"), "Running"),
        pod("c", ("StatefulSet", "db"), "Succeeded"),
        pod("b", ("DaemonSet", "agent"), "Running"),
    ];
    let status = |shown: FarmWorkload| shown.status.unwrap();
    let db = status(show::<StatefulSet>(set, &pods, &[]));
    assert_eq!((db.readiness.as_str(), db.pods, db.why), ("2/2", Some(1), None));
    let agent = json!({
        "metadata": named("agent"), "status": {"desiredNumberScheduled": 2, "numberReady": 1},
    });
    let agent = status(show::<DaemonSet>(agent, &pods, &[]));
    assert_eq!((agent.readiness.as_str(), agent.pods), ("1/2", Some(1)));
}

#[test]
fn a_farm_workload_of_a_job_reports_completions_and_failure_reason() {
    let check = |spec: Value, status: Value, state: &str, expected: (&str, Option<(&str, i64)>)| {
        let metadata = json!({"namespace": "n", "name": "j", "uid": "j"});
        let job = json!({"metadata": metadata, "spec": spec, "status": status});
        let shown = show::<Job>(job, &[pod("a", ("Job", "j"), state)], &[]);
        assert_eq!(shown.metadata.name.as_deref(), Some("farm-j.job"));
        let status = shown.status.unwrap();
        let why = status.why.as_ref().map(|why| (why.code.as_str(), why.pods));
        assert_eq!((status.readiness.as_str(), why), expected);
    };
    let condition = |kind: &str, reason: &str| json!({"conditions": [{"type": kind, "status": "True", "reason": reason}]});
    check(json!({"completions": 2}), json!({"succeeded": 1}), "Running", ("1/2", None));
    check(json!({}), json!({}), "Failed", ("0/1", Some(("Error", 1))));
    check(json!({"parallelism": 4}), json!({}), "Succeeded", ("0/1", None));
    check(json!({}), condition("Complete", ""), "Failed", ("0/1", None));
    let failed = condition("Failed", "DeadlineExceeded");
    check(json!({}), failed, "Running", ("0/1", Some(("DeadlineExceeded", 0))));
    let failed = condition("Failed", "BackoffLimitExceeded");
    check(json!({}), failed, "Failed", ("0/1", Some(("BackoffLimitExceeded", 0))));
}

#[test]
fn a_workload_without_pods_reports_its_own_failure_condition() {
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "no quota"});
    let check = |conditions: Value, expected: Option<&str>| {
        let deployment = json!({
            "metadata": {"namespace": "n", "name": "web", "uid": "web"},
            "status": {"conditions": conditions},
        });
        let why = show::<Deployment>(deployment, &[], &[]).status.unwrap().why;
        assert_eq!(why.as_ref().map(|why| why.code.as_str()), expected);
        assert_eq!(why.map(|why| why.message), expected.map(|_| "no quota".to_owned()));
    };
    check(json!([condition("Progressing", "True", "NewReplicaSetAvailable")]), None);
    let late = condition("Progressing", "False", "ProgressDeadlineExceeded");
    check(json!([late]), Some("ProgressDeadlineExceeded"));
    let refused = condition("ReplicaFailure", "True", "FailedCreate");
    check(json!([late, refused]), Some("FailedCreate"));
}

/// Results of a lookup appear in the fields that are declared for it, and nowhere else.
#[test]
fn farm_workload_fields_computed_from_lookups_are_declared() {
    fn check<W: Workload>(pods: &[Value])
    where
        WorkloadView<W>: SourceType,
    {
        let workload = json!({
            "metadata": metadata("web", None), "spec": {"replicas": 3},
            "status": {"readyReplicas": 1},
        });
        let workload = serde_json::from_value(workload).unwrap();
        let set = json!({"metadata": metadata("web-1", Some(("Deployment", "web")))});
        let related =
            || (lookup(pods), lookup(std::slice::from_ref(&set)), lookup(&[metrics("a")]));
        let checked = check_variant_field_permissions::<Of<W>>(&workload, related);
        assert_eq!(checked, Ok(()));
        let status = Of::<W>::compute(&workload, &related()).unwrap().status.unwrap();
        assert!(status.why.is_some() && status.resources.cpu.usage.is_some());
    }
    let pods = |kind: &str, name: &str| {
        let owner = (kind, name);
        [pod("a", owner, "Running"), pod("b", owner, "CrashLoopBackOff")]
    };
    check::<Deployment>(&pods("ReplicaSet", "web-1"));
    check::<StatefulSet>(&pods("StatefulSet", "web"));
    check::<DaemonSet>(&pods("DaemonSet", "web"));
    check::<Job>(&pods("Job", "web"));
}

#[test]
fn farm_workload_names_map_to_at_most_one_workload() {
    let leads = |name: &str| {
        let names = [
            Of::<Deployment>::source_name(name),
            Of::<StatefulSet>::source_name(name),
            Of::<DaemonSet>::source_name(name),
            Of::<Job>::source_name(name),
        ];
        let found = names.into_iter().enumerate().filter_map(|(at, name)| Some((at, name?)));
        found.collect::<Vec<_>>()
    };
    assert_eq!(leads("farm-web.deploy"), [(0, "web".to_owned())]);
    assert_eq!(leads("farm-a.deploy.sts"), [(1, "a.deploy".to_owned())]);
    assert_eq!(leads("farm-a.ds"), [(2, "a".to_owned())]);
    assert_eq!(leads("farm-a.job"), [(3, "a".to_owned())]);
    for name in ["farm-.job", "farm-job", "web.deploy", "farm-webdeploy", "farm-web"] {
        assert_eq!(leads(name), [], "{name}");
    }
    assert_eq!(WorkloadView::<Deployment>::api().plural, "deployments");
}
