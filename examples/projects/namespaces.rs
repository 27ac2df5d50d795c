//! The backend: the Namespaces of a cluster as projects.

use aggregated_apiserver::backend::{Backend, BackendError, Change, Item, Watch, watcher_changes};
use futures::{Stream, TryFutureExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher;
use kube::{Api, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Cluster;

/// A namespace that its reader has access to.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "project.example.com",
    version = "v1",
    kind = "Project",
    status = "ProjectStatus",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ProjectSpec {}

/// The status of the namespace.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct ProjectStatus {
    phase: Option<String>,
}

fn project(namespace: Namespace) -> Item<Project> {
    let metadata = namespace.metadata;
    let mut project = Project::new(metadata.name.as_deref().unwrap_or_default(), ProjectSpec {});
    project.metadata.labels = metadata.labels;
    project.metadata.annotations = metadata.annotations;
    project.metadata.creation_timestamp = metadata.creation_timestamp;
    let phase = namespace.status.and_then(|status| status.phase);
    project.status = Some(ProjectStatus { phase });
    Item::new(project)
}

/// The Namespaces of a cluster.
pub struct Namespaces(pub Cluster);

impl Namespaces {
    async fn api(&self) -> Result<Api<Namespace>, BackendError> {
        Ok(Api::all(self.0.client().await?))
    }
}

impl Backend for Namespaces {
    type Object = Project;
}

impl Watch for Namespaces {
    fn watch(&self) -> impl Stream<Item = Result<Change<Project>, BackendError>> + Send {
        let events = self.api().map_ok(|api| {
            let events = watcher(api, watcher::Config::default());
            watcher_changes(events, project)
        });
        events.try_flatten_stream()
    }

    async fn get(
        &self,
        _: Option<&str>,
        name: &str,
    ) -> Result<Option<Item<Project>>, BackendError> {
        Ok(self.api().await?.get_opt(name).await?.map(project))
    }
}
