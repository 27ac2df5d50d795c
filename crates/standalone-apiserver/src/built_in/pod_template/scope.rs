//! The context of the validation of a PodSpec.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{affinity, annotations, resources, security, spread, volumes};

/// The object that a PodSpec belongs to. kube-apiserver validates the PodSpec of a template less strictly.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Pod,
    Template,
}

/// The PodSpec, its owner, and the parts of it that other parts refer to.
pub(crate) struct Scope<'a> {
    pub(crate) spec: &'a PodSpec,
    pub(crate) owner: Owner,
    /// The metadata of the Pod, or of the template.
    pub(crate) metadata: Option<&'a ObjectMeta>,
    /// Valid volumes by name.
    pub(crate) volumes: BTreeMap<&'a str, &'a Volume>,
    /// The names of `resourceClaims`.
    pub(crate) claims: BTreeSet<&'a str>,
    pub(crate) allowed: Allowances,
}

impl<'a> Scope<'a> {
    /// The scope of a PodSpec, before its volumes are validated.
    pub(crate) fn new(
        spec: &'a PodSpec,
        owner: Owner,
        metadata: Option<&'a ObjectMeta>,
        old: Option<(&PodSpec, Option<&ObjectMeta>)>,
    ) -> Self {
        let claims = spec.resource_claims.iter().flatten().map(|claim| claim.name.as_str());
        Self {
            spec,
            owner,
            metadata,
            volumes: BTreeMap::new(),
            claims: claims.filter(|name| !name.is_empty()).collect(),
            allowed: old.map(|(spec, metadata)| Allowances::of(spec, metadata)).unwrap_or_default(),
        }
    }

    /// The name of the Pod, if it has one. The name of a template is not that of a Pod.
    pub(crate) fn pod_name(&self) -> Option<&'a str> {
        let name = self.metadata.filter(|_| self.owner == Owner::Pod)?.name.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// The name of the operating system.
    pub(crate) fn os(&self) -> Option<&'a str> {
        self.spec.os.as_ref().map(|os| os.name.as_str())
    }

    /// Whether the Pod uses the user namespace of the node.
    pub(crate) fn uses_host_users(&self) -> bool {
        self.spec.host_users != Some(false)
    }

    /// Whether all containers are on the host network.
    pub(crate) fn uses_host_network(&self) -> bool {
        self.spec.host_network == Some(true)
    }
}

/// Invalid values that are allowed because the old object has some.
#[derive(Clone, Copy, Default)]
pub(crate) struct Allowances {
    pub(crate) label_values_in_selectors: bool,
    pub(crate) label_values_in_node_affinity: bool,
    pub(crate) indivisible_huge_pages: bool,
    pub(crate) spread_selectors: bool,
    pub(crate) spread_label_keys: bool,
    pub(crate) token_paths: bool,
    pub(crate) host_sysctls: bool,
    pub(crate) any_selinux_change_policy: bool,
    pub(crate) toleration_comparisons: bool,
    pub(crate) init_resize_restarts: bool,
    pub(crate) user_namespaces_with_devices: bool,
    pub(crate) deletion_cost: bool,
}

impl Allowances {
    fn of(old: &PodSpec, metadata: Option<&ObjectMeta>) -> Self {
        let devices = |container: &Container| {
            container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty())
        };
        let init = old.init_containers.as_deref().unwrap_or_default();
        Self {
            label_values_in_selectors: affinity::has_invalid_label_values(old),
            label_values_in_node_affinity: affinity::has_invalid_node_label_values(old),
            indivisible_huge_pages: resources::has_indivisible_huge_pages(old),
            spread_selectors: spread::has_invalid_selectors(old),
            spread_label_keys: spread::has_invalid_label_keys(old),
            token_paths: volumes::has_invalid_token_paths(old),
            host_sysctls: security::has_host_sysctls(old),
            any_selinux_change_policy: old
                .security_context
                .as_ref()
                .is_some_and(|context| context.se_linux_change_policy.is_some()),
            toleration_comparisons: old
                .tolerations
                .iter()
                .flatten()
                .any(|one| matches!(one.operator.as_deref(), Some("Lt" | "Gt"))),
            init_resize_restarts: init.iter().any(|container| {
                let mut policies = container.resize_policy.iter().flatten();
                container.restart_policy.as_deref() != Some("Always")
                    && policies.any(|policy| policy.restart_policy == "RestartContainer")
            }),
            user_namespaces_with_devices: old.host_users == Some(false)
                && old.containers.iter().chain(init).any(devices),
            deletion_cost: annotations::has_invalid_deletion_cost(metadata),
        }
    }
}
