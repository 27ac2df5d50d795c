//! The parameters of a path, as a Rust type.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as ValueError, MapDeserializer};

use crate::subresource::Error;

/// The values of the parameters of a path, decoded. The type has a field for each parameter of the pattern, or is a map
/// of strings. The fields are strings, or types that are deserialized from strings. A request with a value that cannot be
/// deserialized is rejected with 400.
#[derive(Clone, Copy, Debug)]
pub struct PathParameters<T>(pub T);

/// The names and the values of the parameters of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathValues(pub Vec<(&'static str, String)>);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for PathParameters<T> {
    type Rejection = Error;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Error> {
        let Some(PathValues(values)) = head.extensions.get() else {
            return Err(Error::internal("the request is no request of a path with parameters"));
        };
        let values = values.iter().map(|(name, value)| (*name, value.as_str()));
        let read = T::deserialize(MapDeserializer::<_, ValueError>::new(values));
        read.map(Self).map_err(|error| Error::bad_request(format!("the path is invalid: {error}")))
    }
}
