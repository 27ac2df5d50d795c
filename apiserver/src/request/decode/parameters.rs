//! The query: parameters by verb, with the words of kube-apiserver's errors.

use std::collections::HashMap;

use crate::error::{ApiError, quote};
use crate::verb::GetOptions;

/// The query of a request. Unknown parameters are ignored, and of a repeated
/// one the first counts.
#[derive(Debug, Default)]
pub(super) struct Parameters(HashMap<String, String>);

impl Parameters {
    pub(super) fn parse(query: &str) -> Self {
        let mut parameters = HashMap::new();
        for (key, value) in super::super::query::pairs(query) {
            parameters.entry(key.into_owned()).or_insert_with(|| value.into_owned());
        }
        Self(parameters)
    }

    pub(super) fn get_options(&self) -> Result<GetOptions, ApiError> {
        if self.flag("export") == Some(true) {
            let message = "the export parameter, deprecated since v1.14, is no longer supported";
            return Err(ApiError::bad_request(message));
        }
        Ok(GetOptions { not_older_than: self.revision("")? })
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub(super) fn filled(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// Everything but `0` and `false` is true.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.0.get(key).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.0.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            let why = match error.kind() {
                PosOverflow | NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quote(text)))
        })
    }
}
