//! The controllers that run beside a server, on its own client: what has to happen by
//! itself so that deletions end and definitions are served. Each module says why it is a
//! loop of its own and not a `kube::runtime::Controller`.

pub(crate) mod aggregated_roles;
pub(crate) mod definitions;
mod events;
mod left_behind;
pub(crate) mod namespace_objects;
pub(crate) mod namespaces;
mod pods;
mod storage_protection;

use aggregated_apiserver::RuntimeKinds;
use kube::Client;
use tokio::task::JoinHandle;

use definitions::{Definitions, Now};

/// Controllers that run, each as a task. They stop when this is dropped.
pub(crate) struct Controllers(Vec<JoinHandle<()>>);

impl Controllers {
    /// Starts the controllers of every server, by its clock.
    pub(crate) fn start(
        client: &Client,
        kinds: &RuntimeKinds,
        definitions: Definitions,
        now: &Now,
    ) -> Self {
        Self(vec![
            tokio::spawn(namespaces::run(client.clone(), kinds.clone())),
            tokio::spawn(pods::run(client.clone(), now.clone())),
            tokio::spawn(events::run(client.clone(), now.clone())),
            tokio::spawn(storage_protection::run(client.clone())),
            tokio::spawn(definitions.run()),
        ])
    }

    /// Starts this controller too.
    pub(crate) fn with(mut self, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.0.push(tokio::spawn(task));
        self
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
