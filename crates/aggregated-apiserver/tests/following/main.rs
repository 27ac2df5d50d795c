//! Visibility that follows a state: open watches send the objects that become visible or invisible when it changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

mod histories;
mod kinds;
mod replicas;
mod resumed;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aggregated_apiserver::{User, Visibility};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch as channel;

/// The users, and the teams whose notes they see.
type Teams = Arc<BTreeMap<String, BTreeSet<String>>>;

/// A note, visible to the users of its team. All users see the notes of the team `all`.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Note", namespaced)]
struct NoteSpec {
    team: String,
    /// The number of the operation that has written the note.
    step: usize,
}

const NOTES: &str = "/apis/example.com/v1/namespaces/n/notes";

fn teams<const N: usize>(members: [(&str, &[&str]); N]) -> Teams {
    let teams = |teams: &[&str]| teams.iter().map(|&team| team.to_owned()).collect();
    Arc::new(members.into_iter().map(|(user, of)| (user.to_owned(), teams(of))).collect())
}

fn sees(teams: &Teams, user: &str, team: &str) -> bool {
    team == "all" || teams.get(user).is_some_and(|teams| teams.contains(team))
}

fn visibility(state: channel::Receiver<Teams>) -> Visibility<Note> {
    Visibility::following(state, |teams, user: &User, note: &Note| {
        sees(teams, &user.name, &note.spec.team)
    })
}
