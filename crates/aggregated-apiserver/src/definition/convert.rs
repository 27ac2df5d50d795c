//! Convert: how objects of one version become those of another.

use std::error::Error;
use std::fmt;

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Cells;
use crate::error::FieldError;
use crate::kind::Unconvertible;

/// A version of a kind whose objects are converted to and from those of another one, the hub.
///
/// A conversion is a pure function of the object: it may be called at any time, any number of times, and
/// on many threads. What one version cannot say should be kept by it all the same, in an annotation: a
/// client that reads an object in one version and writes it back must not lose what another version
/// says. [`check_round_trips`](super::check_round_trips) tests that.
///
/// Annotations are all that it may change of the metadata: kube-apiserver's own fields stay as they are,
/// and another name, namespace, uid or other labels fail the conversion. An object that is made with nothing but a
/// name gets the metadata of the other one. What is made may take as much memory as what is sent, and what it
/// writes as null is left out where its schema does not demand it.
///
/// ```
/// # mod v1 {
/// #     use kube::CustomResource;
/// #     use schemars::JsonSchema;
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "example.com", version = "v1", kind = "Herd", namespaced)]
/// #     pub struct HerdSpec { pub heads: u32 }
/// # }
/// # mod v1alpha {
/// #     use kube::CustomResource;
/// #     use schemars::JsonSchema;
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #     #[kube(group = "example.com", version = "v1alpha", kind = "Herd", namespaced)]
/// #     pub struct HerdSpec { pub heads: String }
/// # }
/// use aggregated_apiserver::{ConversionFailure, Convert, Stored, Versions};
///
/// impl Stored for v1::Herd {
///     fn versions() -> Versions<Self> {
///         Versions::new().version::<v1alpha::Herd>()
///     }
/// }
///
/// impl Convert<v1::Herd> for v1alpha::Herd {
///     fn into_hub(self) -> Result<v1::Herd, ConversionFailure> {
///         let spec = v1::HerdSpec { heads: self.spec.heads.parse()? };
///         Ok(v1::Herd { metadata: self.metadata, spec })
///     }
///
///     fn from_hub(hub: v1::Herd) -> Result<Self, ConversionFailure> {
///         let spec = v1alpha::HerdSpec { heads: hub.spec.heads.to_string() };
///         Ok(Self { metadata: hub.metadata, spec })
///     }
/// }
/// ```
pub trait Convert<Hub>:
    Resource<DynamicType = ()> + CustomResourceExt + Serialize + DeserializeOwned + 'static
{
    /// An object of this version as the hub has it.
    ///
    /// # Errors
    /// Why there is none. Requests for the object in the other version are answered with 500 then; one that has
    /// sent the object, with 422 if the failure [names a field](ConversionFailure::field).
    fn into_hub(self) -> Result<Hub, ConversionFailure>;

    /// An object of the hub in this version.
    ///
    /// # Errors
    /// Why there is none.
    fn from_hub(hub: Hub) -> Result<Self, ConversionFailure>
    where
        Self: Sized;

    /// Cells of tables of this version that no JSONPath can say.
    fn cells() -> Cells<Self>
    where
        Self: Sized,
    {
        Cells::new()
    }
}

/// Why an object cannot be converted. Every error becomes one by `?`.
#[derive(Debug)]
pub struct ConversionFailure(Unconvertible);

impl ConversionFailure {
    /// A failure for this reason, which is told to the client.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string().into())
    }

    /// A failure of one field, whose value the other version cannot say. Where a client has sent it, that is
    /// answered with 422, which names the field; of an object that is kept, with 500.
    ///
    /// ```
    /// # use aggregated_apiserver::{ConversionFailure, FieldError};
    /// fn grams(kilograms: f64) -> Result<f64, ConversionFailure> {
    ///     let grams = kilograms * 1000.0;
    ///     if grams.fract() == 0.0 {
    ///         return Ok(grams);
    ///     }
    ///     let fault = FieldError::invalid("spec.weight", kilograms, "must be whole grams");
    ///     Err(ConversionFailure::field(fault))
    /// }
    /// assert!(grams(0.0001).is_err());
    /// ```
    pub fn field(fault: FieldError) -> Self {
        Self(Unconvertible::field(fault))
    }
}

impl fmt::Display for ConversionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<ConversionFailure> for Unconvertible {
    fn from(failure: ConversionFailure) -> Self {
        failure.0
    }
}

impl<E: Error> From<E> for ConversionFailure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
