//! The parts of a Pod that the checks read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerPort, Lifecycle, PodSecurityContext, PodSpec, Probe, SecurityContext,
};

/// A Pod, with its containers of all three lists: init containers, regular containers and ephemeral containers.
pub(super) struct PodView<'a> {
    pub annotations: Option<&'a BTreeMap<String, String>>,
    pub spec: &'a PodSpec,
    pub security: Option<&'a PodSecurityContext>,
    pub containers: Vec<ContainerView<'a>>,
}

/// A container of any list.
pub(super) struct ContainerView<'a> {
    pub name: &'a str,
    pub security: Option<&'a SecurityContext>,
    pub ports: &'a [ContainerPort],
    pub probes: [Option<&'a Probe>; 3],
    pub lifecycle: Option<&'a Lifecycle>,
}

/// The view of a container. Its type differs between the lists, but its fields do not.
macro_rules! view {
    ($container:expr) => {
        ContainerView {
            name: &$container.name,
            security: $container.security_context.as_ref(),
            ports: $container.ports.as_deref().unwrap_or_default(),
            probes: [
                $container.liveness_probe.as_ref(),
                $container.readiness_probe.as_ref(),
                $container.startup_probe.as_ref(),
            ],
            lifecycle: $container.lifecycle.as_ref(),
        }
    };
}

impl<'a> PodView<'a> {
    pub(super) fn new(
        annotations: Option<&'a BTreeMap<String, String>>,
        spec: &'a PodSpec,
    ) -> Self {
        let init = spec.init_containers.iter().flatten().map(|one| view!(one));
        let containers = spec.containers.iter().map(|one| view!(one));
        let ephemeral = spec.ephemeral_containers.iter().flatten().map(|one| view!(one));
        Self {
            annotations,
            spec,
            security: spec.security_context.as_ref(),
            containers: init.chain(containers).chain(ephemeral).collect(),
        }
    }

    /// The names of the containers that meet a condition, in the order of the Pod.
    pub(super) fn containers_that(
        &self,
        condition: impl FnMut(&&ContainerView<'a>) -> bool,
    ) -> Vec<&'a str> {
        self.containers.iter().filter(condition).map(|container| container.name).collect()
    }

    /// Whether the Pod has its own user namespace.
    pub(super) fn has_user_namespace(&self) -> bool {
        self.spec.host_users == Some(false)
    }

    /// Whether the Pod is for Windows nodes.
    pub(super) fn is_for_windows(&self) -> bool {
        self.spec.os.as_ref().is_some_and(|os| os.name == "windows")
    }
}
