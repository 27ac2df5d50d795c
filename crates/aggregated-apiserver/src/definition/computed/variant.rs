//! Kinds that are computed from several types: each object is that of one source, of one of them.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::{Computation, Computed, Namer, Running};
use crate::cluster::{SourceApi, SourceScope, SourceType, Sources, resource_name};
use crate::definition::kinds::SourceKind;
use crate::definition::lookup::{Asker, Opening, Pool, Related};
use crate::definition::{Cells, Disclosures, Visibility};
use crate::served_kind::SourceResource;
use crate::watch_cache::WatchCache;

/// A kind that is computed from several types: a workload is a Deployment, a StatefulSet or a Job. Each
/// object is computed from one source, by the [`Variant`] for its type. In all else it is as a kind that is
/// [`Computed`] from one type; it is added by [`Kinds::computed_from_several`](crate::definition::Kinds::computed_from_several).
///
/// To list or watch it a user needs the same right on all those types, and to get an object,
/// on the type that its name leads to. It is served as soon as all of them have been listed, but for
/// those that the cluster may do without ([`SourceScope::if_served`]) and does not have, and those that cannot be read
/// (there is no right to, or they do not come in ten seconds): their objects are left out, which warnings and `/readyz`
/// say, until they can be read. If none of the types can be read it is not served. What could be read once is shown on as it was
/// last.
///
/// No two objects have one name. A name belongs to the first of the variants whose [`source_name`](Variant::source_name)
/// leads from it to a source, whether that source is there or not; an object of another one that is called so is not
/// shown, and the log names it. So it does not depend on what comes first, and no object changes into another.
///
/// ```
/// use aggregated_apiserver::{ComputedFromSeveral, Variant};
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::CustomResource;
/// use kube::api::PartialObjectMeta;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// Something that Pods are configured by.
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Setting", namespaced)]
/// pub struct SettingSpec {
///     pub secret: bool,
/// }
///
/// impl ComputedFromSeveral for Setting {
///     type Variants = (Open, Secrets);
/// }
///
/// pub struct Open;
///
/// impl Variant for Open {
///     type Object = Setting;
///     type Source = PartialObjectMeta<ConfigMap>;
///     type Related = ();
///
///     fn compute(map: &Self::Source, (): &()) -> Option<Setting> {
///         let name = map.metadata.name.as_deref()?;
///         Some(Setting::new(&format!("{name}.map"), SettingSpec { secret: false }))
///     }
///
///     fn source_name(name: &str) -> Option<String> {
///         name.strip_suffix(".map").map(str::to_owned)
///     }
/// }
///
/// pub struct Secrets;
///
/// impl Variant for Secrets {
///     type Object = Setting;
///     type Source = PartialObjectMeta<Secret>;
///     type Related = ();
///
///     fn compute(secret: &Self::Source, (): &()) -> Option<Setting> {
///         let name = secret.metadata.name.as_deref()?;
///         Some(Setting::new(&format!("{name}.secret"), SettingSpec { secret: true }))
///     }
///
///     fn source_name(name: &str) -> Option<String> {
///         name.strip_suffix(".secret").map(str::to_owned)
///     }
/// }
/// ```
pub trait ComputedFromSeveral:
    Resource<DynamicType = ()> + CustomResourceExt + Serialize + DeserializeOwned + Send + 'static
{
    /// One [`Variant`] for each type: a tuple of up to six.
    type Variants: Variants<Self>;

    /// Cells of tables that no JSONPath can say.
    fn cells() -> Cells<Self>
    where
        Self: Sized,
    {
        Cells::new()
    }

    /// Which objects each reader sees, among those that rights let it read.
    fn visibility() -> Visibility<Self>
    where
        Self: Sized,
    {
        Visibility::everything()
    }

    /// What all the variants show of what they look up, and to which readers. What is not said needs
    /// the right to all objects of the type, or the request is refused.
    fn disclosures() -> Disclosures {
        Disclosures::new()
    }
}

/// How objects of a kind are computed from one type. What is not said here is said at [`Computed`],
/// which is the only variant of its kind.
pub trait Variant: Send + 'static {
    /// The kind.
    type Object: Resource<DynamicType = ()> + Serialize + DeserializeOwned;
    /// What it is computed from, object by object.
    type Source: SourceType;
    /// What else the computation may look at.
    type Related: Related;

    /// Which sources are read.
    const SCOPE: SourceScope = SourceScope::ALL;
    /// At most so often watchers get an event of an object of which only measurements have changed.
    const MEASURED_AT_MOST_EVERY: Duration = Duration::from_secs(15);
    /// How long a measurement is not told that is not worth it.
    const MEASURED_AT_LATEST: Duration = Duration::from_secs(300);

    /// Computes the object of a source, or none.
    fn compute(source: &Self::Source, related: &Self::Related) -> Option<Self::Object>;

    /// Whether what was computed differs so much from what is shown that it is worth an event.
    fn is_worth_publishing(_shown: &Self::Object, _computed: &Self::Object) -> bool {
        true
    }

    /// The name of the source behind an object of this name, or `None` if no source of this type is:
    /// what two variants are called must differ. What is called as those of an earlier variant are is not shown.
    fn source_name(name: &str) -> Option<String>;
}

