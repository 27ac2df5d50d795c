//! Commits with an unknown outcome that are written after the store has responded. Their guards are held until the
//! outcome is settled.

use std::time::Duration;

use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use crate::store::{Behaviour, Event};
use crate::world::{QUOTA, World, foos, namespace, object, path};

const SHARED: Behaviour =
    Behaviour { longest: Duration::ZERO, failures: 0, late: 0, is_shared: true };
/// The delay of a late commit.
const LATE: Duration = Duration::from_secs(5);
/// The time after which the outcome is settled.
const SETTLED: Duration = Duration::from_secs(11);

async fn create(world: &World, plural: &str, name: &str) -> StatusCode {
    let kind = if plural == "foos" { "Foo" } else { "Bar" };
    let body = object(kind, name, &json!({"epoch": 1}));
    world.ask("jane", ("POST", &path(plural)), &body).await.0
}

/// Creates an object with an unknown outcome.
async fn create_late(world: &World, plural: &str, name: &str) {
    world.store.lose(Some(LATE));
    assert_eq!(create(world, plural, name).await, StatusCode::GATEWAY_TIMEOUT);
    world.store.lose(None);
}

#[tokio::test(start_paused = true)]
async fn an_object_stored_late_is_removed_if_its_definition_was_withdrawn() {
    let world = World::new(1, SHARED, Duration::ZERO).await;
    let kinds = world.server.runtime_kinds();
    kinds.serve(&foos(1)).await.unwrap();
    create_late(&world, "foos", "a").await;
    kinds.withdraw("foos.example.com", async || None).await;
    kinds.serve(&foos(2)).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(world.store.events().len(), 2, "it was stored and removed");
    assert_eq!(world.names("foos").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_object_stored_late_is_removed_if_its_definition_was_closed() {
    let world = World::new(1, SHARED, Duration::ZERO).await;
    let kinds = world.server.runtime_kinds();
    kinds.serve(&foos(1)).await.unwrap();
    create_late(&world, "foos", "a").await;
    kinds.close("foos.example.com").await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!(world.store.events().len(), 2, "it was stored and removed");
    assert_eq!(world.names("foos").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_definition_waits_for_late_writes() {
    let world = World::new(1, SHARED, Duration::ZERO).await;
    let kinds = world.server.runtime_kinds();
    kinds.serve(&foos(1)).await.unwrap();
    assert_eq!(create(&world, "foos", "a").await, StatusCode::CREATED);
    let one = format!("{}/a", path("foos"));
    world.store.lose(Some(LATE));
    let changed = world.ask("jane", ("PATCH", &one), &json!({"spec": {"late": true}})).await;
    assert_eq!(changed.0, StatusCode::GATEWAY_TIMEOUT);
    world.store.lose(None);
    kinds.serve(&foos(2)).await.unwrap();
    let (_, found) = world.ask("jane", ("GET", &one), &Value::Null).await;
    assert_eq!(found["spec"]["late"], true, "it is there once the new definition is in service");
}

#[tokio::test(start_paused = true)]
async fn an_object_stored_late_is_removed_if_its_namespace_was_deleted() {
    let (world, events) = World::with_namespace(SHARED).await;
    create_late(&world, "bars", "late").await;
    events.send(json!({"type": "DELETED", "object": namespace()})).unwrap();
    // The informer has received the deletion once a create request is rejected because of it.
    let mut number = 0;
    while create(&world, "bars", &format!("b{number}")).await != StatusCode::NOT_FOUND {
        number += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(number < 1_000, "the namespace is still there");
    }
    tokio::time::sleep(SETTLED).await;
    let events = world.store.events();
    let stored = events.iter().find_map(|event| match event {
        Event::Stored { object, .. } if object.key().name() == "late" => Some(object.uid()),
        _ => None,
    });
    let is_removed =
        |event: &Event| matches!(event, Event::Removed { uid } if Some(&**uid) == stored);
    assert!(stored.is_some() && events.iter().any(is_removed), "it was stored and removed");
    assert!(!world.names("bars").await.contains(&"late".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn late_objects_stay_within_the_quota() {
    let world = World::new(1, SHARED, Duration::ZERO).await;
    let names: Vec<_> = (0..2 * QUOTA).map(|number| format!("b{number}")).collect();
    world.store.lose(Some(LATE));
    let answers = join_all(names.iter().map(|name| create(&world, "bars", name))).await;
    world.store.lose(None);
    let count = |status| answers.iter().filter(|one| **one == status).count();
    assert_eq!(count(StatusCode::GATEWAY_TIMEOUT), QUOTA, "{answers:?}");
    assert_eq!(count(StatusCode::FORBIDDEN), QUOTA, "{answers:?}");
    for _ in 0..12 {
        assert_eq!(create(&world, "bars", "more").await, StatusCode::FORBIDDEN);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.names("bars").await.len(), QUOTA);
}
