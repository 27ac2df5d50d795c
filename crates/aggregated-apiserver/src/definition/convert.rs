//! Conversion of objects between versions.

use std::error::Error;
use std::fmt;

use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::PrinterColumns;
use crate::error::FieldError;
use crate::kind::Unconvertible;

/// A version of a kind whose objects are converted to and from the objects of another version, the hub.
///
/// A conversion is a pure function of the object: it may be called at any time, any number of times, and on many
/// threads. A version should store data that it cannot express in an annotation: a client that reads an object in one
/// version and writes it back must not lose data of another version. [`check_round_trips`](super::check_round_trips)
/// tests that.
///
/// Annotations are the only metadata that a conversion may change. Fields that kube-apiserver sets stay unchanged, and
/// a different name, namespace or uid or different labels fail the conversion. If the result has only a name, it gets
/// the metadata of the original. The result may use as much memory as a request body. A field that the result contains
/// as null is omitted unless its schema requires it.
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
/// use aggregated_apiserver::{Convert, Stored, Versions};
/// use aggregated_apiserver::versions::ConversionError;
///
/// impl Stored for v1::Herd {
///     fn versions() -> Versions<Self> {
///         Versions::new().version::<v1alpha::Herd>()
///     }
/// }
///
/// impl Convert<v1::Herd> for v1alpha::Herd {
///     fn into_hub(self) -> Result<v1::Herd, ConversionError> {
///         let spec = v1::HerdSpec { heads: self.spec.heads.parse()? };
///         Ok(v1::Herd { metadata: self.metadata, spec })
///     }
///
///     fn from_hub(hub: v1::Herd) -> Result<Self, ConversionError> {
///         let spec = v1alpha::HerdSpec { heads: hub.spec.heads.to_string() };
///         Ok(Self { metadata: hub.metadata, spec })
///     }
/// }
/// ```
pub trait Convert<Hub>:
    Resource<DynamicType = ()> + CustomResourceExt + Serialize + DeserializeOwned + 'static
{
    /// Converts an object of this version to the hub.
    ///
    /// # Errors
    /// The reason why the object cannot be converted. Requests for the object in the other version are then answered
    /// with 500. A request that sent the object is answered with 422 if the error [names a
    /// field](ConversionError::field), and with 500 otherwise.
    fn into_hub(self) -> Result<Hub, ConversionError>;

    /// Converts an object of the hub to this version.
    ///
    /// # Errors
    /// The reason why the object cannot be converted.
    fn from_hub(hub: Hub) -> Result<Self, ConversionError>
    where
        Self: Sized;

    /// Table cells of this version that no JSONPath can express.
    fn printer_columns() -> PrinterColumns<Self>
    where
        Self: Sized,
    {
        PrinterColumns::new()
    }
}

/// The reason why an object cannot be converted. The `?` operator converts every error to it.
#[derive(Debug)]
pub struct ConversionError(Unconvertible);

impl ConversionError {
    /// A failure with this message, which the client receives.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string().into())
    }

    /// A failure of one field whose value the other version cannot express. If a client sent the object, the response
    /// is 422 and names the field; for a stored object it is 500.
    ///
    /// ```
    /// # use aggregated_apiserver::FieldError;
    /// # use aggregated_apiserver::versions::ConversionError;
    /// fn grams(kilograms: f64) -> Result<f64, ConversionError> {
    ///     let grams = kilograms * 1000.0;
    ///     if grams.fract() == 0.0 {
    ///         return Ok(grams);
    ///     }
    ///     let fault = FieldError::invalid("spec.weight", kilograms, "must be whole grams");
    ///     Err(ConversionError::field(fault))
    /// }
    /// assert!(grams(0.0001).is_err());
    /// ```
    pub fn field(fault: FieldError) -> Self {
        Self(Unconvertible::field(fault))
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<ConversionError> for Unconvertible {
    fn from(failure: ConversionError) -> Self {
        failure.0
    }
}

impl<E: Error> From<E> for ConversionError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
