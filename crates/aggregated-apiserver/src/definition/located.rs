//! Types that are read from trees.

use serde::Deserializer;
use serde::de::DeserializeOwned;
use serde_json::Error;

/// Reads a type, or says which field does not fit it. Where it fits, which is nearly always, nobody keeps track of fields:
/// that costs more than reading them.
///
/// # Errors
/// What does not fit, and where.
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
    fn what_does_not_fit_is_named() {
        let read = |value| read::<Outer, _>(&value).map_err(|error| error.to_string());
        assert_eq!(read(json!({"inner": [1, 2]})), Ok(Outer { inner: vec![1, 2] }));
        let why = "inner[1]: invalid value: integer `300`, expected u8";
        assert_eq!(read(json!({"inner": [1, 300]})), Err(why.to_owned()));
    }
}
