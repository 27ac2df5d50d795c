//! Our server: it serves a kind from a CustomResourceDefinition and stores it in memory, in a directory or in etcd. The
//! cluster is unreachable, which does not affect an administrator behind the front proxy.

use std::path::Path;

use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::backend::{
    Backend, BackendError, Create, Item, Listing, Poll, Update, VirtualKind, WriteContext,
};
use aggregated_apiserver::serving::AdmissionPluginName;
use aggregated_apiserver::store::NamespaceLimit;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs};
use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;

use crate::{Server, process};

const DEFINITION: &str = include_str!("samples.yaml");
/// The usual policy of clusters: one event for each request.
const AUDIT_POLICY: &str = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy",
    "omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}"#;
/// The tracing configuration without its last value, the number of requests in a million that are sampled. No collector
/// listens at its endpoint.
const TRACING: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: 127.0.0.1:1
samplingRatePerMillion: ";
/// No API server listens at this address.
const KUBECONFIG: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
    "clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
    "contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
    "users":[{"name":"u","user":{}}]}"#;

/// A backend that accepts every object at once. The server's cache has the objects.
struct Accepting;

impl Backend for Accepting {
    type Object = DynamicObject;
}

impl Poll for Accepting {
    async fn list(&self) -> Result<Listing<DynamicObject>, BackendError> {
        Ok(Listing::complete([]))
    }
}

impl Create for Accepting {
    async fn create(
        &self,
        _: &WriteContext,
        object: DynamicObject,
    ) -> Result<Item<DynamicObject>, BackendError> {
        Ok(Item::new(object))
    }
}

impl Update for Accepting {
    async fn update(
        &self,
        _: &WriteContext,
        _: Item<DynamicObject>,
        object: DynamicObject,
    ) -> Result<Item<DynamicObject>, BackendError> {
        Ok(Item::new(object))
    }
}

/// The kinds of a server: one kind, stored or with a backend.
fn kinds(server: Server) -> Result<Kinds> {
    /// No poll runs during the measurement.
    const NEVER: Duration = Duration::from_secs(24 * 3_600);
    if server != Server::Backend {
        return Ok(Kinds::new().crds_from_yaml(DEFINITION)?);
    }
    let definition: CustomResourceDefinition = serde_saphyr::from_str(DEFINITION)?;
    let kind = VirtualKind::polled(definition, Arc::new(Accepting), NEVER);
    Ok(Kinds::new().kind(kind.keeps_metadata().create().update()))
}

pub async fn serve(server: Server, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("kubeconfig"), KUBECONFIG)?;
    // The environment contains the address of etcd.
    let mut args = ServeArgs::default();
    let own = std::process::id();
    match server {
        Server::Audited => {
            let policy = folder.join("audit-policy.yaml");
            std::fs::write(&policy, AUDIT_POLICY)?;
            args.audit.audit_policy_file = Some(policy);
            args.audit.audit_log_path = Some(folder.join(format!("audit-{own}.log")));
        }
        Server::Traced | Server::Sampled => {
            let rate = if server == Server::Traced { 0 } else { 1_000_000 };
            let configuration = folder.join(format!("tracing-{own}.yaml"));
            std::fs::write(&configuration, format!("{TRACING}{rate}\n"))?;
            args.tracing.tracing_config_file = Some(configuration);
        }
        Server::Folder => args.data_dir = Some(folder.join(format!("data-{own}"))),
        Server::Etcd => args.etcd.etcd_prefix = Some(format!("/load/{own}")),
        _ => {}
    }
    args.bind_address = [127, 0, 0, 1].into();
    args.secure_port = 0;
    args.kubeconfig = Some(folder.join("kubeconfig"));
    args.tls_cert_file = Some(folder.join("serving.crt"));
    args.tls_private_key_file = Some(folder.join("serving.key"));
    args.client_ca_file = Some(folder.join("ca.crt"));
    args.disable_admission_plugins = vec![
        AdmissionPluginName::NamespaceLifecycle,
        AdmissionPluginName::MutatingAdmissionWebhook,
        AdmissionPluginName::ValidatingAdmissionWebhook,
        AdmissionPluginName::ValidatingAdmissionPolicy,
        AdmissionPluginName::ResourceQuota,
    ];
    // All objects are in one namespace.
    args.store_namespace_limit = NamespaceLimit::WHOLE;
    args.requestheader_client_ca_file = Some(folder.join("ca.crt"));
    let server = ApiServer::new("samples", kinds(server)?);
    let running = server.bind(&args).await?.start().await?;
    process::announce(folder, running.address())?;
    // Serves until the process is killed.
    std::future::pending::<()>().await;
    drop(running);
    Ok(())
}
