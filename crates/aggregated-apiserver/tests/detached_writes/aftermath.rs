//! The audit log, traces and metrics contain the outcome of a write that outlived its request.

use std::path::Path;
use std::time::{Duration, Instant};

use aggregated_apiserver::serving::{AuditArgs, TracingArgs};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use test_server::{admin, user};

use crate::store::Behaviour;
use crate::world::{World, object, path};

const EXACT: Behaviour =
    Behaviour { longest: Duration::ZERO, failures: 0, late: 0, is_shared: true };
const ENDED: &str = "aggregated-apiserver/ended-after-request";
/// The timeout of a step, longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn audit(folder: &Path) -> AuditArgs {
    let policy = folder.join("policy.yaml");
    let rules = "omitStages: [RequestReceived]\nrules: [{level: RequestResponse}]";
    std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).unwrap();
    let mut args = AuditArgs::default();
    args.audit_policy_file = Some(policy);
    args.audit_log_path = Some(folder.join("audit.log"));
    args
}

/// Creates an object `a` with a request of this audit id.
async fn create(world: &World, id: &str, query: &str) -> u16 {
    let request = Request::post(format!("{}{query}", path("bars")));
    let request = request.header("content-type", "application/json").header("audit-id", id);
    let body = Body::from(object("Bar", "a", &json!({})).to_string());
    let response = world.server.respond(user("jane"), request.body(body).unwrap()).await;
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    status
}

/// Waits until the audit log has `count` events of a request, and returns them.
fn events(folder: &Path, id: &str, count: usize) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(folder.join("audit.log")).unwrap();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let events = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let events: Vec<_> = events.filter(|event| event["auditID"] == id).collect();
        if events.len() >= count {
            return events;
        }
        assert!(began.elapsed() < PATIENCE, "{} of {count} events of {id}", events.len());
        std::thread::yield_now();
    }
}

