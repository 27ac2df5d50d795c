//! Stored: a kind whose objects the server stores.

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{PrinterColumns, Validation, Versions, Visibility};

/// A kind whose objects the server stores. Every method has a default.
///
/// ```
/// use aggregated_apiserver::Stored;
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Foo", namespaced)]
/// pub struct FooSpec {
///     pub size: i64,
/// }
///
/// impl Stored for Foo {}
/// ```
pub trait Stored:
    Resource<DynamicType = ()> + CustomResourceExt + Serialize + DeserializeOwned + 'static
{
    /// The initial objects of a new, empty store. Each needs a name and, if the kind is namespaced, a namespace. With a
    /// uid that is the same after each restart, objects that they own are not garbage collected.
    fn initial() -> Vec<Self>
    where
        Self: Sized,
    {
        Vec::new()
    }

    /// The other versions in which objects are served, and their conversions. The version of this type is the hub:
    /// objects of each other version are converted to and from this type.
    fn versions() -> Versions<Self>
    where
        Self: Sized,
    {
        Versions::new()
    }

    /// Validation rules that no schema can express.
    fn validation() -> Validation<Self>
    where
        Self: Sized,
    {
        Validation::new()
    }

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
}
