//! Kinds that are computed from several types. Each object is computed from one source, which is of one of these types.

use std::any::TypeId;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::{AnyComputation, CompletionError, Computation, Computed, FanOut, SourceNaming};
use crate::cluster::{SourceApi, SourceOptions, SourceType, Sources, resource_name};
use crate::definition::kind::SourceKind;
use crate::definition::lookup::{ComputationNumber, LookupContext, Related, SharedLookups};
use crate::definition::{FieldPermissions, PrinterColumns, Visibility};
use crate::served_kind::SourceResource;
use crate::watch_cache::WatchCache;

/// A kind that is computed from several types: for example, a workload is a Deployment, a StatefulSet or a Job. Each
/// object is computed from one source, by the [`Variant`] for its type. In all other respects it works like a kind that
/// is [`Computed`] from one type. [`Kinds::computed_from_variants`](crate::definition::Kinds::computed_from_variants)
/// adds it.
///
/// To list or watch the kind, a user needs permission for the same verb on all those types. To get an object, the user
/// needs permission on the type that the object's name leads to. The kind is served as soon as all types have been
/// listed, with two exceptions. A type that is optional ([`SourceOptions::if_served`]) and absent from the cluster is
/// not waited for. A type that cannot be read, because the permission is missing or the list takes longer than ten
/// seconds, is omitted: its objects are missing until it can be read, and warnings and `/readyz` report it. If none of
/// the types can be read, the kind is not served. A type that was read once keeps its last known objects.
///
/// Names are unique. A name belongs to the first variant whose [`source_name`](Variant::source_name) maps it to a
/// source, even if that source does not exist. If another variant computes an object with this name, that object is not
/// served and the log names it. So the result does not depend on the order of events, and no object turns into another
/// one.
///
/// ```
/// use aggregated_apiserver::computed::{ComputedFromVariants, Variant};
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
/// impl ComputedFromVariants for Setting {
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
pub trait ComputedFromVariants:
    Resource<DynamicType = ()> + CustomResourceExt + Serialize + DeserializeOwned + Send + 'static
{
    /// The [`Variant`]s, one for each type: a tuple of up to six.
    type Variants: Variants<Self>;

    /// Table cells that no JSONPath can express.
    fn printer_columns() -> PrinterColumns<Self>
    where
        Self: Sized,
    {
        PrinterColumns::new()
    }

    /// The objects that are visible to each reader, among those that the reader is allowed to read.
    fn visibility() -> Visibility<Self>
    where
        Self: Sized,
    {
        Visibility::everything()
    }

    /// The fields that the variants compute from lookups, and the readers to which they are visible. A type that is not
    /// declared needs permission on all of its objects; without it the request is rejected.
    fn field_permissions() -> FieldPermissions {
        FieldPermissions::new()
    }
}

/// The computation of a kind's objects from one type. [`Computed`] documents the items in detail; it is the only
/// variant of its kind.
pub trait Variant: Send + 'static {
    /// The kind.
    type Object: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + 'static;
    /// The type of the source objects. Each object is computed from one of them.
    type Source: SourceType;
    /// The lookups of the computation.
    type Related: Related;

    /// The sources that are read.
    const OPTIONS: SourceOptions = SourceOptions::ALL;
    /// The shortest time between two events of an object in which only measurements have changed.
    const MEASURED_AT_MOST_EVERY: Duration = Duration::from_secs(15);
    /// The longest delay before a measurement is published that is not worth an event.
    const MEASURED_AT_LATEST: Duration = Duration::from_secs(300);

    /// The number of objects of each source, and their namespaces.
    const FAN_OUT: FanOut = FanOut::One;
    /// The largest number of objects of each source.
    const MAX_OBJECTS: usize = 10_000;
    /// The longest time that the completion of the objects of one source may take; `None`: they are not completed.
    const COMPLETION_TIMEOUT: Option<Duration> = None;

    /// Computes the object of a source, or none.
    fn compute(_source: &Self::Source, _related: &Self::Related) -> Option<Self::Object> {
        None
    }

    /// Computes all objects of a source.
    fn compute_all(source: &Self::Source, related: &Self::Related) -> Vec<Self::Object> {
        Self::compute(source, related).into_iter().collect()
    }

    /// Completes a computed object with what has to be asked elsewhere.
    ///
    /// # Errors
    /// If the object cannot be completed now.
    fn complete(
        object: Self::Object,
    ) -> impl Future<Output = Result<Option<Self::Object>, CompletionError>> + Send {
        ready(Ok(Some(object)))
    }

    /// Whether the computed object differs enough from the published one to send an event.
    fn is_worth_publishing(_shown: &Self::Object, _computed: &Self::Object) -> bool {
        true
    }

    /// The name of the source of an object with this name, or `None` if no source of this type can have such an object.
    /// The names of two variants must differ: an object whose name belongs to an earlier variant is not served.
    fn source_name(name: &str) -> Option<String>;
}

