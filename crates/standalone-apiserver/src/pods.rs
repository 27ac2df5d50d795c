//! The requests that a kubelet handles in a cluster, which code of a test handles instead: logs, commands and
//! forwarded ports of Pods.

mod go;
mod log;
mod streams;

pub use aggregated_apiserver::subresource::{Error, Outcome, Session};
pub use axum::body::Body;
pub use log::{LogOptions, LogRequest};
pub use streams::{ExecRequest, PortForwardRequest};

use aggregated_apiserver::Kind;
use aggregated_apiserver::subresource::Subresource;
use k8s_openapi::api::core::v1::Pod;

/// The subresources of Pods that code of a test handles.
#[derive(Default)]
pub(crate) struct PodHandlers {
    pub log: Option<Subresource>,
    pub exec: Option<Subresource>,
    pub attach: Option<Subresource>,
    pub port_forward: Option<Subresource>,
}

impl PodHandlers {
    /// Adds the subresources to the kind of Pods.
    pub fn add_to(self, pods: Kind) -> Kind {
        let all = [self.log, self.exec, self.attach, self.port_forward];
        all.into_iter().flatten().fold(pods, Kind::subresource)
    }
}

pub(crate) use log::subresource as log;
pub(crate) use streams::{commands, ports};

/// The container that a request names, or the only container of the Pod.
///
/// # Errors
/// 400 if the Pod does not have the container, or if the request must name one.
fn container(pod: &Pod, named: Option<&str>) -> Result<String, Error> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| &*spec.containers).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default();
    let init = init.iter().map(|container| container.name.as_str());
    let ephemeral = ephemeral.iter().map(|container| container.name.as_str());
    let names = containers.iter().map(|container| container.name.as_str());
    let all: Vec<&str> = init.chain(names).chain(ephemeral).collect();
    let why = match (named.filter(|named| !named.is_empty()), containers) {
        (Some(named), _) if all.contains(&named) => return Ok(named.to_owned()),
        (Some(named), _) => format!("container {named} is not valid for pod {name}"),
        (None, [only]) => return Ok(only.name.clone()),
        (None, []) => format!("a container name must be specified for pod {name}"),
        (None, _) => {
            let choice = all.join(" ");
            format!("a container name must be specified for pod {name}, choose one of: [{choice}]")
        }
    };
    Err(Error::bad_request(why))
}

/// Rejects connections to Pods without a node, same as kube-apiserver.
fn ensure_node(pod: &Pod) -> Result<(), Error> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let why = || Error::bad_request(format!("pod {name} does not have a host assigned"));
    has_node(pod).then_some(()).ok_or_else(why)
}

/// Whether the Pod is assigned to a node.
fn has_node(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|node| !node.is_empty())
}
