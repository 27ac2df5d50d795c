//! The APIs from which HorizontalPodAutoscalers read metrics: `custom.metrics.k8s.io` in the versions `v1beta1` and
//! `v1beta2`, and `external.metrics.k8s.io/v1beta1`.
//!
//! Each API has two functions of the user. The first returns the available metrics, which become the resources of
//! discovery. The second returns the values of a metric.
//!
//! ```no_run
//! use aggregated_apiserver::paths::metrics_apis::{
//!     CustomMetric, CustomQuery, ExternalQuery, ExternalValue, MetricValue, custom_metrics, external_metrics,
//! };
//! use aggregated_apiserver::subresource::Error;
//! use aggregated_apiserver::{ApiServer, Kinds, ServeArgs};
//! use clap::{Args, FromArgMatches};
//! use k8s_openapi::api::core::v1::Pod;
//! use k8s_openapi::api::rbac::v1::PolicyRule;
//! use kube::api::{Api, ListParams};
//! use kube::ResourceExt;
//!
//! /// Requests per second of Pods.
//! async fn requests(query: CustomQuery) -> Result<Vec<MetricValue>, Error> {
//!     let client = query.caller.server_client();
//!     let pods = Api::<Pod>::namespaced(client, query.namespace.as_deref().unwrap_or_default());
//!     let pods = pods.list(&ListParams::default()).await?.items.into_iter();
//!     let pods = pods.filter(|pod| query.objects.include(&pod.name_any(), pod.labels()));
//!     Ok(pods.map(|pod| MetricValue::new(pod.name_any(), 12.5)).collect())
//! }
//!
//! /// The lengths of queues.
//! async fn queues(query: ExternalQuery) -> Result<Vec<ExternalValue>, Error> {
//!     let queues = [("orders", 30), ("mails", 4)];
//!     let values = queues.map(|(queue, length)| ExternalValue::new([("queue", queue)], length));
//!     Ok(values.into_iter().filter(|value| query.selector.matches_map(&value.labels)).collect())
//! }
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     let available = || vec![CustomMetric::of::<Pod>("http_requests")];
//!     // The generated manifests grant this permission to the server.
//!     let list_pods = PolicyRule {
//!         api_groups: Some(vec![String::new()]),
//!         resources: Some(vec!["pods".to_owned()]),
//!         verbs: vec!["list".to_owned()],
//!         ..PolicyRule::default()
//!     };
//!     let [v1beta1, v1beta2] = custom_metrics(available, requests);
//!     let kinds = Kinds::new()
//!         .group_versions([v1beta1, v1beta2.server_rule(list_pods)])
//!         .group_version(external_metrics(|| vec!["queue_length".to_owned()], queues));
//!     let flags = ServeArgs::augment_args(clap::Command::new("adapter")).get_matches();
//!     let server = ApiServer::new("adapter", kinds);
//!     Ok(server.run(&ServeArgs::from_arg_matches(&flags)?).await?)
//! }
//! ```
//!
//! # Rules
//!
//! - The functions of available metrics are called for each request, so they must return at once.
//! - A metric that is not available is rejected with 404, and the function of values is not called. If a request names
//!   an object, and there is no value for the object, the response is 404, too. If a request selects objects, or reads
//!   an external metric, the response is an empty list.
//! - If a request names an object, values of other objects are omitted.
//! - A value that is not a quantity is an internal error (500). So is a panic. The server continues.
//! - Each item of a custom metric contains the metric selector of the request, unless the selector compares numbers
//!   (`>`, `<`).
//!
//! # Authorization
//!
//! | request | permission |
//! |---|---|
//! | `custom.metrics.k8s.io`: metric `m` of the Pod `a` | `get` on `pods/m` for the name `a` |
//! | `custom.metrics.k8s.io`: metric `m` of selected Pods | `get` on `pods/m` for the name `*` |
//! | `custom.metrics.k8s.io`: metric `m` of Deployments | `get` on `deployments.apps/m` |
//! | `custom.metrics.k8s.io`: metric `m` of a Namespace | `get` on `metrics` in the namespace, for the name `m` |
//! | `external.metrics.k8s.io`: metric `m` | `list` on `m` in the namespace |
//!
//! kube-controller-manager has these permissions. The server checks no permission on the Pods
//! themselves: [`CustomQuery::caller`] can check one.

mod custom;
mod external;
mod value;
mod wire;

pub use self::custom::{CustomMetric, CustomQuery, Objects, custom_metrics};
pub use self::external::{ExternalQuery, external_metrics};
pub use self::value::{ExternalValue, MetricValue, Sample};
pub use crate::object::selector::LabelSelector;

use crate::subresource::Error;

fn parse_selector(text: &str) -> Result<LabelSelector, Error> {
    LabelSelector::parse(text).map_err(Error::bad_request)
}
