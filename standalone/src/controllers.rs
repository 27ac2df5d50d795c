//! What goes on by itself beside a server, until it is ended.

pub(crate) mod definitions;
mod events;
pub(crate) mod namespace_objects;
mod namespaces;
mod pods;

use aggregated_apiserver::RuntimeKinds;
use kube::Client;
use tokio::task::JoinHandle;

use definitions::{Definitions, Now};

/// Tasks that end with this.
pub(crate) struct Controllers(Vec<JoinHandle<()>>);

impl Controllers {
    /// Starts them. What time it is, `now` says.
    pub(crate) fn start(
        client: &Client,
        kinds: &RuntimeKinds,
        definitions: Definitions,
        now: &Now,
    ) -> Self {
        Self(vec![
            tokio::spawn(namespaces::keep(client.clone(), kinds.clone())),
            tokio::spawn(pods::keep(client.clone(), now.clone())),
            tokio::spawn(events::forget(client.clone(), now.clone())),
            tokio::spawn(definitions.keep()),
        ])
    }

    /// The same tasks and one more.
    pub(crate) fn and(mut self, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.0.push(tokio::spawn(task));
        self
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
