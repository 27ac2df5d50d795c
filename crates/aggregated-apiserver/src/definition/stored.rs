//! Stored: a kind whose objects the server keeps.

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Cells, Rules, Versions, Visibility};

/// A kind whose objects the server keeps. Every method has a default.
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
    /// Objects that a new, empty store begins with. Each needs a name and, if
    /// the kind is namespaced, a namespace; a uid that does not change over
    /// restarts keeps what they own from being collected as garbage.
    fn initial() -> Vec<Self>
    where
        Self: Sized,
    {
        Vec::new()
    }

    /// The other versions in which its objects are served, and how they are converted. The version of
    /// this type is the hub: objects of every other one become this type, and are made of it.
    fn versions() -> Versions<Self>
    where
        Self: Sized,
    {
        Versions::new()
    }

    /// Rules that no schema can say.
    fn rules() -> Rules<Self>
    where
        Self: Sized,
    {
        Rules::new()
    }

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
}
