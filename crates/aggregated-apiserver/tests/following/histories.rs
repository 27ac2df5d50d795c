//! Random changes of the state and of objects. At the end, each watcher has the same objects as a list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::InProcess;
use fastrand::Rng;
use serde_json::Value;
use tokio::sync::watch as channel;

use crate::kinds::{SORTS, Sort, World};
use crate::watch::{Watch, list, name_of};
use crate::{Teams, sees, teams};

const USERS: [(&str, &str); 3] = [("jane", ""), ("joe", ""), ("kim", "labelSelector=x%3D1")];
const TEAMS: [&str; 3] = ["red", "green", "blue"];

/// The states, each with the number of the operation that has sent it.
type Past = Arc<Mutex<Vec<(usize, Teams)>>>;

/// Whether a note was visible to a user in a state that was the newest one when the note was written, or later.
fn was_visible(past: &Past, user: &str, spec: &Value) -> bool {
    let (team, step) = (spec["team"].as_str().unwrap(), spec["step"].as_u64().unwrap());
    let past = past.lock().unwrap();
    let ends = past.iter().skip(1).map(|(step, _)| *step as u64).chain([u64::MAX]);
    past.iter().zip(ends).any(|((_, state), end)| end > step && sees(state, user, team))
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_see_what_lists_show_and_nothing_else() {
    for &sort in SORTS {
        futures::future::join_all((0..4).map(|seed| history(sort, seed))).await;
    }
}

async fn history(sort: Sort, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (state, receiver) = channel::channel(teams([]));
    let past: Past = Arc::new(Mutex::new(vec![(0, teams([]))]));
    let world = World::start(sort, receiver).await;
    let at = format!("{sort:?} seed {seed}");
    let work = async {
        for step in 1..250 {
            match rng.u8(0..8) {
                0 | 1 => {
                    let members = USERS.map(|(user, _)| {
                        let mine = TEAMS.iter().filter(|_| rng.bool()).map(|&team| team.to_owned());
                        (user.to_owned(), mine.collect())
                    });
                    let members: Teams = Arc::new(BTreeMap::from(members));
                    past.lock().unwrap().push((step, Arc::clone(&members)));
                    state.send(members).unwrap();
                }
                2 => world.delete(&format!("n{}", rng.u8(0..12))).await,
                _ => {
                    let (name, label) = (format!("n{}", rng.u8(0..12)), rng.u8(1..3).to_string());
                    let team = TEAMS[rng.usize(0..TEAMS.len())];
                    world.put(&name, team, &label, step).await;
                }
            }
            if rng.u8(0..4) == 0 {
                tokio::task::yield_now().await;
            }
        }
        if matches!(sort, Sort::Computed) {
            // Objects are not computed in the order in which their sources have changed.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.put("last", "all", "1", 1_000).await;
    };
    let server = &world.server;
    let watchers = USERS.map(|(user, query)| strict(server, (user, query), &past, &at));
    let resuming = USERS.map(|(user, query)| resuming(server, (user, query), seed));
    let (views, resumed, ()) = tokio::join!(
        futures::future::join_all(watchers),
        futures::future::join_all(resuming),
        work
    );
    for (views, sort) in [(views, "followed"), (resumed, "resumed")] {
        for ((user, query), view) in USERS.into_iter().zip(views) {
            let (listed, _) = list(server, user, query).await;
            assert_eq!(view, listed, "{at}: {sort} as {user}");
        }
    }
}

/// Follows one watch to the end. Each event fits to the events before it, and no event shows an invisible note.
async fn strict(
    server: &InProcess,
    (user, query): (&str, &str),
    past: &Past,
    at: &str,
) -> BTreeMap<String, Value> {
    let mut watch = Watch::begin(server, user, query).await;
    let mut has_begun = false;
    while !watch.known.contains_key("last") {
        let before = watch.known.clone();
        let (event_type, object) = watch.next().await;
        let at = format!("{at}: {event_type} {object} for {user}");
        match event_type.as_str() {
            "BOOKMARK" => continue,
            // The state has changed between the list and the watch.
            "ERROR" if !has_begun => {
                watch = Watch::begin(server, user, query).await;
                continue;
            }
            "ERROR" => panic!("{at}"),
            _ => has_begun = true,
        }
        assert_eq!(!before.contains_key(&name_of(&object)), event_type == "ADDED", "{at}");
        if event_type != "DELETED" {
            assert!(was_visible(past, user, &object["spec"]), "{at}");
            assert_ne!(before.get(&name_of(&object)), Some(&object["spec"]), "{at}: sent twice");
        } else {
            assert_eq!(before[&name_of(&object)], object["spec"], "{at}: not as last shown");
        }
    }
    watch.known
}

/// Follows watches that end after a few events, and resumes them from the last received revision.
async fn resuming(
    server: &InProcess,
    (user, query): (&str, &str),
    seed: u64,
) -> BTreeMap<String, Value> {
    let mut rng = Rng::with_seed(seed);
    let mut watch = Watch::begin(server, user, query).await;
    let mut left = 3;
    while !watch.known.contains_key("last") {
        if left == 0 {
            let known = std::mem::take(&mut watch.known);
            let revision = watch.revision.clone();
            watch = Watch { known, ..Watch::resume(server, user, query, &revision).await };
            left = rng.u8(1..6);
        }
        left -= 1;
        if watch.next().await.0 == "ERROR" {
            watch = Watch::begin(server, user, query).await;
        }
    }
    watch.known
}
