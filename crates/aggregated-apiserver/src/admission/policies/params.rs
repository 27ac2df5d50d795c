//! The parameter objects of policies, from this server or from the cluster.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{ParamKind, ParamRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::admission::label_selector::matches;
use crate::admission::matching;
use crate::admission::{AdmissionError, AdmissionRequest, ReservedMemory};
use crate::cluster::{ClusterError, ClusterResource, KindReader, Wanted};
use crate::object::{Key, Object, Tree};
use crate::watch_cache::Scope;

/// The largest number of parameter objects of one binding.
const OBJECTS: usize = 500;

/// The reason why there are no parameters.
pub(super) enum ParamError {
    /// The kind cannot be found. The policy is misconfigured.
    Kind(String),
    /// The parameters cannot be read. The binding is misconfigured.
    Binding(String),
    /// The write is rejected.
    Rejected(AdmissionError),
}

/// The parameter objects of one binding, with the memory that they use.
pub(super) struct Params {
    /// The objects; one `None` for a binding without parameters.
    pub objects: Vec<Option<Tree>>,
    _memory: Vec<ReservedMemory>,
}

impl Params {
    fn none() -> Self {
        Self { objects: vec![None], _memory: Vec::new() }
    }
}

/// Checks that the kind of the parameters of a policy exists.
///
/// # Errors
/// If the kind does not exist or cannot be looked up.
pub(super) async fn check_kind(
    request: &AdmissionRequest<'_>,
    cluster: Option<&KindReader>,
    kind: &ParamKind,
) -> Result<(), ParamError> {
    let (api_version, kind) = names(kind);
    if request.kind_called(api_version, kind).is_some() {
        return Ok(());
    }
    if let Some(cluster) = cluster {
        let found = cluster.resource((api_version, kind), &request.user.name).await;
        if found.map_err(|error| unread(&error))?.is_some() {
            return Ok(());
        }
    }
    Err(unknown(api_version, kind))
}

/// The parameter objects of a binding.
///
/// # Errors
/// If they cannot be found or read.
pub(super) async fn collect(
    request: &AdmissionRequest<'_>,
    cluster: Option<&KindReader>,
    kind: Option<&ParamKind>,
    param_ref: Option<&ParamRef>,
) -> Result<Params, ParamError> {
    let (Some(kind), Some(param_ref)) = (kind, param_ref) else { return Ok(Params::none()) };
    let found = of_server(request, kind, param_ref);
    let params = match (found, cluster) {
        (Some(found), _) => found?,
        (None, Some(cluster)) => of_cluster(request, cluster, kind, param_ref).await?,
        (None, None) => {
            let (api_version, kind) = names(kind);
            return Err(unknown(api_version, kind));
        }
    };
    if params.objects.is_empty() && param_ref.parameter_not_found_action.as_deref() == Some("Deny")
    {
        let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Err(ParamError::Binding(why.to_owned()));
    }
    Ok(params)
}

fn names(kind: &ParamKind) -> (&str, &str) {
    (kind.api_version.as_deref().unwrap_or_default(), kind.kind.as_deref().unwrap_or_default())
}

fn unknown(api_version: &str, kind: &str) -> ParamError {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ParamError::Kind(format!(
        "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
    ))
}

fn unread(error: &ClusterError) -> ParamError {
    tracing::debug!(error = error.why(), "cannot read the parameters of a policy");
    ParamError::Binding(error.to_string())
}

