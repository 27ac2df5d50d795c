//! Group versions whose paths code of the user handles, such as `custom.metrics.k8s.io/v1beta2`.
//!
//! A kind has paths of a fixed shape. A [`GroupVersion`] has paths of any shape below `/apis/GROUP/VERSION`, and
//! resources in discovery that may change while the server runs. The handlers are those of
//! [subresources](crate::subresource): handlers of axum, with the same extractors except `Parent` and `ParentKey`.
//! [`PathParameters`] has the values of the parameters of the path.
//!
//! For the metrics APIs of HorizontalPodAutoscalers, [`metrics_apis`] has ready-made group versions.
//!
//! ```
//! use aggregated_apiserver::paths::{GroupVersion, PathParameters};
//! use aggregated_apiserver::{ApiServer, Kinds};
//! use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
//! use serde::Deserialize;
//! use tokio::sync::watch;
//!
//! #[derive(Deserialize)]
//! struct Path {
//!     namespace: String,
//!     city: String,
//! }
//!
//! /// `GET /apis/weather.example.com/v1/namespaces/NAMESPACE/forecasts/CITY`
//! async fn forecast(PathParameters(path): PathParameters<Path>) -> String {
//!     format!("sun in {} for {}\n", path.city, path.namespace)
//! }
//!
//! let forecasts = APIResource {
//!     name: "forecasts".to_owned(),
//!     kind: "Forecast".to_owned(),
//!     namespaced: true,
//!     verbs: vec!["get".to_owned()],
//!     ..APIResource::default()
//! };
//! // The sender may change the resources while the server runs.
//! let (sender, receiver) = watch::channel(vec![forecasts]);
//! let weather = GroupVersion::new("weather.example.com", "v1")
//!     .get("/namespaces/{namespace}/forecasts/{city}", forecast)
//!     .resources(move || receiver.borrow().clone());
//! let server = ApiServer::new("weather", Kinds::new().group_version(weather));
//! ```
//!
//! # Rules
//!
//! - A pattern consists of literal segments and of parameters in braces. A parameter matches one segment that is not
//!   empty, `.` or `..`. If several patterns match, the first literal segment decides.
//! - A request is authorized by the attributes that kube-apiserver reads from the path. `/namespaces/NS/pods/a/b` needs
//!   `get` on `pods/b` in the namespace NS, with the name `a`. `/namespaces/NS/a` needs `list` on `a`, because it has no
//!   name. Segments behind the subresource are not authorized: the handler must check them.
//! - A parameter does not match a segment that kube-apiserver reads in another way: `namespaces`, `watch` and `proxy` at
//!   the beginning of the path, and `status` and `finalize` behind `/namespaces/NS`.
//! - A request without a name, and with `?fieldSelector=metadata.name=a`, is authorized for the name `a`. Its handler
//!   must return nothing else.
//! - The pattern of a proxy must have a subresource, such as `/things/{name}/proxy`. Otherwise, the first segments of
//!   the path below the proxy would be authorized.
//! - An unknown path is rejected with 404, and a method without a handler with 405, both after authorization.
//! - Limits, deadlines, long requests, the audit log and errors are those of [subresources](crate::subresource).
//!   Admission plugins are not called, because there is no object.
//! - The labels of metrics are the segments of the pattern, such as `{metric}`, because clients choose the values.

pub mod metrics_apis;
mod parameters;
mod pattern;

pub use parameters::PathParameters;
pub(crate) use parameters::PathValues;
pub(crate) use pattern::{OF_NAMESPACES, Pattern};

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::handler::Handler;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use schemars::JsonSchema;
use serde_json::Value;

use crate::error::StartError;
use crate::log_throttle::LogThrottle;
use crate::object::names::{check_dns_1035_label, check_dns_1123_subdomain};
use crate::subresource::{Subresource, schema_of};

/// Limits the log lines about panics of functions that list resources.
static PANICS: LogThrottle = LogThrottle::at_most(1);

type ListResources = Box<dyn Fn() -> Vec<APIResource> + Send + Sync>;

