//! Writes that outlive their requests. A request can time out, or its client can disconnect, while the store commits.
//! Its reservations are released only after the commit has ended.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

mod aftermath;
mod model;
#[cfg(feature = "otlp")]
#[path = "../otlp_collector/mod.rs"]
mod otlp_collector;
mod store;
mod unknown;
mod world;

use std::time::Duration;

use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use store::Behaviour;
use world::{QUOTA, World, foos, object, path};

const EXACT: Behaviour =
    Behaviour { longest: Duration::ZERO, failures: 0, late: 0, is_shared: false };

/// A world whose store is blocked: commits wait until the test releases them.
async fn blocked() -> World {
    let world = World::new(1, EXACT, Duration::ZERO).await;
    world.store.block(true);
    world
}

/// Sends create requests that end before their commit: by a timeout, or because the client disconnects.
async fn give_up(world: &World, user: &str, count: usize, spec: &Value) {
    let (timed, plain) = (format!("{}?timeout=20ms", path("bars")), path("bars"));
    let one = |number: usize| {
        let body = object("Bar", &format!("{user}-{number}"), spec);
        let (timed, plain) = (&timed, &plain);
        async move {
            if number.is_multiple_of(2) {
                let (status, _) = world.ask(user, ("POST", timed), &body).await;
                assert!(!status.is_success(), "{status}");
                return;
            }
            let asked = world.ask(user, ("POST", plain), &body);
            // A client that disconnects gets no response, but some requests are rejected before that.
            let answered = tokio::time::timeout(Duration::from_millis(20), asked).await;
            assert!(answered.is_err() || !answered.unwrap().0.is_success());
        }
    };
    join_all((0..count).map(one)).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_holds_while_commits_of_ended_requests_continue() {
    let world = blocked().await;
    for _ in 0..10 {
        give_up(&world, "jane", 10, &json!({})).await;
    }
    world.store.block(false);
    world.store.wait_for(0).await;
    assert_eq!(world.names("bars").await.len(), QUOTA);
}

#[tokio::test(start_paused = true)]
async fn a_quota_reservation_is_released_when_its_commit_has_ended() {
    let world = blocked().await;
    give_up(&world, "jane", 2, &json!({})).await;
    world.store.block(false);
    world.store.wait_for(0).await;
    for name in ["a", "b", "c"] {
        let body = object("Bar", name, &json!({}));
        let (status, _) = world.ask("joe", ("POST", &path("bars")), &body).await;
        let expected = if name == "c" { StatusCode::FORBIDDEN } else { StatusCode::CREATED };
        assert_eq!(status, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn commits_of_ended_requests_count_against_the_write_limit() {
    let world = World::new(1, EXACT, Duration::ZERO).await;
    // Updates do not count against the quota.
    let name = |number: usize| format!("b{number}");
    for number in 0..QUOTA {
        let body = object("Bar", &name(number), &json!({}));
        assert_eq!(world.ask("jane", ("POST", &path("bars")), &body).await.0, StatusCode::CREATED);
    }
    world.store.block(true);
    for round in 0..20 {
        let change = |number: usize| {
            let path = format!("{}/{}?timeout=20ms", path("bars"), name(number % QUOTA));
            let spec = json!({"user": "jane", "round": round, "x": "x".repeat(100_000)});
            let world = &world;
            async move { world.ask("jane", ("PATCH", &path), &json!({"spec": spec})).await.0 }
        };
        for status in join_all((0..20).map(change)).await {
            let is_refused = [StatusCode::GATEWAY_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
            assert!(is_refused.contains(&status), "{status}");
        }
    }
    let (count, bytes) = world.store.most_waiting();
    assert!(count > 0 && count <= 12, "{count} writes of a user are in flight");
    assert!(bytes <= 12 * 102_000, "{bytes}");
    world.store.block(false);
    world.store.wait_for(0).await;
}

#[tokio::test(start_paused = true)]
async fn withdrawing_a_kind_waits_for_commits_of_ended_requests() {
    let world = World::new(1, EXACT, Duration::ZERO).await;
    let kinds = world.server.runtime_kinds();
    kinds.serve(&foos(1)).await.unwrap();
    world.store.block(true);
    let timed = format!("{}?timeout=20ms", path("foos"));
    let body = object("Foo", "a", &json!({"epoch": 1}));
    let (status, _) = world.ask("jane", ("POST", &timed), &body).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    let withdrawn = async {
        kinds.withdraw("foos.example.com", async || None).await;
        kinds.serve(&foos(2)).await.unwrap();
    };
    let goes_on = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.store.block(false);
    };
    tokio::join!(withdrawn, goes_on);
    assert_eq!(world.names("foos").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_definition_change_waits_for_commits_under_the_old_definition() {
    let world = World::new(1, EXACT, Duration::ZERO).await;
    let kinds = world.server.runtime_kinds();
    kinds.serve(&foos(1)).await.unwrap();
    let body = object("Foo", "a", &json!({"epoch": 1}));
    assert_eq!(world.ask("jane", ("POST", &path("foos")), &body).await.0, StatusCode::CREATED);
    world.store.block(true);
    let one = format!("{}/a?timeout=20ms", path("foos"));
    let changed = world.ask("jane", ("PATCH", &one), &json!({"spec": {"late": true}})).await;
    assert_eq!(changed.0, StatusCode::GATEWAY_TIMEOUT);
    let serving = tokio::spawn(async move { kinds.serve(&foos(2)).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!serving.is_finished(), "the old definition has a commit in flight");
    world.store.block(false);
    serving.await.unwrap().unwrap();
    let (_, found) = world.ask("jane", ("GET", &format!("{}/a", path("foos"))), &Value::Null).await;
    assert_eq!(found["spec"]["late"], true, "it is there before the new definition is in service");
}

#[tokio::test(start_paused = true)]
async fn metrics_count_outcomes_of_writes_after_their_requests_timed_out() {
    let world = blocked().await;
    give_up(&world, "jane", 2, &json!({})).await;
    world.store.block(false);
    world.store.wait_for(0).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let request = http::Request::get("/metrics").body(axum::body::Body::empty()).unwrap();
    let response = world.server.respond(test_server::admin(), request).await;
    let text = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let counted = "apiserver_request_post_timeout_total{source=\"rest-handler\",status=\"ok\"} 2";
    assert!(text.contains(counted), "{text}");
    assert!(text.contains("apiserver_current_inflight_requests{request_kind=\"mutating\"} 0"));
}
