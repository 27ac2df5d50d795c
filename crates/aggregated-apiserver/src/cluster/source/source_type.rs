//! [`SourceType`]: the API path of a type of the cluster, and the metadata of its objects.

use std::any::TypeId;
use std::borrow::Cow;

use jiff::Timestamp;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::de::DeserializeOwned;

/// The API path of a type in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceApi {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// The plural, for example `pods`.
    pub plural: Cow<'static, str>,
    /// Whether the type is namespaced.
    pub is_namespaced: bool,
    /// Whether only metadata is requested.
    pub is_metadata: bool,
}

impl SourceApi {
    /// The API of a type that implements kube's [`Resource`], such as the types of `k8s-openapi`.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = (), Scope: 'static>,
    {
        Self {
            group: K::group(&()).into_owned().into(),
            version: K::version(&()).into_owned().into(),
            plural: K::plural(&()).into_owned().into(),
            is_namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
            is_metadata: K::metadata_api(),
        }
    }

    /// Requests only the metadata of the objects.
    #[must_use]
    pub fn of_metadata(self) -> Self {
        Self { is_metadata: true, ..self }
    }

    /// The name of the resource in messages and RBAC rules: `replicasets.apps`, `pods`.
    pub(crate) fn resource_name(&self) -> String {
        let Self { group, plural, .. } = self;
        if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") }
    }

    /// The path of the objects of a namespace, or of all objects.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let of_group = match &**group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match namespace {
            Some(namespace) => format!("{of_group}/namespaces/{namespace}/{plural}"),
            None => format!("{of_group}/{plural}"),
        }
    }
}

/// A type of the cluster that is a source or a lookup of computed kinds.
///
/// Every type that implements kube's [`Resource`] is a source type: the types of `k8s-openapi`, and every struct with a
/// field `metadata: ObjectMeta` and `#[derive(Resource)]`. An `ObjectMeta` uses at least 360 bytes. A type with many
/// objects can implement this trait itself instead, and store only the fields that it reads:
///
/// ```
/// use aggregated_apiserver::Lookup;
/// use aggregated_apiserver::computed::{SourceApi, SourceType};
/// use k8s_openapi::api::core::v1::Pod;
/// use serde::Deserialize;
///
/// /// The fields of a Pod that are read.
/// #[derive(Deserialize)]
/// pub struct PodView {
///     metadata: PodMetadata,
///     spec: PodSpec,
/// }
///
/// #[derive(Deserialize)]
/// struct PodMetadata {
///     namespace: Option<Box<str>>,
///     name: Option<Box<str>>,
/// }
///
/// #[derive(Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct PodSpec {
///     node_name: Option<Box<str>>,
/// }
///
/// impl SourceType for PodView {
///     fn api() -> SourceApi {
///         SourceApi::of::<Pod>()
///     }
///
///     fn name(&self) -> Option<&str> {
///         self.metadata.name.as_deref()
///     }
///
///     fn namespace(&self) -> Option<&str> {
///         self.metadata.namespace.as_deref()
///     }
///
///     // Pods are never selected by labels.
///     fn each_label(&self, _: &mut dyn FnMut(&str, &str)) {}
/// }
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let pod = r#"{"metadata": {"namespace": "n", "name": "a"}, "spec": {"nodeName": "node-1"}}"#;
/// let pods: Lookup<PodView> = Lookup::from_objects([serde_json::from_str(pod)?]);
/// let on_node = pods.find_by(|pod: &PodView| pod.spec.node_name.clone(), None, "node-1");
/// assert_eq!(on_node.len(), 1);
/// # Ok(())
/// # }
/// ```
pub trait SourceType: DeserializeOwned + Send + Sync + 'static {
    /// The API path of the objects.
    fn api() -> SourceApi;

    /// The name of the object.
    fn name(&self) -> Option<&str>;

    /// The namespace of the object, or `None` if the type is cluster-scoped.
    fn namespace(&self) -> Option<&str>;

    /// The uid of the object. The uids of computed objects are derived from it. Without a uid they are derived from
    /// namespace and name, so an object that is deleted and created again keeps the same uid.
    fn uid(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The creation time of the object. Computed objects have the same creation time, unless the computation sets a
    /// different one.
    fn created(&self) -> Option<Timestamp> {
        None
    }

    /// Passes each label to `show`, for label selectors. A type that is never selected by labels may pass none.
    fn each_label(&self, show: &mut dyn FnMut(&str, &str));
}

impl<K> SourceType for K
where
    K: Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static,
{
    fn api() -> SourceApi {
        SourceApi::of::<K>()
    }

    fn name(&self) -> Option<&str> {
        self.meta().name.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.meta().namespace.as_deref()
    }

    fn uid(&self) -> Option<Cow<'_, str>> {
        self.meta().uid.as_deref().map(Cow::Borrowed)
    }

    fn created(&self) -> Option<Timestamp> {
        self.meta().creation_timestamp.as_ref().map(|time| time.0)
    }

    fn each_label(&self, show: &mut dyn FnMut(&str, &str)) {
        self.meta().labels.iter().flatten().for_each(|(key, value)| show(key, value));
    }
}

/// The name of a type in messages: `replicasets.apps`, `pods`.
pub fn resource_name<K: SourceType>() -> String {
    K::api().resource_name()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::api::PartialObjectMeta;

    #[test]
    fn objects_are_listed_where_kube_lists_them() {
        fn check<K: Resource<DynamicType = (), Scope: 'static>>(name: &str) {
            let api = SourceApi::of::<K>();
            for namespace in [None, Some("n")] {
                assert_eq!(api.path(namespace), K::url_path(&(), namespace));
            }
            assert_eq!(api.resource_name(), name);
        }
        check::<Pod>("pods");
        check::<ReplicaSet>("replicasets.apps");
        check::<PartialObjectMeta<ReplicaSet>>("replicasets.apps");
        let kinds = [SourceApi::of::<Pod>(), SourceApi::of::<Node>()];
        assert_eq!(
            kinds.map(|api| (api.is_namespaced, api.is_metadata)),
            [(true, false), (false, false)]
        );
        assert!(SourceApi::of::<PartialObjectMeta<Pod>>().is_metadata);
        assert!(SourceApi::of::<Pod>().of_metadata().is_metadata);
    }
}
