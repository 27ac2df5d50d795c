//! The query parameters by verb, with kube-apiserver's error messages.

use std::collections::HashMap;

use crate::error::{ApiError, quote};
use crate::verb::GetOptions;

/// The query of a request. Unknown parameters are ignored. The first value of a repeated parameter counts, except for
/// `dryRun`.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    first: HashMap<String, String>,
    dry_run: Vec<String>,
}

impl Parameters {
    pub(super) fn parse(query: &str) -> Self {
        let mut parameters = Self::default();
        for (key, value) in super::super::query::pairs(query) {
            if key == "dryRun" {
                parameters.dry_run.push(value.clone().into_owned());
            }
            parameters.first.entry(key.into_owned()).or_insert_with(|| value.into_owned());
        }
        parameters
    }

    pub(super) fn get_options(&self) -> Result<GetOptions, ApiError> {
        if self.flag("export") == Some(true) {
            let message = "the export parameter, deprecated since v1.14, is no longer supported";
            return Err(ApiError::bad_request(message));
        }
        Ok(GetOptions { freshness: self.freshness("")?, viewer: None, redaction: None })
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.first.get(key).map(String::as_str)
    }

    /// All values of `dryRun`.
    pub(super) fn dry_runs(&self) -> &[String] {
        &self.dry_run
    }

    pub(super) fn filled(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// Every value except `0` and `false` is true.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.first.get(key).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.first.get(key) else { return Ok(None) };
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
