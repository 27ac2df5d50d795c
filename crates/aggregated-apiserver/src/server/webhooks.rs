//! The admission plugins that call webhooks and evaluate policies: selects the source of their configurations.

use std::sync::Arc;

use k8s_openapi::Resource;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use serde::de::DeserializeOwned;

use super::parsed_kinds::fault;
use crate::admission::{
    AdmissionChain, AdmissionPlugin, BindingReader, Configuration, LazyNamespaces, Policies,
    PolicyReader, PolicyRegistry, Registry, UnreadConfigurations, Webhooks, webhook_calls,
};
use crate::cluster::{Cluster, Namespaces, Sources};
use crate::error::StartError;
use crate::served_kind::{ServedKind, ServedKinds};
use crate::storage::{Collection, LogReader, Store};
use crate::webhook::Calls;

/// The webhooks that a server calls, and whether it evaluates policies.
#[derive(Clone, Copy, Debug)]
pub(super) struct WebhookOptions {
    /// Whether mutating webhooks are called.
    pub mutating: bool,
    /// Whether validating webhooks are called.
    pub validating: bool,
    /// Whether policies are evaluated.
    pub policies: bool,
    /// The consequence of configurations that cannot be read from the cluster.
    pub unread: UnreadConfigurations,
}

/// The source of configurations: this server, if it stores them, otherwise the cluster.
pub(super) struct ConfigurationSource<'a> {
    pub kinds: &'a ServedKinds,
    pub store: &'a dyn Store,
    /// The cluster; `None` for a server without a cluster.
    pub cluster: Option<(Cluster, Arc<Sources>)>,
    pub options: WebhookOptions,
}

impl ConfigurationSource<'_> {
    /// Adds the plugins that call webhooks and evaluate policies, in the order of kube-apiserver. A server without a
    /// cluster that stores no configurations has none.
    pub(super) async fn add_webhooks(
        self,
        admission: &mut AdmissionChain,
    ) -> Result<(), StartError> {
        // The limits of calls apply to webhooks of both types together.
        let calls = Arc::new(webhook_calls());
        if self.options.mutating {
            let registry = self.registry::<MutatingWebhookConfiguration>(Arc::clone(&calls));
            self.add(registry.await?, admission);
        }
        if self.options.policies
            && let Some(registry) = self.policies().await?
        {
            let (policies, bindings) = (Arc::clone(&registry), Arc::clone(&registry));
            admission.add_source(Arc::new(move || policies.policies_source()));
            admission.add_source(Arc::new(move || bindings.bindings_source()));
            admission.push(Arc::new(Policies::new(registry, self.namespaces())));
        }
        if self.options.validating {
            let registry = self.registry::<ValidatingWebhookConfiguration>(calls);
            self.add(registry.await?, admission);
        }
        Ok(())
    }

    /// The webhooks of configurations of this type; `None` if there is no source.
    async fn registry<K>(&self, calls: Arc<Calls>) -> Result<Option<Arc<Registry<K>>>, StartError>
    where
        K: Configuration + Resource + DeserializeOwned,
    {
        if let Some(served) = self.stored(&name_of::<K>()) {
            let registry = Arc::new(Registry::<K>::of_store(calls));
            self.follow(served, Arc::clone(&registry) as Arc<_>).await?;
            return Ok(Some(registry));
        }
        let registry = self.cluster.as_ref().map(|(_, sources)| {
            Arc::new(Registry::of_cluster(Arc::clone(sources), self.options.unread, calls))
        });
        // Without a kind that is written, the first write to a kind that is added at run time starts the watch.
        if let Some(registry) = registry.as_ref().filter(|_| self.kinds.iter().any(is_written)) {
            registry.start();
        }
        Ok(registry)
    }

    /// The policies; `None` if there is no source.
    async fn policies(&self) -> Result<Option<Arc<PolicyRegistry>>, StartError> {
        let policies = self.stored(&name_of::<ValidatingAdmissionPolicy>());
        let bindings = self.stored(&name_of::<ValidatingAdmissionPolicyBinding>());
        if let (Some(policies), Some(bindings)) = (policies, bindings) {
            let registry = Arc::new(PolicyRegistry::of_store());
            self.follow(policies, Arc::new(PolicyReader(Arc::clone(&registry)))).await?;
            self.follow(bindings, Arc::new(BindingReader(Arc::clone(&registry)))).await?;
            return Ok(Some(registry));
        }
        let Some((cluster, sources)) = &self.cluster else { return Ok(None) };
        let (cluster, sources) = (cluster.clone(), Arc::clone(sources));
        let registry = PolicyRegistry::of_cluster(cluster, sources, self.options.unread);
        if self.kinds.iter().any(is_written) {
            registry.start();
        }
        Ok(Some(Arc::new(registry)))
    }

    /// Follows the objects of a kind that this server stores.
    async fn follow(
        &self,
        served: &ServedKind,
        reader: Arc<dyn LogReader>,
    ) -> Result<(), StartError> {
        let collection = Collection::new(&served.kind.collection());
        let followed = self.store.follow(&collection, reader).await;
        followed.map_err(|error| fault(&served.kind, "storage", &error.to_string()))?;
        Ok(())
    }

    /// The namespaces of the cluster; `None` if this server stores them.
    fn namespaces(&self) -> Option<Arc<LazyNamespaces>> {
        let (cluster, sources) = match (&self.cluster, self.stored("namespaces")) {
            (Some((cluster, sources)), None) => (cluster.clone(), Arc::clone(sources)),
            _ => return None,
        };
        let open = move || Namespaces::new(sources, cluster);
        Some(Arc::new(LazyNamespaces::new(Box::new(open))))
    }

    fn add<K: Configuration>(&self, registry: Option<Arc<Registry<K>>>, chain: &mut AdmissionChain)
    where
        Webhooks<K>: AdmissionPlugin,
    {
        let Some(registry) = registry else { return };
        let source = Arc::clone(&registry);
        chain.add_source(Arc::new(move || source.source()));
        chain.push(Arc::new(Webhooks::new(registry, self.namespaces())));
    }

    /// The kind of this name, if this server stores its objects.
    fn stored(&self, qualified: &str) -> Option<&ServedKind> {
        let served = self.kinds.iter().find(|served| served.kind.qualified() == qualified);
        served.filter(|served| served.store().is_some())
    }
}

/// The qualified name of a type of configurations.
fn name_of<K: Resource>() -> String {
    format!("{}.{}", K::URL_PATH_SEGMENT, K::GROUP)
}

/// Whether admission is asked about requests for a kind: it is written, or code handles its subresources.
fn is_written(served: &ServedKind) -> bool {
    served.store().is_some() || !served.kind.subresources.is_empty()
}
