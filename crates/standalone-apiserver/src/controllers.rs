//! The controllers of a standalone server, which use its own client. They complete deletions, serve definitions and
//! compute the status of ResourceQuotas.
//! Each module explains why it is a separate loop and not a `kube::runtime::Controller`.

pub(crate) mod aggregated_roles;
mod content_deletion;
pub(crate) mod definitions;
mod events;
mod flow_schemas;
pub(crate) mod namespace_objects;
pub(crate) mod namespaces;
mod pods;
pub(crate) mod resource_quotas;
mod storage_protection;

use aggregated_apiserver::runtime_kinds::RuntimeKinds;
use kube::Client;
use tokio::task::JoinHandle;

use definitions::{Definitions, Now};

/// Running controllers, each in a task. Dropping this stops them.
pub(crate) struct Controllers(Vec<JoinHandle<()>>);

impl Controllers {
    /// Starts the controllers that every server has, with its clock.
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
            tokio::spawn(flow_schemas::run(client.clone(), now.clone())),
            tokio::spawn(storage_protection::run(client.clone())),
            tokio::spawn(definitions.run()),
        ])
    }

    /// Starts another controller.
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