/// A group version with paths that code of the user handles. See the [module](self).
#[must_use]
pub struct GroupVersion {
    group: String,
    version: String,
    paths: Vec<(&'static str, Arc<Subresource>)>,
    resources: Option<ListResources>,
    schemas: Vec<(String, Value)>,
    server_rules: Vec<PolicyRule>,
}

impl GroupVersion {
    /// A group version without paths, such as `custom.metrics.k8s.io` and `v1beta2`.
    pub fn new(group: &str, version: &str) -> Self {
        let (group, version) = (group.to_owned(), version.to_owned());
        Self {
            group,
            version,
            paths: Vec::new(),
            resources: None,
            schemas: Vec::new(),
            server_rules: Vec::new(),
        }
    }

    /// Handles GET requests for the paths of a pattern, such as `/namespaces/{namespace}/forecasts/{city}`. HEAD has the
    /// same handler.
    pub fn get<H: Handler<T, ()>, T: 'static>(self, pattern: &'static str, handler: H) -> Self {
        self.on(pattern, |path| path.get(handler))
    }

    /// Handles POST requests for the paths of a pattern.
    pub fn post<H: Handler<T, ()>, T: 'static>(self, pattern: &'static str, handler: H) -> Self {
        self.on(pattern, |path| path.post(handler))
    }

    /// Handles PUT requests for the paths of a pattern.
    pub fn put<H: Handler<T, ()>, T: 'static>(self, pattern: &'static str, handler: H) -> Self {
        self.on(pattern, |path| path.put(handler))
    }

    /// Handles PATCH requests for the paths of a pattern.
    pub fn patch<H: Handler<T, ()>, T: 'static>(self, pattern: &'static str, handler: H) -> Self {
        self.on(pattern, |path| path.patch(handler))
    }

    /// Handles DELETE requests for the paths of a pattern.
    pub fn delete<H: Handler<T, ()>, T: 'static>(self, pattern: &'static str, handler: H) -> Self {
        self.on(pattern, |path| path.delete(handler))
    }

    fn on(mut self, pattern: &'static str, add: impl FnOnce(Subresource) -> Subresource) -> Self {
        let known = self.paths.iter().position(|(other, _)| *other == pattern);
        let known = known.and_then(|place| Arc::into_inner(self.paths.remove(place).1));
        self.path(pattern, add(known.unwrap_or_else(|| Subresource::new(pattern))))
    }

    /// Adds the paths of a pattern with all settings of a [`Subresource`], such as `long_running`, `connect`, `proxy` or
    /// a description for OpenAPI. The name of the subresource is not used.
    pub fn path(mut self, pattern: &'static str, handlers: Subresource) -> Self {
        self.paths.push((pattern, Arc::new(handlers)));
        self
    }

    /// Sets the function that returns the resources of discovery. It is called for each request of a discovery document,
    /// so it must return at once. Without it, discovery contains the resources of kinds alone.
    ///
    /// The name of a subresource is `pods/http_requests`. kube-apiserver reads the resources about once a minute.
    pub fn resources(
        mut self,
        resources: impl Fn() -> Vec<APIResource> + Send + Sync + 'static,
    ) -> Self {
        self.resources = Some(Box::new(resources));
        self
    }

    /// Adds the schema of a type to the OpenAPI documents, with this name.
    pub fn schema<T: JsonSchema>(mut self, name: &str) -> Self {
        self.schemas.push((name.to_owned(), schema_of::<T>()));
        self
    }

    /// Adds a permission that the handlers need for
    /// [`Caller::server_client`](crate::subresource::Caller::server_client). The generated manifests grant it to the
    /// server.
    ///
    /// ```
    /// use aggregated_apiserver::paths::GroupVersion;
    /// use k8s_openapi::api::rbac::v1::PolicyRule;
    ///
    /// let list_pods = PolicyRule {
    ///     api_groups: Some(vec![String::new()]),
    ///     resources: Some(vec!["pods".to_owned()]),
    ///     verbs: vec!["list".to_owned()],
    ///     ..PolicyRule::default()
    /// };
    /// let weather = GroupVersion::new("weather.example.com", "v1").server_rule(list_pods);
    /// ```
    pub fn server_rule(mut self, rule: PolicyRule) -> Self {
        self.server_rules.push(rule);
        self
    }

    /// The paths, in the order in which they are matched.
    ///
    /// # Errors
    /// If a pattern is invalid, or if two patterns match the same paths.
    pub(crate) fn parsed(self: &Arc<Self>) -> Result<ParsedGroupVersion, StartError> {
        let mut faults = Vec::new();
        if let Some(why) = check_dns_1123_subdomain(&self.group).first() {
            faults.push(format!("the group is invalid: {why}"));
        }
        if let Some(why) = check_dns_1035_label(&self.version).first() {
            faults.push(format!("the version is invalid: {why}"));
        }
        let mut paths: Vec<(Pattern, Arc<Subresource>)> = Vec::new();
        for (text, handlers) in &self.paths {
            let pattern = Pattern::parse(text).and_then(|pattern| {
                let fault = proxy_fault(&pattern).filter(|_| handlers.has_paths());
                fault.map_or(Ok(pattern), |why| Err(why.to_owned()))
            });
            match pattern {
                Err(why) => faults.push(format!("path {text:?}: {why}")),
                Ok(_) if handlers.methods().next().is_none() => {
                    faults.push(format!("path {text:?}: no method has a handler"));
                }
                Ok(pattern) => match paths.iter().find(|(other, _)| other.has_shape_of(&pattern)) {
                    Some((other, _)) => {
                        let other = other.text();
                        faults
                            .push(format!("path {text:?}: path {other:?} matches the same paths"));
                    }
                    None => paths.push((pattern, Arc::clone(handlers))),
                },
            }
        }
        if !faults.is_empty() {
            return Err(self.error(faults));
        }
        paths.sort_by(|(one, _), (other, _)| one.precedence(other));
        Ok(ParsedGroupVersion { described: Arc::clone(self), paths: paths.into() })
    }

    /// The error of a group version that cannot be served.
    pub(crate) fn error(&self, faults: Vec<String>) -> StartError {
        StartError::GroupVersion { group_version: self.to_string(), faults }
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The patterns with their handlers, in the order in which they were added.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&'static str, &Arc<Subresource>)> {
        self.paths.iter().map(|(pattern, handlers)| (*pattern, handlers))
    }

    /// The permissions that the handlers need.
    pub(crate) fn server_rules(&self) -> impl Iterator<Item = &PolicyRule> {
        let of_paths = self.paths.iter().flat_map(|(_, handlers)| handlers.server_rules());
        self.server_rules.iter().chain(of_paths)
    }

    /// The schemas for the OpenAPI documents, by name.
    pub(crate) fn schemas(&self) -> &[(String, Value)] {
        &self.schemas
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.version)
    }
}

