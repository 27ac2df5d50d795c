//! Routing of requests.
//!
//! A path and a method become attributes for authorization, and a destination. Routing does not reject requests that
//! authorization should reject first: an unknown path is a destination too.

mod paths;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::auth::Attributes;
use crate::error::ApiError;
use crate::kind::{Kind, Routing, Version};
use crate::object::Key;
use crate::object::names::check_path_segment;
use crate::object::selector::FieldSelector;
use crate::paths::OF_NAMESPACES;
use crate::served_kind::{Backing, ServedKind, ServedKinds};
use crate::subresource::Subresource;
use crate::verb::{ServedSubresource, Verb, subresources, verbs};
use crate::write::Part;
pub(super) use paths::PathTarget;

/// The result of routing.
#[derive(Debug)]
pub(super) struct Route {
    /// The attributes that the caller must be authorized for.
    pub attributes: Arc<Attributes>,
    /// The source of the response.
    pub destination: Destination,
    /// The deprecation warning of the requested version.
    pub deprecation: Option<String>,
    /// Whether the request has a label selector or a field selector.
    pub selects: bool,
}

impl Route {
    /// Whether the request is a watch, by its path or its query.
    pub(super) fn is_watch(&self) -> bool {
        let watch = Verb::Watch.name();
        matches!(&*self.attributes, Attributes::Resource { verb, .. } if verb == watch)
    }

    /// The handlers of the request, if code of the user handles it.
    pub(super) fn custom(&self) -> Option<&Arc<Subresource>> {
        match &self.destination {
            Destination::Target(target) => target.custom(),
            Destination::Path(target) => Some(&target.custom),
            _ => None,
        }
    }

    /// The labels of metrics for the resource and the subresource, if clients choose those of the path.
    pub(super) fn labels(&self) -> Option<(&'static str, &'static str)> {
        match &self.destination {
            Destination::Path(target) => Some(target.labels),
            _ => None,
        }
    }

    /// The longest duration of a request that may last longer than other requests, except watches.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.custom()?.longest()
    }
}

/// The source of a response.
#[derive(Debug)]
pub(super) enum Destination {
    /// A document that is generated from the kinds.
    Document(DocumentPath),
    /// A verb on a resource.
    Target(Target),
    /// A path that code of the user handles.
    Path(PathTarget),
    /// A resource of a version that this server does not serve; another replica may serve it.
    Unserved { group: String, version: String, resource: String },
    /// An error response.
    Refused(ApiError),
}

