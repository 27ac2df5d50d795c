//! A Kubernetes API server without a cluster: your own kinds and the built-in ones, in this process, for tests and
//! experiments.
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
//! The server behaves like kube-apiserver. A scheduler, a kubelet and most controllers of a cluster are missing: a Pod
//! stays Pending, a Deployment creates no ReplicaSet, and the dependents of a deleted owner remain. The server has its
//! own controllers for deletions (of namespaces, of definitions, of Pods after their grace period, of claims and
//! volumes that are in use) and for the rules of aggregated ClusterRoles.

mod admission_configuration;
mod authentication_config;
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
pub mod pods;
mod reviews;
mod service_account_tokens;
mod standalone;
mod test_server;
#[cfg(test)]
mod testing;
mod token_auth_file;
mod welcome;

/// The examples of `docs/guides/testing.md`, which are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/testing.md")]
struct Testing;

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use built_in::BuiltInKindError;
pub use faults::Faults;
pub use objects::ObjectError;
pub use standalone::{Standalone, StandaloneArgs, StandaloneError};
pub use test_server::{TestServer, TestServerBuilder, TestServerError};
