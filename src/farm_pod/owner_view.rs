//! What is read of what Pods belong to: its metadata, and of them nothing that its status moves, so that a change of the
//! status touches nothing.

use std::borrow::Cow;
use std::marker::PhantomData;

use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

use super::metadata;

/// The metadata of an object of this kind, with its labels and owners and those annotations that are looked at. It has no
/// resourceVersion.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "")]
pub struct OwnerView<K> {
    /// Its metadata.
    #[serde(default, deserialize_with = "metadata::read_owned")]
    pub metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Resource for OwnerView<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    /// Only metadata is asked for.
    fn metadata_api() -> bool {
        true
    }
}

/// The same of an object whose kind is known only when something refers to it.
#[derive(Clone, Debug, Deserialize)]
pub struct AnyOwnerView {
    /// Its metadata.
    #[serde(default, deserialize_with = "metadata::read_owned")]
    pub metadata: ObjectMeta,
}