/// A document that is generated from the kinds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DocumentPath {
    /// `/`
    Paths,
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/apis/G/V`, `/api/V`
    Version(String, String),
    /// `/version`
    ServerVersion,
    /// `/metrics`
    Metrics,
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiV3,
    /// `/openapi/v3/apis/G/V`, `/openapi/v3/api/V`
    OpenApiV3Version(String, String),
}

impl DocumentPath {
    /// Whether the document is an OpenAPI document.
    pub(super) fn is_openapi(&self) -> bool {
        matches!(self, Self::OpenApiV2 | Self::OpenApiV3 | Self::OpenApiV3Version(..))
    }
}

/// A verb on a resource.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The kind.
    pub served: ServedKind,
    /// The version in the path.
    pub version: Arc<Version>,
    /// The verb.
    pub verb: Verb,
    /// The subresource in the path, if any.
    pub subresource: Option<ServedSubresource>,
    /// The namespace in the path; `None` for cluster-scoped kinds and for requests over all namespaces.
    pub namespace: Option<String>,
    /// The name in the path.
    pub name: Option<String>,
}

impl Target {
    /// The subresource, if code of the user handles it.
    pub(super) fn custom(&self) -> Option<&Arc<Subresource>> {
        self.subresource.as_ref()?.custom()
    }

    /// The part of the object that is read or written.
    pub(super) fn part(&self) -> Part {
        self.subresource.as_ref().map_or(Part::Main, ServedSubresource::written)
    }

    /// The size of the named object as stored, in bytes; 0 if it does not exist.
    pub(super) fn size_of_kept(&self) -> usize {
        let Some(name) = &self.name else { return 0 };
        let kept = self.served.cache.get(&Key::new(self.namespace.as_deref(), name));
        kept.map_or(0, |kept| kept.object.size())
    }

    /// The kind and the version of the request body and the response.
    pub(super) fn body_kind(&self) -> (&Arc<Kind>, &Arc<Version>) {
        match self.subresource.as_ref().and_then(|subresource| subresource.kind.as_ref()) {
            Some(kind) => (kind, &kind.storage),
            None => (&self.served.kind, &self.version),
        }
    }
}

/// The maximum length of a path, in bytes: names have at most 253 bytes, and their characters may be escaped.
const LONGEST_PATH: usize = 8 << 10;

/// The maximum number of query parameters. The query is parsed several times, and no client knows more than twenty
/// parameters.
const MOST_PARAMETERS: usize = 200;

/// Determines the route of a request.
pub(super) fn route(kinds: &ServedKinds, head: &Parts) -> Result<Route, ApiError> {
    if head.uri.path().len() > LONGEST_PATH {
        return Err(ApiError::path_too_long(LONGEST_PATH));
    }
    let query = head.uri.query().unwrap_or_default();
    if query.bytes().filter(|&byte| byte == b'&').count() >= MOST_PARAMETERS {
        let message = format!("a query has at most {MOST_PARAMETERS} parameters");
        return Err(ApiError::bad_request(message));
    }
    let path = percent_decode_str(head.uri.path())
        .decode_utf8()
        .map_err(|_| ApiError::bad_request("the path is not UTF-8"))?;
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments.as_slice() {
        ["apis", group, version, rest @ ..] if !rest.is_empty() => {
            Ok(resource(kinds, head, group, version, rest))
        }
        ["api", version, rest @ ..] if !rest.is_empty() => {
            Ok(resource(kinds, head, "", version, rest))
        }
        _ => Ok(Route {
            attributes: Arc::new(Attributes::Path {
                verb: head.method.as_str().to_ascii_lowercase(),
                path: path.to_string(),
            }),
            destination: match is_document(&path) {
                true => document(&head.method, &segments),
                false => Destination::Refused(ApiError::no_such_resource()),
            },
            deprecation: None,
            selects: false,
        }),
    }
}

/// Whether this path has the exact form of a document's path. Permissions and policies name the exact path, and another
/// form of it must not bypass them.
fn is_document(path: &str) -> bool {
    let is_exact = path.starts_with("/metrics") || path.starts_with("/openapi/");
    let is_other_form = path.starts_with("//") || (is_exact && path.ends_with('/'));
    !is_other_form
}

fn document(method: &Method, segments: &[&str]) -> Destination {
    let document = match segments {
        [""] => DocumentPath::Paths,
        ["api"] => DocumentPath::Core,
        ["api", version] => DocumentPath::Version(String::new(), (*version).to_owned()),
        ["apis"] => DocumentPath::Groups,
        ["apis", group] => DocumentPath::Group((*group).to_owned()),
        ["apis", group, version] => {
            DocumentPath::Version((*group).to_owned(), (*version).to_owned())
        }
        ["version"] => DocumentPath::ServerVersion,
        ["metrics"] => DocumentPath::Metrics,
        ["openapi", "v2"] => DocumentPath::OpenApiV2,
        ["openapi", "v3"] => DocumentPath::OpenApiV3,
        ["openapi", "v3", "api", version] => {
            DocumentPath::OpenApiV3Version(String::new(), (*version).to_owned())
        }
        ["openapi", "v3", "apis", group, version] => {
            DocumentPath::OpenApiV3Version((*group).to_owned(), (*version).to_owned())
        }
        _ => return Destination::Refused(ApiError::no_such_resource()),
    };
    if is_read(method) {
        Destination::Document(document)
    } else {
        Destination::Refused(not_allowed())
    }
}

/// The parts of a resource path.
#[derive(Debug, Default, PartialEq, Eq)]
struct ResourcePath<'a> {
    is_watch: bool,
    namespace: Option<&'a str>,
    resource: &'a str,
    name: &'a str,
    subresource: &'a str,
    /// Whether more segments follow the subresource.
    goes_on: bool,
}

fn parse<'a>(mut rest: &'a [&'a str]) -> ResourcePath<'a> {
    let mut path = ResourcePath::default();
    if let ["watch", behind @ ..] = rest
        && !behind.is_empty()
    {
        path.is_watch = true;
        rest = behind;
    }
    // Same as in kube-apiserver, in each group.
    let is_namespace_itself = rest.get(2).is_none_or(|part| OF_NAMESPACES.contains(part));
    if let ["namespaces", namespace, behind @ ..] = rest
        && !behind.is_empty()
        && !is_namespace_itself
    {
        path.namespace = Some(*namespace);
        rest = behind;
    }
    let mut parts = rest.iter().copied();
    path.resource = parts.next().unwrap_or_default();
    path.name = parts.next().unwrap_or_default();
    path.subresource = parts.next().unwrap_or_default();
    path.goes_on = parts.next().is_some();
    path
}

fn resource(kinds: &ServedKinds, head: &Parts, group: &str, version: &str, rest: &[&str]) -> Route {
    let path = parse(rest);
    if let Some(served) = kinds.group_version(group, version)
        && kinds.find(group, version, path.resource).is_none()
    {
        return paths::route(served, head, rest);
    }
    let verb = verb(&head.method, &path, head.uri.query().unwrap_or_default());
    let query = head.uri.query().unwrap_or_default();
    let attributes =
        Arc::new(paths::resource_attributes((group, version), &head.method, query, rest));
    let selects = head.uri.query().is_some_and(has_selector);
    let Some((served, version)) = kinds.find(group, version, path.resource) else {
        let destination = Destination::Unserved {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: path.resource.to_owned(),
        };
        return Route { attributes, destination, deprecation: None, selects };
    };
    let destination = match target(served, version, verb, &path, &head.method) {
        Ok(target) => Destination::Target(target),
        Err(error) => Destination::Refused(error),
    };
    Route { attributes, destination, deprecation: version.deprecation.clone(), selects }
}

fn target(
    served: &ServedKind,
    version: &Arc<Version>,
    verb: Option<Verb>,
    path: &ResourcePath<'_>,
    method: &Method,
) -> Result<Target, ApiError> {
    let kind = &served.kind;
    if path.is_watch && !is_read(method) {
        return Err(not_allowed());
    }
    // An empty namespace means all namespaces.
    let namespace = path.namespace.filter(|namespace| !namespace.is_empty());
    if namespace.is_some() && !kind.is_namespaced() {
        return Err(ApiError::no_such_resource());
    }
    if kind.is_namespaced() && namespace.is_none() {
        // Only reads are possible over all namespaces.
        if !path.name.is_empty() {
            return Err(ApiError::no_such_resource());
        }
        if !matches!(verb, Some(Verb::List | Verb::Watch)) {
            return Err(match kind.strategy.routing {
                Routing::InstalledPaths => not_allowed(),
                Routing::CustomResourceHandler => ApiError::no_such_resource(),
            });
        }
    }
    let subresource = match path.subresource {
        "" => None,
        name => {
            let known = subresources(served, version).into_iter();
            // For custom resources, kube-apiserver ignores further segments.
            let ignores_rest = kind.strategy.routing == Routing::CustomResourceHandler;
            let is_whole = |subresource: &ServedSubresource| {
                let has_paths = subresource.custom().is_some_and(|custom| custom.has_paths());
                !path.goes_on || ignores_rest || has_paths
            };
            let found = known.into_iter().find(|subresource| subresource.name == name);
            let found = found.filter(is_whole);
            // A client that checks whether an object exists must not mistake this response for the result. For custom
            // resources, kube-apiserver reports the object as not found nevertheless.
            let none = || match kind.strategy.routing {
                Routing::InstalledPaths => ApiError::no_such_resource(),
                Routing::CustomResourceHandler => {
                    ApiError::not_found(&kind.group, &kind.names.plural, path.name)
                }
            };
            Some(found.ok_or_else(none)?)
        }
    };
    if let Some(fault) = check_path_segment(path.name).first() {
        let name = crate::error::quote(path.name);
        return Err(ApiError::bad_request(format!("Name parameter invalid: {name}: {fault}")));
    }
    if subresource.is_none() && matches!(served.backing, Backing::Elsewhere) {
        return Err(ApiError::no_such_resource());
    }
    let verbs = subresource.as_ref().map_or_else(|| verbs(served), |one| &one.verbs);
    let verb = verb.or_else(|| subresource.as_ref()?.verb_of_options(method));
    let verb = verb.filter(|verb| verbs.contains(verb)).ok_or_else(|| {
        let name = verb.map(Verb::name).unwrap_or_default();
        match kind.strategy.routing {
            Routing::InstalledPaths => not_allowed(),
            Routing::CustomResourceHandler => {
                ApiError::method_not_allowed(&kind.group, &kind.names.plural, name)
            }
        }
    })?;
    if verb == Verb::Create && !path.name.is_empty() && subresource.is_none() {
        return Err(not_allowed());
    }
    Ok(Target {
        served: served.clone(),
        version: Arc::clone(version),
        verb,
        subresource,
        namespace: namespace.map(str::to_owned),
        name: Some(path.name).filter(|name| !name.is_empty()).map(str::to_owned),
    })
}

fn verb(method: &Method, path: &ResourcePath<'_>, query: &str) -> Option<Verb> {
    match *method {
        // kube-apiserver treats this path as a watch, regardless of the method.
        _ if path.is_watch => Some(Verb::Watch),
        _ if !path.name.is_empty() => Verb::of_method(method),
        Method::GET | Method::HEAD if wants_watch(query) => Some(Verb::Watch),
        Method::GET | Method::HEAD => Some(Verb::List),
        Method::DELETE => Some(Verb::DeleteCollection),
        _ => Verb::of_method(method),
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn parameter<'a>(query: &'a str, key: &str) -> Option<Cow<'a, str>> {
    super::query::pairs(query).find(|(name, _)| name == key).map(|(_, value)| value)
}

/// Whether the query has the parameter `watch`, with a value other than `0` and `false`.
fn wants_watch(query: &str) -> bool {
    parameter(query, "watch")
        .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// Returns the name that a field selector requires, because a permission may be limited to this name.
fn selected_name(query: &str) -> String {
    let selector = parameter(query, "fieldSelector").unwrap_or_default();
    let parsed = FieldSelector::parse(&selector).unwrap_or_default();
    let name = parsed.name().unwrap_or_default();
    if check_path_segment(name).is_empty() { name.to_owned() } else { String::new() }
}

/// Whether a query selects objects by labels or fields.
fn has_selector(query: &str) -> bool {
    let selects = |name| parameter(query, name).is_some_and(|selector| !selector.is_empty());
    selects("labelSelector") || selects("fieldSelector")
}

fn not_allowed() -> ApiError {
    use crate::error::{Details, Reason};
    let message = "the server does not allow this method on the requested resource";
    ApiError::new(Reason::MethodNotAllowed, message).with_details(Details::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: &ResourcePath<'_>) {
        let segments: Vec<&str> = path.split('/').collect();
        assert_eq!(&parse(&segments), expected, "{path}");
    }

    #[test]
    fn paths_with_extra_slashes_are_no_documents_outside_discovery() {
        for (path, is_one) in [
            ("/metrics", true),
            ("/apis/", true),
            ("/apis/g/v1//", true),
            ("/metrics/", false),
            ("/metrics//", false),
            ("/openapi/v2//", false),
            ("/openapi/v3/", false),
            ("/openapi/v3/apis/g/v1/", false),
            ("//metrics", false),
            ("//apis/g/v1", false),
        ] {
            assert_eq!(is_document(path), is_one, "{path}");
        }
    }

    #[test]
    fn resource_paths() {
        let base = || ResourcePath { resource: "foos", ..ResourcePath::default() };
        check("foos", &base());
        check("foos/a", &ResourcePath { name: "a", ..base() });
        check("foos/a/status", &ResourcePath { name: "a", subresource: "status", ..base() });
        check("namespaces/n/foos", &ResourcePath { namespace: Some("n"), ..base() });
        check(
            "namespaces/n/status",
            &ResourcePath { resource: "namespaces", name: "n", subresource: "status", ..base() },
        );
        check("namespaces//foos", &ResourcePath { namespace: Some(""), ..base() });
        check("watch/foos", &ResourcePath { is_watch: true, ..base() });
        check(
            "watch/namespaces/n/foos/a",
            &ResourcePath { is_watch: true, namespace: Some("n"), name: "a", ..base() },
        );
        check("watch", &ResourcePath { resource: "watch", ..ResourcePath::default() });
    }

    #[test]
    fn the_watch_parameter_is_parsed_as_in_kubernetes() {
        for query in ["watch", "watch=", "watch=true", "watch=1", "&watch=yes"] {
            assert!(wants_watch(query), "{query}");
        }
        for query in ["", "watch=0", "watch=False", "x=watch"] {
            assert!(!wants_watch(query), "{query}");
        }
    }

    #[test]
    fn a_field_selector_names_an_object() {
        assert_eq!(selected_name("fieldSelector=metadata.name%3Da&x=y"), "a");
        assert_eq!(selected_name("fieldSelector=metadata.name!%3Da"), "");
        assert_eq!(selected_name("fieldSelector=metadata.name%3Da/b"), "");
        assert_eq!(selected_name(""), "");
    }
}
