//! What is read of an object of any kind: its metadata, and of the rest what a view says.

use std::any::TypeId;
use std::borrow::Cow;
use std::marker::PhantomData;

use aggregated_apiserver::{SourceApi, SourceType};
use jiff::Timestamp;
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::metadata::Metadata;

/// What is read of an object of this kind: its metadata in little room, and what is wanted and how it is as far as that is of
/// interest. Where neither is, only metadata is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(bound = "Spec: Deserialize<'de> + Default, Status: Deserialize<'de> + Default")]
pub struct ObjectView<K, Spec = IgnoredAny, Status = IgnoredAny> {
    /// Its metadata.
    #[serde(default)]
    pub metadata: Metadata,
    /// What is wanted.
    #[serde(default)]
    pub spec: Spec,
    /// How it is.
    #[serde(default)]
    pub status: Status,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

/// What is read of what Pods belong to: of its metadata nothing that its status moves, so that a change of the status
/// touches nothing.
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

/// The same of an object whose kind is known only when something refers to it.
#[derive(Clone, Debug, Deserialize)]
pub struct AnyOwnerView {
    /// Its metadata.
    #[serde(default)]
    pub metadata: Metadata,
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;

    #[test]
    fn only_metadata_is_asked_for_where_nothing_else_is_read() {
        let api = OwnerView::<ReplicaSet>::api();
        assert_eq!((&*api.group, &*api.plural, api.is_metadata), ("apps", "replicasets", true));
        #[derive(Default, Deserialize)]
        struct Status {}
        assert!(!ObjectView::<ReplicaSet, IgnoredAny, Status>::api().is_metadata);
    }
}
