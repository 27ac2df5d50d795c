//! Routing of requests for paths that code of the user handles.

use std::sync::Arc;

use http::Method;
use http::request::Parts;

use super::{Destination, Route, not_allowed, selected_name, wants_watch};
use crate::auth::Attributes;
use crate::error::ApiError;
use crate::paths::{OF_NAMESPACES, PathValues};
use crate::served_kind::ServedGroupVersion;
use crate::subresource::Subresource;
use crate::verb::{Verb, verb_of_options};

/// A path that code of the user handles.
#[derive(Clone, Debug)]
pub(in crate::request) struct PathTarget {
    /// The group version.
    pub served: ServedGroupVersion,
    /// The handlers of the path.
    pub custom: Arc<Subresource>,
    /// The verb of the method.
    pub verb: Verb,
    /// The values of the parameters.
    pub values: PathValues,
    /// The number of segments of the pattern.
    pub length: usize,
    /// The resource and the subresource of the pattern, for metrics: clients choose those of the path.
    pub labels: (&'static str, &'static str),
}

/// Determines the route of a request for a group version with paths. `rest` are the segments behind the version.
pub(super) fn route(served: &ServedGroupVersion, head: &Parts, rest: &[&str]) -> Route {
    let query = head.uri.query().unwrap_or_default();
    let described = served.paths.described();
    let group_version = (described.group(), described.version());
    let attributes = resource_attributes(group_version, &head.method, query, rest);
    let destination = match target(served, &head.method, rest) {
        Ok(target) => Destination::Path(target),
        Err(error) => Destination::Refused(error),
    };
    Route { attributes: Arc::new(attributes), destination, deprecation: None, selects: false }
}

fn target(
    served: &ServedGroupVersion,
    method: &Method,
    rest: &[&str],
) -> Result<PathTarget, ApiError> {
    let found = served.paths.find(rest);
    let (pattern, custom, values) = found.ok_or_else(ApiError::no_such_resource)?;
    let verb = Verb::of_method(method).filter(|_| custom.handles(method));
    let verb = verb.or_else(|| verb_of_options(custom, method)).ok_or_else(not_allowed)?;
    Ok(PathTarget {
        served: served.clone(),
        custom: Arc::clone(custom),
        verb,
        values,
        length: pattern.length(),
        labels: (pattern.resource(), pattern.subresource()),
    })
}

/// The attributes of a request for a kind or another path of a group version, same as in kube-apiserver's
/// `RequestInfoFactory`.
pub(super) fn resource_attributes(
    (group, version): (&str, &str),
    method: &Method,
    query: &str,
    rest: &[&str],
) -> Attributes {
    let (special, mut parts) = match rest {
        [verb @ ("watch" | "proxy"), behind @ ..] if !behind.is_empty() => (Some(*verb), behind),
        _ => (None, rest),
    };
    let mut namespace = "";
    if let ["namespaces", name, behind @ ..] = parts {
        namespace = name;
        if behind.first().is_some_and(|part| !OF_NAMESPACES.contains(part)) {
            parts = behind;
        }
    }
    let part = |index: usize| parts.get(index).copied().unwrap_or_default();
    let mut name = part(1).to_owned();
    let verb = match special {
        Some(special) => special,
        None if !name.is_empty() => Verb::of_method(method).map(Verb::name).unwrap_or_default(),
        None => match Verb::of_method(method) {
            Some(Verb::Get) => {
                name = selected_name(query);
                if wants_watch(query) { Verb::Watch.name() } else { Verb::List.name() }
            }
            Some(Verb::Delete) => Verb::DeleteCollection.name(),
            verb => verb.map(Verb::name).unwrap_or_default(),
        },
    };
    Attributes::Resource {
        verb: verb.to_owned().into(),
        group: group.to_owned(),
        version: version.to_owned(),
        resource: part(0).to_owned(),
        subresource: if special == Some("proxy") { "" } else { part(2) }.to_owned(),
        namespace: namespace.to_owned(),
        name,
    }
}
