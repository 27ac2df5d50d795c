//! SourceType: what must be known of a type of the cluster, and of its objects.

use std::any::TypeId;
use std::borrow::Cow;

use jiff::Timestamp;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::de::DeserializeOwned;

/// Where the objects of a type are found in the API of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceApi {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// The plural, as `pods`.
    pub plural: Cow<'static, str>,
    /// Whether the objects live in namespaces.
    pub is_namespaced: bool,
    /// Whether only their metadata is asked for.
    pub is_metadata: bool,
}

impl SourceApi {
    /// That of a type that says so itself, as the types of `k8s-openapi` do.
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

    /// The same of which only metadata is asked for.
    #[must_use]
    pub fn of_metadata(self) -> Self {
        Self { is_metadata: true, ..self }
    }

    /// What the type is called in messages and in rights: `replicasets.apps`, `pods`.
    pub(crate) fn resource_name(&self) -> String {
        let Self { group, plural, .. } = self;
        if group.is_empty() { plural.to_string() } else { format!("{plural}.{group}") }
    }

    /// Where its objects are listed: those of a namespace, or all.
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

/// A type of the cluster that can be computed from or looked at.
///
/// Every type that implements kube's [`Resource`] is one: those of `k8s-openapi`, and what
/// `#[derive(Resource)]` makes of a struct with a member `metadata: ObjectMeta`. That takes 360 bytes and more, so a type of
/// which there are many objects says itself what is asked of it here, and keeps no more than it reads:
///
/// ```
/// use aggregated_apiserver::Lookup;
/// use aggregated_apiserver::computed::{SourceApi, SourceType};
/// use k8s_openapi::api::core::v1::Pod;
/// use serde::Deserialize;
///
/// /// What is read of a Pod.
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
///     // Nothing looks for Pods by their labels.
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
    /// Where the objects are found.
    fn api() -> SourceApi;

    /// The name of an object.
    fn name(&self) -> Option<&str>;

    /// Its namespace, if it is in one.
    fn namespace(&self) -> Option<&str>;

    /// Its uid. What is computed from it has a uid that is made from this one, or without it from namespace and name: then
    /// an object that was deleted and made again is taken for the same.
    fn uid(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// When it was created. What is computed from it is as old, unless it says something else.
    fn created(&self) -> Option<Timestamp> {
        None
    }

    /// Shows each of its labels, by which selectors find it. A type that is not found by its labels may show none.
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

/// What a type is called in messages: `replicasets.apps`, `pods`.
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