/// The namespace of the parameters; `None` for a kind of cluster-scoped objects.
fn namespace<'a>(
    request: &'a AdmissionRequest<'_>,
    param_ref: &'a ParamRef,
    is_namespaced: bool,
) -> Result<Option<&'a str>, ParamError> {
    let given = param_ref.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let wrong = |why: &str| Err(ParamError::Binding(why.to_owned()));
    match (is_namespaced, given) {
        (true, Some(given)) => Ok(Some(given)),
        (true, None) => match matching::namespace(request) {
            "" => wrong(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
            ),
            own => Ok(Some(own)),
        },
        (false, Some(_)) => {
            wrong("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        }
        (false, None) => Ok(None),
    }
}

/// The parameter objects of a kind that this server serves; `None` if it does not serve the kind.
fn of_server(
    request: &AdmissionRequest<'_>,
    kind: &ParamKind,
    param_ref: &ParamRef,
) -> Option<Result<Params, ParamError>> {
    let (api_version, kind_name) = names(kind);
    let (served, version) = request.kind_called(api_version, kind_name)?;
    let collect = || {
        let namespace = namespace(request, param_ref, served.kind.is_namespaced())?;
        if !served.cache.is_synced() {
            let kind = format!("&ParamKind{{APIVersion:{api_version},Kind:{kind_name},}}");
            return Err(ParamError::Binding(format!(
                "paramKind kind `{kind}` not yet synced to use for admission"
            )));
        }
        let read = |object: &Arc<Object>, revision: String| {
            let shown = served.kind.in_version(object, version);
            let shown = shown.map_err(|error| ParamError::Binding(error.to_string()))?;
            let (mut tree, _) = shown.to_parts();
            matching::set_resource_version(&mut tree, &revision);
            Ok(tree)
        };
        if let Some(name) = param_ref.name.as_deref().filter(|name| !name.is_empty()) {
            let found = served.cache.get(&Key::new(namespace, name));
            let found = found.map(|found| read(&found.object, found.revision.to_string()));
            return charged(request, found.into_iter());
        }
        let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
        let objects = served.cache.snapshot();
        let selector = param_ref.selector.as_ref();
        let is_selected = |object: &Object| selector.is_none_or(|one| selects(one, object));
        // Only selected objects are decoded.
        let found = objects.from(&scope, None).filter(|found| is_selected(&found.object));
        let found = found.map(|found| read(&found.object, found.revision.to_string()));
        charged(request, found)
    };
    Some(collect())
}

/// Whether a selector matches the labels of an object.
fn selects(selector: &LabelSelector, object: &Object) -> bool {
    let labels = object.labels().iter();
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    matches(selector, Some(&labels))
}

/// The parameter objects. Their memory is charged to the request.
///
/// # Errors
/// If there are more than 500, or if there is no memory for them.
fn charged(
    request: &AdmissionRequest<'_>,
    objects: impl Iterator<Item = Result<Tree, ParamError>>,
) -> Result<Params, ParamError> {
    let mut params = Params { objects: Vec::new(), _memory: Vec::new() };
    for object in objects {
        let object = object?;
        if params.objects.len() >= OBJECTS {
            return Err(ParamError::Binding(format!("there are more than {OBJECTS} parameters")));
        }
        let memory = request.reserve(crate::quota::of_tree(&object));
        params._memory.push(memory.map_err(ParamError::Rejected)?);
        params.objects.push(Some(object));
    }
    Ok(params)
}

/// The parameter objects of a kind of the cluster.
async fn of_cluster(
    request: &AdmissionRequest<'_>,
    cluster: &KindReader,
    kind: &ParamKind,
    param_ref: &ParamRef,
) -> Result<Params, ParamError> {
    let (api_version, kind) = names(kind);
    let user = &request.user.name;
    let known = |resource: Result<Option<ClusterResource>, ClusterError>| {
        let resource = resource.map_err(|error| unread(&error))?;
        resource.ok_or_else(|| unknown(api_version, kind))
    };
    let resource = known(cluster.resource((api_version, kind), user).await)?;
    let mut found = read(request, cluster, param_ref, &resource).await?;
    if found.is_none() {
        // The definition of the kind may have changed since its resource was read.
        let current = known(cluster.current_resource((api_version, kind), user).await)?;
        if current != resource {
            found = read(request, cluster, param_ref, &current).await?;
        }
    }
    charged(request, found.unwrap_or_default().into_iter().map(Ok))
}

/// Reads the parameter objects of a resource of the cluster; `None` if the cluster responds with 404.
async fn read(
    request: &AdmissionRequest<'_>,
    cluster: &KindReader,
    param_ref: &ParamRef,
    resource: &ClusterResource,
) -> Result<Option<Vec<Tree>>, ParamError> {
    let namespace = namespace(request, param_ref, resource.is_namespaced)?;
    let labels = param_ref.selector.as_ref().map(selector_text).unwrap_or_default();
    let wanted = match param_ref.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => Wanted::Named(name),
        None => Wanted::Selected(&labels),
    };
    let found = cluster.objects(resource, namespace, wanted, &request.user.name).await;
    found.map_err(|error| unread(&error))
}

/// A label selector in the format of a query.
fn selector_text(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|term| {
        let key = &term.key;
        let values = term.values.as_deref().unwrap_or_default().join(",");
        match term.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        }
    });
    equal.chain(others).collect::<Vec<_>>().join(",")
}
