//! The fields that are read of an object of any kind: its metadata, and the parts of `spec` and `status` that a view
//! declares.

use std::any::TypeId;
use std::borrow::Cow;
use std::marker::PhantomData;

use aggregated_apiserver::computed::{SourceApi, SourceType};
use jiff::Timestamp;
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::metadata::Metadata;

/// The fields that are read of an object of kind `K`: compact metadata, and the declared parts of `spec` and `status`.
/// If a view declares neither, only metadata is requested from the API server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(bound = "Spec: Deserialize<'de> + Default, Status: Deserialize<'de> + Default")]
pub struct ObjectView<K, Spec = IgnoredAny, Status = IgnoredAny> {
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: Metadata,
    /// The declared part of `spec`.
    #[serde(default)]
    pub spec: Spec,
    /// The declared part of `status`.
    #[serde(default)]
    pub status: Status,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

/// The metadata of an owner of Pods. A change of the owner's status does not change this view, so it triggers no
/// computation.
pub type OwnerView<K> = ObjectView<K>;

impl<K, Spec, Status> SourceType for ObjectView<K, Spec, Status>
where
    K: Resource<DynamicType = (), Scope: 'static> + 'static,
    Spec: DeserializeOwned + Default + Send + Sync + 'static,
    Status: DeserializeOwned + Default + Send + Sync + 'static,
{
    fn api() -> SourceApi {
        let nothing = TypeId::of::<IgnoredAny>();
        let is_metadata = [TypeId::of::<Spec>(), TypeId::of::<Status>()] == [nothing; 2];
        SourceApi { is_metadata, ..SourceApi::of::<K>() }
    }

    fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    fn uid(&self) -> Option<Cow<'_, str>> {
        self.metadata.uid()
    }

    fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.timestamp()
    }

    fn each_label(&self, show: &mut dyn FnMut(&str, &str)) {
        self.metadata.labels.iter().for_each(|(key, value)| show(key, value));
    }
}

/// The metadata of an owner whose kind is known only when an object refers to it.
#[derive(Clone, Debug, Deserialize)]
pub struct AnyOwnerView {
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: Metadata,
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;

    #[test]
    fn a_view_without_spec_and_status_requests_only_metadata() {
        let api = OwnerView::<ReplicaSet>::api();
        assert_eq!((&*api.group, &*api.plural, api.is_metadata), ("apps", "replicasets", true));
        #[derive(Default, Deserialize)]
        struct Status {}
        assert!(!ObjectView::<ReplicaSet, IgnoredAny, Status>::api().is_metadata);
    }
}