/// The only variant of a kind that is computed from one type.
pub struct Only<C>(PhantomData<fn() -> C>);

impl<C: Computed> Variant for Only<C> {
    type Object = C;
    type Source = C::Source;
    type Related = C::Related;

    const OPTIONS: SourceOptions = C::OPTIONS;
    const MEASURED_AT_MOST_EVERY: Duration = C::MEASURED_AT_MOST_EVERY;
    const MEASURED_AT_LATEST: Duration = C::MEASURED_AT_LATEST;

    const FAN_OUT: FanOut = C::FAN_OUT;
    const MAX_OBJECTS: usize = C::MAX_OBJECTS;
    const COMPLETION_TIMEOUT: Option<Duration> = C::COMPLETION_TIMEOUT;

    fn compute_all(source: &C::Source, related: &C::Related) -> Vec<C> {
        C::compute_all(source, related)
    }

    fn complete(object: C) -> impl Future<Output = Result<Option<C>, CompletionError>> + Send {
        C::complete(object)
    }

    fn is_worth_publishing(shown: &C, computed: &C) -> bool {
        C::is_worth_publishing(shown, computed)
    }

    fn source_name(name: &str) -> Option<String> {
        C::source_name(name)
    }
}

/// Running computations, and the notification of their changes.
pub struct Opened {
    pub(super) computations: Vec<Box<dyn AnyComputation>>,
    pub(super) notify: Arc<Notify>,
    /// The lookups that the computations share.
    shared_lookups: SharedLookups,
    /// The resource and the `source_name` function of each variant.
    names: Vec<SourceNaming>,
}

impl Opened {
    fn new() -> Self {
        Self {
            computations: Vec::new(),
            notify: Arc::new(Notify::new()),
            shared_lookups: SharedLookups::default(),
            names: Vec::new(),
        }
    }

    fn open<V: Variant>(
        &mut self,
        sources: &Sources,
        (cache, own_namespace_only): (&Arc<WatchCache>, &Arc<[TypeId]>),
        is_one_of_several: bool,
    ) {
        let computation =
            ComputationNumber(u8::try_from(self.computations.len()).unwrap_or(u8::MAX));
        let context = LookupContext {
            sources,
            notify: &self.notify,
            computation,
            shared_lookups: &self.shared_lookups,
        };
        let place = (self.names.clone(), is_one_of_several);
        let (cache, own_namespace_only) = (Arc::clone(cache), Arc::clone(own_namespace_only));
        let computation = Computation::<V>::new(&context, (cache, own_namespace_only), place);
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
    fn open(
        sources: &Sources,
        cache: &Arc<WatchCache>,
        own_namespace_only: &Arc<[TypeId]>,
    ) -> Opened;
}

/// The resource on which callers need permissions.
fn source_of<V: Variant>() -> SourceResource {
    let SourceApi { group, version, plural, is_namespaced, .. } = V::Source::api();
    SourceResource {
        group: group.into_owned(),
        version: version.into_owned(),
        resource: plural.into_owned(),
        namespaced: is_namespaced,
        objects_in_any_namespace: V::FAN_OUT == FanOut::AnyNamespace,
        own_namespace: V::OPTIONS.namespace(),
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
                    watched.push(SourceKind::of::<$name::Source>($name::OPTIONS));
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
                own_namespace_only: &Arc<[TypeId]>,
            ) -> Opened {
                let mut opened = Opened::new();
                let is_one_of_several = [$(stringify!($name)),*].len() > 1;
                $(opened.open::<$name>(sources, (cache, own_namespace_only), is_one_of_several);)*
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
