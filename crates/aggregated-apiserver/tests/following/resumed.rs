//! Watches that are resumed after a change of the state.

use std::time::Duration;

use tokio::sync::watch as channel;

use crate::kinds::{SORTS, World};
use crate::teams;
use crate::watch::{Watch, list};

#[tokio::test]
async fn a_change_of_the_state_is_sent_to_open_watches() {
    for &sort in SORTS {
        let (state, receiver) = channel::channel(teams([("jane", &["red"])]));
        let world = World::start(sort, receiver).await;
        for (name, team, label) in [("a", "red", "1"), ("b", "blue", "1"), ("c", "blue", "2")] {
            world.put(name, team, label, 0).await;
        }
        world.put("last", "all", "1", 0).await;
        let server = &world.server;
        let mut probe = Watch::begin(server, "probe", "").await;
        while !probe.known.contains_key("last") {
            probe.next().await;
        }
        let mut jane = Watch::begin(server, "jane", "").await;
        let mut selected = Watch::begin(server, "jane", "labelSelector=x%3D1").await;
        assert_eq!(jane.known.keys().collect::<Vec<_>>(), ["a", "last"], "{sort:?}");
        state.send(teams([("jane", &["blue"])])).unwrap();
        jane.expect("DELETED", "a").await;
        jane.expect("ADDED", "b").await;
        jane.expect("ADDED", "c").await;
        jane.expect("BOOKMARK", "").await;
        selected.expect("DELETED", "a").await;
        selected.expect("ADDED", "b").await;
        selected.expect("BOOKMARK", "").await;
        let (listed, _) = list(server, "jane", "").await;
        assert_eq!(jane.known, listed, "{sort:?}");
        // A client goes on from the bookmark, and from a deletion that was the last event.
        let mut resumed = Watch::resume(server, "jane", "", &jane.revision).await;
        world.put("b", "blue", "1", 1).await;
        for watch in [&mut resumed, &mut jane, &mut selected] {
            watch.expect("MODIFIED", "b").await;
        }
        state.send(teams([])).unwrap();
        resumed.expect("DELETED", "b").await;
        let last = resumed.expect("DELETED", "c").await;
        let last = last["metadata"]["resourceVersion"].as_str().unwrap();
        let mut resumed = Watch::resume(server, "jane", "", last).await;
        world.put("last", "all", "1", 2).await;
        resumed.expect("MODIFIED", "last").await;
    }
}

#[tokio::test]
async fn a_watch_from_a_revision_before_the_change_expires() {
    for &sort in SORTS {
        let (state, receiver) = channel::channel(teams([]));
        let world = World::start(sort, receiver).await;
        world.put("a", "red", "1", 0).await;
        world.put("last", "all", "1", 0).await;
        let server = &world.server;
        let mut probe = Watch::begin(server, "probe", "").await;
        while !probe.known.contains_key("last") {
            probe.next().await;
        }
        let (listed, old) = list(server, "jane", "").await;
        assert_eq!(listed.keys().collect::<Vec<_>>(), ["last"]);
        let (_, of_master) = list(server, "system:kube-controller-manager", "").await;
        state.send(teams([("jane", &["red"])])).unwrap();
        Watch::resume(server, "jane", "", &old).await.expect_expired().await;
        // The new list has a revision that a watch can start from, although no object has changed.
        let (listed, new) = list(server, "jane", "").await;
        assert_eq!(listed.keys().collect::<Vec<_>>(), ["a", "last"], "{sort:?}");
        let mut resumed = Watch::resume(server, "jane", "", &new).await;
        let controller = "system:kube-controller-manager";
        let mut master = Watch::resume(server, controller, "", &of_master).await;
        // Watches that begin with all objects do not depend on a revision.
        let mut from_zero = Watch::resume(server, "jane", "", "0").await;
        from_zero.expect("ADDED", "a").await;
        from_zero.expect("ADDED", "last").await;
        from_zero.expect("BOOKMARK", "").await;
        let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut streaming = Watch::resume(server, "jane", streaming, "").await;
        streaming.expect("ADDED", "a").await;
        streaming.expect("ADDED", "last").await;
        streaming.expect("BOOKMARK", "").await;
        let mut after_bookmark = Watch::resume(server, "jane", "", &streaming.revision).await;
        world.put("a", "red", "1", 1).await;
        for watch in
            [&mut resumed, &mut master, &mut from_zero, &mut streaming, &mut after_bookmark]
        {
            watch.expect("MODIFIED", "a").await;
        }
    }
}

/// The connection ends between the events of one change of the state. The rest is not lost: the client lists again.
#[tokio::test]
async fn a_watch_from_the_middle_of_a_change_expires() {
    for &sort in SORTS {
        let (state, receiver) = channel::channel(teams([]));
        let world = World::start(sort, receiver).await;
        for name in ["a", "b", "c"] {
            world.put(name, "red", "1", 0).await;
        }
        let mut probe = Watch::begin(&world.server, "system:kube-controller-manager", "").await;
        while probe.known.len() < 3 {
            probe.next().await;
        }
        for (event_type, state_after) in
            [("ADDED", teams([("jane", &["red"])])), ("DELETED", teams([]))]
        {
            let mut jane = Watch::begin(&world.server, "jane", "").await;
            state.send(state_after).unwrap();
            jane.expect(event_type, "a").await;
            let middle = jane.revision.clone();
            Watch::resume(&world.server, "jane", "", &middle).await.expect_expired().await;
        }
    }
}

/// Each of many watches compares all objects, a few at a time.
#[tokio::test]
async fn many_watches_follow_a_change_of_many_objects() {
    const WATCHES: usize = 40;
    let (state, receiver) = channel::channel(teams([]));
    let world = World::start(crate::kinds::Sort::Stored, receiver).await;
    for number in 0..1_000 {
        let team = if number % 100 == 7 { "red" } else { "blue" };
        world.put(&format!("n{number:04}"), team, "1", 0).await;
    }
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        watches.push(Watch::begin(&world.server, "jane", "").await);
    }
    state.send(teams([("jane", &["red"])])).unwrap();
    let all = futures::future::join_all(watches.iter_mut().map(async |watch| {
        for number in 0..10 {
            watch.expect("ADDED", &format!("n{:04}", number * 100 + 7)).await;
        }
    }));
    tokio::time::timeout(Duration::from_secs(120), all).await.unwrap();
}

/// A watch that nobody reads receives only the changes to the newest state.
#[tokio::test]
async fn states_that_follow_each_other_replace_each_other() {
    let (state, receiver) = channel::channel(teams([]));
    let world = World::start(crate::kinds::Sort::Stored, receiver).await;
    for number in 0..100 {
        let team = if number % 2 == 0 { "red" } else { "blue" };
        world.put(&format!("n{number:02}"), team, "1", 0).await;
    }
    let mut jane = Watch::begin(&world.server, "jane", "").await;
    state.send(teams([("jane", &["red"])])).unwrap();
    for number in 0..20 {
        jane.expect("ADDED", &format!("n{:02}", 2 * number)).await;
    }
    // The client has received 20 red notes, and perhaps a few more are on their way.
    state.send(teams([("jane", &["blue"])])).unwrap();
    let (expected, _) = list(&world.server, "jane", "").await;
    while jane.next().await.0 != "BOOKMARK" {}
    assert_eq!(jane.known, expected);
}