/// Checks that two events belong to one request that was answered with the code `answered`, and that the second has the
/// outcome of the write.
fn check(events: &[Value], answered: u16, (outcome, code): (&str, u16)) {
    let [first, second] = events else { panic!("{events:?}") };
    for event in [first, second] {
        assert_eq!(event["stage"], "ResponseComplete");
        for member in ["requestURI", "user", "objectRef", "requestReceivedTimestamp", "verb"] {
            assert_eq!(event[member], first[member], "{member}");
        }
    }
    assert_eq!(first["responseStatus"]["code"], answered);
    assert_eq!(first["annotations"][ENDED], Value::Null);
    assert_eq!(first["requestObject"]["metadata"]["name"], "a");
    assert_eq!(second["responseStatus"]["code"], code, "{second}");
    assert_eq!(second["annotations"][ENDED], outcome);
    assert_eq!(second["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!((&second["requestObject"], &second["responseObject"]), (&Value::Null, &Value::Null));
    let times = [first, second].map(|event| event["stageTimestamp"].as_str().unwrap());
    assert!(times[0] <= times[1], "{times:?}");
}

async fn metrics(world: &World) -> String {
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let body = world.server.respond(admin(), request).await.into_body();
    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_records_outcomes_of_writes_after_their_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::told(EXACT, &audit(folder.path()), &TracingArgs::default()).await;
    world.store.block(true);
    for id in ["first", "second"] {
        assert_eq!(create(&world, id, "?timeout=20ms").await, 504);
    }
    world.store.block(false);
    let first = events(folder.path(), "first", 1);
    assert_eq!(first.len(), 1, "{first:?}");
    world.store.wait_for(0).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Either of the two requests may have been committed first.
    let both = ["first", "second"].map(|id| events(folder.path(), id, 2));
    let is_committed = |events: &Vec<Value>| events[1]["annotations"][ENDED] == "committed";
    let (committed, refused): (Vec<_>, Vec<_>) = both.into_iter().partition(is_committed);
    check(&committed[0], 504, ("committed", 201));
    check(&refused[0], 504, ("refused", 409));
    assert_eq!(refused[0][1]["responseStatus"]["reason"], "AlreadyExists");
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_records_a_commit_after_the_client_has_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::told(EXACT, &audit(folder.path()), &TracingArgs::default()).await;
    world.store.block(true);
    let asked = create(&world, "gone", "");
    assert!(tokio::time::timeout(Duration::from_millis(20), asked).await.is_err());
    world.store.block(false);
    world.store.wait_for(0).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    check(&events(folder.path(), "gone", 2), 499, ("committed", 201));
    // A write that does not outlive its request has one event.
    assert_eq!(create(&world, "again", "").await, 409);
    assert_eq!(create(&world, "last", "").await, 409);
    events(folder.path(), "last", 1);
    assert_eq!(events(folder.path(), "again", 1).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_and_metrics_record_how_an_unknown_outcome_ends() {
    for (failures, ending, status) in
        [(0, ("committed", 201), "ok"), (1_000, ("refused", 503), "error")]
    {
        let folder = tempfile::tempdir().unwrap();
        let behaviour = Behaviour { failures, ..EXACT };
        let world = World::told(behaviour, &audit(folder.path()), &TracingArgs::default()).await;
        world.store.lose(Some(Duration::from_secs(5)));
        assert_eq!(create(&world, "unknown", "").await, 504);
        let counted = format!(
            "apiserver_request_post_timeout_total{{source=\"store\",status=\"{status}\"}} 1"
        );
        assert!(!metrics(&world).await.contains(&counted));
        tokio::time::sleep(Duration::from_secs(12)).await;
        check(&events(folder.path(), "unknown", 2), 504, ending);
        let text = metrics(&world).await;
        assert!(text.contains(&counted), "{text}");
    }
}

#[cfg(feature = "otlp")]
mod traces {
    use std::collections::BTreeMap;

    use super::*;
    use crate::otlp_collector::{collector, texts, tracing};

    #[tokio::test]
    async fn a_trace_span_records_the_outcome_of_a_write_after_its_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let (address, mut sent) = collector().await;
        let args = tracing(folder.path(), address, 1_000_000);
        let world = World::told(EXACT, &AuditArgs::default(), &args).await;
        world.store.block(true);
        for id in ["first", "second"] {
            assert_eq!(create(&world, id, "?timeout=20ms").await, 504);
        }
        world.store.block(false);
        let (mut requests, mut writes) = (BTreeMap::new(), BTreeMap::new());
        while writes.len() < 2 {
            let sent = tokio::time::timeout(PATIENCE, sent.recv()).await.unwrap().unwrap();
            let of_scopes = sent.resource_spans.into_iter().flat_map(|one| one.scope_spans);
            for span in of_scopes.flat_map(|of_scope| of_scope.spans) {
                let texts = texts(&span.attributes);
                let Some(id) = texts.get("audit-id").cloned() else { continue };
                let is_write = span.name == "write after the request";
                (if is_write { &mut writes } else { &mut requests }).insert(id, (span, texts));
            }
        }
        let mut ends = Vec::new();
        for id in ["first", "second"] {
            let ((request, asked), (write, ended)) = (&requests[id], &writes[id]);
            assert_eq!(asked["http.response.status_code"], "504");
            ends.push((&*ended["outcome"], &*ended["http.response.status_code"]));
            assert_eq!(
                (&write.trace_id, &write.parent_span_id),
                (&request.trace_id, &request.span_id)
            );
            assert_ne!(write.span_id, request.span_id);
            assert_eq!(write.start_time_unix_nano, request.end_time_unix_nano);
            assert!(write.end_time_unix_nano >= write.start_time_unix_nano);
            assert!(write.status.is_none());
        }
        ends.sort_unstable();
        assert_eq!(ends, [("committed", "201"), ("refused", "409")]);
    }
}