impl fmt::Debug for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupVersion").field(&self.to_string()).finish()
    }
}

/// The reason for which a proxy cannot have this pattern.
fn proxy_fault(pattern: &Pattern) -> Option<&'static str> {
    if pattern.subresource().is_empty() {
        return Some(
            "a proxy needs a subresource, such as /things/{name}/proxy, because kube-apiserver reads it from the path",
        );
    }
    let has_path = pattern.parameters().any(|name| name == "path");
    has_path.then_some("the parameter {path} is the path below the proxy; give it another name")
}

/// A group version whose patterns are valid.
#[derive(Clone, Debug)]
pub(crate) struct ParsedGroupVersion {
    described: Arc<GroupVersion>,
    /// The patterns, in the order in which they are matched.
    paths: Arc<[(Pattern, Arc<Subresource>)]>,
}

impl ParsedGroupVersion {
    /// The group version as described by the user.
    pub fn described(&self) -> &Arc<GroupVersion> {
        &self.described
    }

    /// The patterns, each with its handlers.
    pub fn paths(&self) -> impl Iterator<Item = (&Pattern, &Arc<Subresource>)> {
        self.paths.iter().map(|(pattern, handlers)| (pattern, handlers))
    }

    /// Returns the first pattern that matches a path, and the values of its parameters.
    pub fn find(&self, path: &[&str]) -> Option<(&Pattern, &Arc<Subresource>, PathValues)> {
        self.paths().find_map(|(pattern, handlers)| {
            Some((pattern, handlers, pattern.values(path, handlers.has_paths())?))
        })
    }

    /// The resources of discovery, by name; `None` if the function of the user panics.
    pub fn resources(&self) -> Option<Vec<APIResource>> {
        let Some(resources) = &self.described.resources else { return Some(Vec::new()) };
        let listed = catch_unwind(AssertUnwindSafe(resources));
        if listed.is_err() {
            let group_version = self.described.to_string();
            PANICS.log(|suppressed| {
                tracing::error!(suppressed, group_version, "cannot list resources: panic");
            });
        }
        let mut listed = listed.ok()?;
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Some(listed)
    }
}