/// The only variant of a kind that is computed from one type.
pub struct Only<C>(PhantomData<fn() -> C>);

impl<C: Computed> Variant for Only<C> {
    type Object = C;
    type Source = C::Source;
    type Related = C::Related;

    const SCOPE: SourceScope = C::SCOPE;
    const MEASURED_AT_MOST_EVERY: Duration = C::MEASURED_AT_MOST_EVERY;
    const MEASURED_AT_LATEST: Duration = C::MEASURED_AT_LATEST;

    fn compute(source: &C::Source, related: &C::Related) -> Option<C> {
        C::compute(source, related)
    }

    fn is_worth_publishing(shown: &C, computed: &C) -> bool {
        C::is_worth_publishing(shown, computed)
    }

    fn source_name(name: &str) -> Option<String> {
        C::source_name(name)
    }
}

/// Computations that have begun, and who tells them of changes.
pub struct Opened {
    pub(super) computations: Vec<Box<dyn Running>>,
    pub(super) notify: Arc<Notify>,
    /// What they look up together.
    pool: Pool,
    /// Which names each makes.
    names: Vec<Namer>,
}

impl Opened {
    fn new() -> Self {
        Self {
            computations: Vec::new(),
            notify: Arc::new(Notify::new()),
            pool: Pool::default(),
            names: Vec::new(),
        }
    }

    fn open<V: Variant>(
        &mut self,
        sources: &Sources,
        (cache, narrow): (&Arc<WatchCache>, &Arc<[TypeId]>),
        is_one_of_several: bool,
    ) {
        let asker = Asker(u8::try_from(self.computations.len()).unwrap_or(u8::MAX));
        let opening = Opening { sources, notify: &self.notify, asker, pool: &self.pool };
        let place = (self.names.clone(), is_one_of_several);
        let (cache, narrow) = (Arc::clone(cache), Arc::clone(narrow));
        let computation = Computation::<V>::new(&opening, (cache, narrow), place);
        self.names.push((resource_name::<V::Source>(), V::source_name));
        self.computations.push(Box::new(computation));
    }
}

/// The variants of a kind: a tuple.
pub trait Variants<K>: 'static {
    #[doc(hidden)]
    fn sources() -> Vec<SourceResource>;
    #[doc(hidden)]
    fn watched() -> Vec<SourceKind>;
    #[doc(hidden)]
    fn looked_up() -> Vec<SourceKind>;
    #[doc(hidden)]
    fn open(sources: &Sources, cache: &Arc<WatchCache>, narrow: &Arc<[TypeId]>) -> Opened;
}

/// What callers need rights on.
fn source_of<V: Variant>() -> SourceResource {
    let SourceApi { group, version, plural, is_namespaced, .. } = V::Source::api();
    SourceResource {
        group: group.into_owned(),
        version: version.into_owned(),
        resource: plural.into_owned(),
        namespaced: is_namespaced,
        name_of: V::source_name,
    }
}

macro_rules! variants {
    ($($name:ident)*) => {
        impl<K: 'static, $($name: Variant<Object = K>),*> Variants<K> for ($($name,)*) {
            fn sources() -> Vec<SourceResource> {
                vec![$(source_of::<$name>()),*]
            }

            fn watched() -> Vec<SourceKind> {
                let mut watched = Vec::new();
                $(
                    watched.push(SourceKind::of::<$name::Source>($name::SCOPE));
                    watched.extend($name::Related::kinds());
                )*
                watched
            }

            fn looked_up() -> Vec<SourceKind> {
                let mut looked_up = Vec::new();
                $(looked_up.extend($name::Related::kinds());)*
                looked_up
            }

            fn open(
                sources: &Sources,
                cache: &Arc<WatchCache>,
                narrow: &Arc<[TypeId]>,
            ) -> Opened {
                let mut opened = Opened::new();
                let is_one_of_several = [$(stringify!($name)),*].len() > 1;
                $(opened.open::<$name>(sources, (cache, narrow), is_one_of_several);)*
                opened
            }
        }
    };
}

variants!(A);
variants!(A B);
variants!(A B C);
variants!(A B C D);
variants!(A B C D E);
variants!(A B C D E F);
