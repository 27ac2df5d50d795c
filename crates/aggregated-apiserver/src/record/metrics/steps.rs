//! Metrics of the steps of a request: authentication, authorization, reviews by the cluster, and admission. Every label
//! has a value of a short fixed list, or the name of a plugin.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::cluster::{Review, ReviewKind, ReviewSource};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySource {
    source: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByBound {
    bound: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPlugin {
    name: String,
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

/// A counter and a histogram of durations.
#[derive(Debug)]
struct Timed<L> {
    count: Family<L, Counter>,
    took: Family<L, Histogram>,
}

impl<L: Clone + std::fmt::Debug + EncodeLabelSet + Eq + std::hash::Hash + Send + Sync + 'static>
    Timed<L>
{
    fn new(make: fn() -> Histogram) -> Self {
        Self { count: Family::default(), took: Family::new_with_constructor(make) }
    }

    fn register(&self, registry: &mut Registry, [count, took]: [&str; 2], what: &str) {
        registry.register(count, what, self.count.clone());
        registry.register(took, format!("Time that they took: {what}"), self.took.clone());
    }

    fn observe(&self, labels: &L, took: Duration) {
        self.count.get_or_create(labels).inc();
        self.took.get_or_create(labels).observe(took.as_secs_f64());
    }
}

/// Buckets in seconds, same as in kube-apiserver for authentication and authorization.
fn local() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// Buckets in seconds, same as in kube-apiserver for reviews by another server.
fn remote() -> Histogram {
    Histogram::new([0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0])
}

/// Buckets in seconds, same as in kube-apiserver for admission.
fn admission() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5])
}

/// The admission of a write by one plugin or by all plugins.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// The name of the plugin; `None` for all plugins together.
    pub plugin: Option<&'a str>,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Whether the plugin validates. Otherwise it can change the object.
    pub validates: bool,
    /// Whether the write was rejected.
    pub rejected: bool,
    /// The duration of the admission.
    pub took: Duration,
}

/// The metrics of the steps of requests.
#[derive(Debug)]
pub(super) struct Steps {
    authentication: Timed<ByResult>,
    authorization: Timed<ByResult>,
    token_reviews: Timed<ByCode>,
    access_reviews: Timed<ByCode>,
    token_cache: Family<ByStatus, Counter>,
    access_cache: Family<ByStatus, Counter>,
    admission: Family<ByOperation, Histogram>,
    plugins: Family<ByPlugin, Histogram>,
    rejected: Family<ByBound, Counter>,
    post_timeout: Family<BySource, Counter>,
}

impl Steps {
    /// Creates and registers the metrics.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let steps = Self {
            authentication: Timed::new(local),
            authorization: Timed::new(local),
            token_reviews: Timed::new(remote),
            access_reviews: Timed::new(remote),
            token_cache: Family::default(),
            access_cache: Family::default(),
            admission: Family::new_with_constructor(admission),
            plugins: Family::new_with_constructor(admission),
            rejected: Family::default(),
            post_timeout: Family::default(),
        };
        let names = ["authentication_attempts", "authentication_duration_seconds"];
        steps.authentication.register(registry, names, "Requests that were authenticated, or not");
        let names = ["authorization_attempts", "authorization_duration_seconds"];
        steps.authorization.register(registry, names, "Requests that were authorized, or not");
        let help = "Tokens whose user was known (hit), or had to be asked for (miss)";
        let cache = steps.token_cache.clone();
        registry.register("authentication_token_cache_request", help, cache);
        let registry = registry.sub_registry_with_prefix("apiserver");
        let help = "Writes that ended after their requests had timed out, by how they ended";
        registry.register("request_post_timeout", help, steps.post_timeout.clone());
        let names = ["delegated_authn_request", "delegated_authn_request_duration_seconds"];
        steps.token_reviews.register(
            registry,
            names,
            "TokenReviews that the cluster was asked for",
        );
        let names = ["delegated_authz_request", "delegated_authz_request_duration_seconds"];
        let what = "SubjectAccessReviews that the cluster was asked for";
        steps.access_reviews.register(registry, names, what);
        let help = "Rights that were known (hit), or had to be asked for (miss)";
        registry.register("delegated_authz_cache_request", help, steps.access_cache.clone());
        let help = "Time that all admission plugins took together";
        let name = "admission_step_admission_duration_seconds";
        registry.register(name, help, steps.admission.clone());
        let help = "Time that one admission plugin took";
        let name = "admission_controller_admission_duration_seconds";
        registry.register(name, help, steps.plugins.clone());
        let help = "Requests that were refused because a bound was reached";
        registry.register("rejected_requests", help, steps.rejected.clone());
        steps
    }

    /// Records an authentication.
    pub(super) fn authenticated(&self, result: &'static str, took: Duration) {
        self.authentication.observe(&ByResult { result }, took);
    }

    /// Records an authorization.
    pub(super) fn authorized(&self, result: &'static str, took: Duration) {
        self.authorization.observe(&ByResult { result }, took);
    }

    /// Counts a request that was rejected because of this limit.
    pub(super) fn rejected(&self, bound: &'static str) {
        self.rejected.get_or_create(&ByBound { bound }).inc();
    }

    /// Counts a write that ended after its response.
    pub(super) fn ended_after_answer(&self, status: &'static str, source: &'static str) {
        let labels = BySource { source, status };
        self.post_timeout.get_or_create(&labels).inc();
    }

    /// Records a review, or a lookup in the cache of reviews.
    pub(super) fn reviewed(&self, review: &Review) {
        let (cache, asked) = match review.kind {
            ReviewKind::Token => (&self.token_cache, &self.token_reviews),
            ReviewKind::Access => (&self.access_cache, &self.access_reviews),
        };
        match review.source {
            ReviewSource::Cache { hit } => {
                let status = if hit { "hit" } else { "miss" };
                cache.get_or_create(&ByStatus { status }).inc();
            }
            ReviewSource::Cluster { code, took } => {
                // The label value of kube-apiserver for a review without response.
                let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
                asked.observe(&ByCode { code }, took);
            }
        }
    }

    /// Records the admission of a write by one plugin or by all plugins.
    pub(super) fn admitted(&self, admission: Admission<'_>) {
        let Admission { plugin, operation, validates, rejected, took } = admission;
        let rejected = if rejected { "true" } else { "false" };
        let r#type = if validates { "validate" } else { "admit" };
        match plugin {
            None => {
                let labels = ByOperation { operation, rejected, r#type };
                self.admission.get_or_create(&labels).observe(took.as_secs_f64());
            }
            Some(name) => {
                let labels = ByPlugin { name: name.to_owned(), operation, rejected, r#type };
                self.plugins.get_or_create(&labels).observe(took.as_secs_f64());
            }
        }
    }
}
