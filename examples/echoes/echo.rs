//! The kind `Echo`, and the desired Deployment of an Echo.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::{CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The label of all objects that belong to an Echo. Its value is the uid, because a name may be too long for a label.
const LABEL: &str = "echoes.example.com/uid";
const IMAGE: &str = "inanimate/echo-server";
const PORT: i32 = 8080;

/// A number of servers that answer with what they are asked.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Echo",
    plural = "echoes",
    namespaced,
    status = "EchoStatus",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas")
)]
pub struct EchoSpec {
    /// How many servers there are to be.
    #[schemars(range(min = 0))]
    pub replicas: i32,
}

/// The observed state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EchoStatus {
    /// The generation of the Echo that the Deployment follows.
    pub observed_generation: Option<i64>,
    /// How many servers were made.
    pub replicas: i32,
    /// How many of them are ready.
    pub ready_replicas: i32,
}

impl Echo {
    /// The status of an Echo with this Deployment.
    pub fn status_with(&self, deployment: &Deployment) -> EchoStatus {
        let status = deployment.status.as_ref();
        EchoStatus {
            observed_generation: self.metadata.generation,
            replicas: status.and_then(|status| status.replicas).unwrap_or_default(),
            ready_replicas: status.and_then(|status| status.ready_replicas).unwrap_or_default(),
        }
    }

    /// Whether this Echo controls a Deployment, which could also have the same name by coincidence.
    pub fn owns(&self, deployment: &Deployment) -> bool {
        let owners = deployment.owner_references().iter();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        controllers.any(|owner| Some(&owner.uid) == self.metadata.uid.as_ref())
    }

    /// The desired Deployment of this Echo.
    pub fn deployment(&self) -> Deployment {
        let uid = self.uid().unwrap_or_default();
        let labels = BTreeMap::from([(LABEL.to_owned(), uid)]);
        let container = Container {
            name: "echo-server".to_owned(),
            image: Some(IMAGE.to_owned()),
            ports: Some(vec![ContainerPort { container_port: PORT, ..ContainerPort::default() }]),
            ..Container::default()
        };
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels.clone()), ..ObjectMeta::default() }),
            spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
        };
        Deployment {
            metadata: ObjectMeta {
                name: self.metadata.name.clone(),
                namespace: self.metadata.namespace.clone(),
                labels: Some(labels.clone()),
                owner_references: self.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(DeploymentSpec {
                replicas: Some(self.spec.replicas),
                selector: LabelSelector { match_labels: Some(labels), match_expressions: None },
                template,
                ..DeploymentSpec::default()
            }),
            status: None,
        }
    }
}
