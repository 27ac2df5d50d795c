//! The admission plugins that call webhooks: selects the source of their configurations.

use std::sync::Arc;

use k8s_openapi::Resource;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use serde::de::DeserializeOwned;

use super::parsed_kinds::fault;
use crate::admission::{
    AdmissionChain, AdmissionPlugin, Configuration, LazyNamespaces, Registry, UnreadConfigurations,
    Webhooks, webhook_calls,
};
use crate::cluster::{Cluster, Namespaces, Sources};
use crate::error::StartError;
use crate::served_kind::{ServedKind, ServedKinds};
use crate::storage::{Collection, Store};
use crate::webhook::Calls;

/// The webhooks that a server calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct WebhookOptions {
    /// Whether mutating webhooks are called.
    pub mutating: bool,
    /// Whether validating webhooks are called.
    pub validating: bool,
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
    /// Adds the plugins that call webhooks. A server without a cluster that stores no configurations has none.
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
        if let Some(served) = self.stored(&format!("{}.{}", K::URL_PATH_SEGMENT, K::GROUP)) {
            let registry = Arc::new(Registry::<K>::of_store(calls));
            let collection = Collection::new(&served.kind.collection());
            let followed = self.store.follow(&collection, Arc::clone(&registry) as Arc<_>).await;
            followed.map_err(|error| fault(&served.kind, "storage", &error.to_string()))?;
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

    fn add<K: Configuration>(&self, registry: Option<Arc<Registry<K>>>, chain: &mut AdmissionChain)
    where
        Webhooks<K>: AdmissionPlugin,
    {
        let Some(registry) = registry else { return };
        let source = Arc::clone(&registry);
        chain.add_source(Arc::new(move || source.source()));
        let namespaces = match (&self.cluster, self.stored("namespaces")) {
            (Some((cluster, sources)), None) => {
                let (cluster, sources) = (cluster.clone(), Arc::clone(sources));
                let open = move || Namespaces::new(sources, cluster);
                Some(Arc::new(LazyNamespaces::new(Box::new(open))))
            }
            _ => None,
        };
        chain.push(Arc::new(Webhooks::new(registry, namespaces)));
    }

    /// The kind of this name, if this server stores its objects.
    fn stored(&self, qualified: &str) -> Option<&ServedKind> {
        let served = self.kinds.iter().find(|served| served.kind.qualified() == qualified);
        served.filter(|served| served.store().is_some())
    }
}

/// Whether admission is asked about requests for a kind: it is written, or code handles its subresources.
fn is_written(served: &ServedKind) -> bool {
    served.store().is_some() || !served.kind.subresources.is_empty()
}
