//! The backend: the Namespaces of a cluster as projects.

use aggregated_apiserver::backend::{Backend, BackendError, Change, Item, Listing, Watch};
use futures::{Stream, TryFutureExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher::{self, Event};
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
            let events = watcher::watcher(api, watcher::Config::default());
            events.map_err(BackendError::internal_from)
        });
        let mut listed = Vec::new();
        events.try_flatten_stream().try_filter_map(move |event| {
            let change = match event {
                Event::Init => {
                    listed.clear();
                    None
                }
                Event::InitApply(namespace) => {
                    listed.push(project(namespace));
                    None
                }
                Event::InitDone => {
                    Some(Change::Restarted(Listing::complete(std::mem::take(&mut listed))))
                }
                Event::Apply(namespace) => Some(Change::Applied(project(namespace))),
                Event::Delete(namespace) => {
                    let name = namespace.metadata.name.unwrap_or_default();
                    Some(Change::Deleted { namespace: None, name })
                }
            };
            std::future::ready(Ok(change))
        })
    }

    async fn get(
        &self,
        _: Option<&str>,
        name: &str,
    ) -> Result<Option<Item<Project>>, BackendError> {
        let namespace = self.api().await?.get_opt(name).await;
        Ok(namespace.map_err(BackendError::internal_from)?.map(project))
    }
}
