//! Deserialization with errors that name the invalid field.

use serde::Deserializer;
use serde::de::DeserializeOwned;
use serde_json::Error;

/// Deserializes a type. The error names the field that does not fit. Fields are tracked only in a second attempt after
/// a failure, because tracking costs more than deserializing and failures are rare.
///
/// # Errors
/// The invalid field, and why it does not fit.
pub(super) fn read<'de, T, D>(from: D) -> Result<T, serde_path_to_error::Error<Error>>
where
    T: DeserializeOwned,
    D: Deserializer<'de, Error = Error> + Copy,
{
    T::deserialize(from).or_else(|_| serde_path_to_error::deserialize(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Outer {
        inner: Vec<u8>,
    }

    #[test]
    fn deserialization_errors_name_the_invalid_field() {
        let read = |value| read::<Outer, _>(&value).map_err(|error| error.to_string());
        assert_eq!(read(json!({"inner": [1, 2]})), Ok(Outer { inner: vec![1, 2] }));
        let why = "inner[1]: invalid value: integer `300`, expected u8";
        assert_eq!(read(json!({"inner": [1, 300]})), Err(why.to_owned()));
    }
}
