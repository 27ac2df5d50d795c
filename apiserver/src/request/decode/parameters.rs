//! The query: parameters by verb, with the words of kube-apiserver's errors.

use std::collections::HashMap;

use crate::error::{ApiError, FieldError, quote};
use crate::verb::{CreateOptions, DeleteOptions, GetOptions};
use crate::write::FieldValidation;

/// Names of field managers are at most this long; as kube-apiserver.
const FIELD_MANAGER_LIMIT: u64 = 128;

/// The query of a request. Unknown parameters are ignored, and of a repeated
/// one the first counts.
#[derive(Debug, Default)]
pub(super) struct Parameters(HashMap<String, String>);

impl Parameters {
    pub(super) fn parse(query: &str) -> Self {
        let mut parameters = HashMap::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
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

    pub(super) fn create_options(&self) -> Result<CreateOptions, ApiError> {
        let mut errors = Vec::new();
        self.check_dry_run(&mut errors);
        let field_validation = match self.filled("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", quote(other), &supported));
                FieldValidation::Warn
            }
        };
        if self.filled("fieldManager").is_some_and(|m| m.len() as u64 > FIELD_MANAGER_LIMIT) {
            errors.push(FieldError::too_long("fieldManager", FIELD_MANAGER_LIMIT));
        }
        let manager = self.filled("fieldManager").unwrap_or_default();
        if let Some((position, odd)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let detail = format!("invalid character U+{:04X} (at position {position})", odd as u32);
            errors.push(FieldError::invalid("fieldManager", quote(manager), &detail));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("CreateOptions", errors));
        }
        self.refuse_dry_run()?;
        Ok(CreateOptions { field_validation })
    }

    pub(super) fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        self.integer("gracePeriodSeconds")?;
        let mut errors = Vec::new();
        self.check_dry_run(&mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("DeleteOptions", errors));
        }
        self.refuse_dry_run()?;
        let orphan = self.flag("orphanDependents");
        check_propagation(self.filled("propagationPolicy"), orphan)?;
        Ok(DeleteOptions {
            uid: self.filled("uid").map(str::to_owned),
            resource_version: self.filled("resourceVersion").map(str::to_owned),
        })
    }

    pub(super) fn filled(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
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

    fn check_dry_run(&self, errors: &mut Vec<FieldError>) {
        if let Some(value) = self.0.get("dryRun").filter(|value| *value != "All") {
            let shown = format!("[{}]", quote(value));
            errors.push(FieldError::not_supported("dryRun", shown, &["All"]));
        }
    }

    fn refuse_dry_run(&self) -> Result<(), ApiError> {
        if self.0.contains_key("dryRun") { Err(no_dry_run()) } else { Ok(()) }
    }
}

/// The answer to a dry run: nothing here can promise to keep nothing.
pub(super) fn no_dry_run() -> ApiError {
    ApiError::bad_request("dryRun is not supported yet; nothing was changed")
}

/// Other policies than Background need finalizers, which are not kept yet.
pub(super) fn check_propagation(
    policy: Option<&str>,
    orphan: Option<bool>,
) -> Result<(), ApiError> {
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        let error = FieldError::invalid("propagationPolicy", quote(policy), detail);
        return Err(ApiError::invalid_options("DeleteOptions", vec![error]));
    }
    match policy {
        None if orphan != Some(true) => Ok(()),
        Some("Background") => Ok(()),
        None | Some("Orphan" | "Foreground") => Err(ApiError::bad_request(format!(
            "propagationPolicy {} is not supported yet, only Background is; nothing was deleted",
            policy.unwrap_or("Orphan")
        ))),
        Some(other) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            let error = FieldError::not_supported("propagationPolicy", quote(other), &supported);
            Err(ApiError::invalid_options("DeleteOptions", vec![error]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(outcome: Result<T, ApiError>) -> String {
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn creations_and_deletions() {
        let create = |query| Parameters::parse(query).create_options();
        assert_eq!(
            create("fieldValidation=Strict").unwrap().field_validation,
            FieldValidation::Strict
        );
        assert_eq!(
            refused(create("fieldValidation=x&dryRun=y")),
            "CreateOptions.meta.k8s.io \"\" is invalid: [dryRun: Unsupported value: [\"y\"]: supported values: \"All\", fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"]"
        );
        assert_eq!(
            refused(create("dryRun=All")),
            "dryRun is not supported yet; nothing was changed"
        );
        let delete = |query| Parameters::parse(query).delete_options();
        assert_eq!(delete("uid=u&propagationPolicy=Background").unwrap().uid.as_deref(), Some("u"));
        assert!(
            refused(delete("propagationPolicy=Foreground"))
                .starts_with("propagationPolicy Foreground is not")
        );
        assert!(
            refused(delete("orphanDependents=true")).starts_with("propagationPolicy Orphan is not")
        );
        assert_eq!(
            refused(delete("propagationPolicy=Background&orphanDependents=true")),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Background\": orphanDependents and deletionPropagation cannot be both set"
        );
        assert!(
            refused(delete("propagationPolicy=x")).contains("supported values: \"Foreground\"")
        );
    }
}
