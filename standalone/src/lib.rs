//! A Kubernetes API server without a cluster: kinds of your own beside the
//! built-in ones, in this process, for tests and for trying things out.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ObjectMeta, PostParams};
//! use standalone_apiserver::TestServer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = TestServer::builder().start().await?;
//! let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
//! let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
//! maps.create(&PostParams::default(), &ConfigMap { metadata, ..Default::default() }).await?;
//! assert_eq!(maps.list(&Default::default()).await?.items.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! It answers as kube-apiserver does, but nothing else of a cluster is there:
//! no scheduler, no kubelet, no kube-controller-manager. A Pod stays Pending, a
//! Deployment makes no ReplicaSet, what an owner leaves behind stays. Only deletions are
//! completed by the server: of what is in a namespace, of the objects of a definition, and
//! of Pods when their grace period is over.

mod admission_configuration;
mod admission_webhooks;
mod authorizer;
mod built_in;
mod certificates;
mod cluster_objects;
mod controllers;
mod faults;
mod files;
mod jwt;
mod kubeconfig;
mod objects;
mod reviews;
mod service_account_tokens;
mod standalone;
mod test_server;
#[cfg(test)]
mod testing;
mod token_auth_file;

/// The examples of `docs/testing.md`, which are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct Testing;

pub use built_in::BuiltInKindError;
pub use faults::Faults;
pub use objects::ObjectError;
pub use standalone::{Standalone, StandaloneArgs, StandaloneError};
pub use test_server::{TestServer, TestServerBuilder, TestServerError};
