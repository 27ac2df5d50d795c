//! The query: parameters by verb, with the words of kube-apiserver's errors.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::{ApiError, FieldError, quote};
use crate::object::selector::{FieldSelector, LabelSelector, Selector};
use crate::storage::Revision;
use crate::verb::{CreateOptions, DeleteOptions, GetOptions, ListOptions, WatchOptions};
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

    pub(super) fn list_options(&self, namespaced: bool) -> Result<ListOptions, ApiError> {
        let selector = self.selector(namespaced)?;
        let limit = self.integer("limit")?.unwrap_or_default();
        self.integer("timeoutSeconds")?;
        if self.filled("continue").is_some() {
            return Err(ApiError::bad_request(
                "invalid continue token: this server sends lists whole and hands out no tokens",
            ));
        }
        self.check_match_on_list()?;
        let revision = self.revision("invalid resource version: ")?;
        let exact = match self.filled("resourceVersionMatch") {
            Some("Exact") => true,
            // A limit with a revision and nothing else has always meant that revision.
            None => limit > 0,
            Some(_) => false,
        };
        Ok(ListOptions {
            selector,
            not_older_than: revision.filter(|_| !exact),
            exactly: revision.filter(|_| exact),
        })
    }

    /// The options of a watch, and how long it lasts if the client says so.
    pub(super) fn watch_options(
        &self,
        namespaced: bool,
    ) -> Result<(WatchOptions, Option<Duration>), ApiError> {
        let selector = self.selector(namespaced)?;
        self.integer("limit")?;
        let seconds = self.integer("timeoutSeconds")?.unwrap_or_default();
        self.check_match_on_watch()?;
        let options = WatchOptions { selector, after: self.revision("")? };
        let lasts = match seconds {
            0 => None,
            seconds => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())),
        };
        Ok((options, lasts))
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

    fn filled(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Everything but `0` and `false` is true.
    fn flag(&self, key: &str) -> Option<bool> {
        self.0.get(key).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn integer(&self, key: &str) -> Result<Option<i64>, ApiError> {
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

    /// The revision that is asked for; `0` asks for any. What is none is told
    /// in words that begin differently for lists.
    fn revision(&self, start: &str) -> Result<Option<Revision>, ApiError> {
        let Some(text) = self.filled("resourceVersion") else { return Ok(None) };
        let invalid = |_| {
            let text = quote(text);
            ApiError::bad_request(format!(
                "{start}resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: invalid syntax"
            ))
        };
        let number: u64 = text.parse().map_err(invalid)?;
        Ok(Some(Revision::new(number)).filter(|_| number != 0))
    }

    fn selector(&self, namespaced: bool) -> Result<Selector, ApiError> {
        let labels = LabelSelector::parse(self.filled("labelSelector").unwrap_or_default());
        let fields =
            FieldSelector::parse(self.filled("fieldSelector").unwrap_or_default(), namespaced);
        Ok(Selector {
            labels: labels.map_err(ApiError::bad_request)?,
            fields: fields.map_err(ApiError::bad_request)?,
        })
    }

    fn check_match_on_list(&self) -> Result<(), ApiError> {
        const FIELD: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        if self.0.contains_key("sendInitialEvents") {
            let detail = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden("sendInitialEvents", detail));
        }
        if let Some(given) = self.filled(FIELD) {
            let revision = self.filled("resourceVersion");
            if revision.is_none() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(FIELD, detail));
            }
            match given {
                "NotOlderThan" => {}
                "Exact" if revision == Some("0") => {
                    let detail =
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                    errors.push(FieldError::forbidden(FIELD, detail));
                }
                "Exact" => {}
                other => {
                    let supported = ["Exact", "NotOlderThan", ""];
                    errors.push(FieldError::not_supported(FIELD, quote(other), &supported));
                }
            }
        }
        options_or(errors)
    }

    /// Streaming lists are refused as a server does that has them switched off:
    /// clients then list and watch.
    fn check_match_on_watch(&self) -> Result<(), ApiError> {
        const FIELD: &str = "resourceVersionMatch";
        let mut errors = Vec::new();
        if self.0.contains_key("sendInitialEvents") {
            let detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            errors.push(FieldError::forbidden("sendInitialEvents", detail));
        } else if let Some(given) = self.filled(FIELD) {
            let detail =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
            if given != "NotOlderThan" {
                errors.push(FieldError::not_supported(FIELD, quote(given), &["NotOlderThan"]));
            }
        }
        options_or(errors)
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

fn options_or(errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid_options("ListOptions", errors)) }
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

    fn list(query: &str) -> Result<ListOptions, ApiError> {
        Parameters::parse(query).list_options(true)
    }

    fn watch(query: &str) -> Result<(WatchOptions, Option<Duration>), ApiError> {
        Parameters::parse(query).watch_options(true)
    }

    #[test]
    fn lists() {
        assert_eq!(list("limit=500&resourceVersion=0").unwrap().exactly, None);
        assert_eq!(list("resourceVersion=7").unwrap().not_older_than, Some(Revision::new(7)));
        assert_eq!(list("resourceVersion=7&limit=5").unwrap().exactly, Some(Revision::new(7)));
        let exact = "resourceVersion=7&resourceVersionMatch=Exact";
        assert_eq!(list(exact).unwrap().exactly, Some(Revision::new(7)));
        let rows = [
            ("limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
            ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            (
                "limit=99999999999999999999",
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
            (
                "resourceVersion=abc",
                "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
            ),
            (
                "continue=x",
                "invalid continue token: this server sends lists whole and hands out no tokens",
            ),
            (
                "resourceVersionMatch=Exact",
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                "resourceVersion=0&resourceVersionMatch=Exact",
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            (
                "sendInitialEvents=false",
                "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ),
            ("labelSelector=a,,b", "found ',', expected: identifier after ','"),
            ("fieldSelector=spec.x=1", "field label not supported: spec.x"),
        ];
        for (query, expected) in rows {
            assert_eq!(refused(list(query)), expected, "{query}");
        }
    }

    #[test]
    fn watches() {
        let (options, lasts) = watch("&watch=true&timeoutSeconds=290&timeout=6m56s").unwrap();
        assert_eq!((options.after, lasts), (None, Some(Duration::from_secs(290))));
        assert_eq!(watch("timeoutSeconds=-1").unwrap().1, Some(Duration::ZERO));
        assert_eq!(
            watch("resourceVersion=7&allowWatchBookmarks=true").unwrap().0.after,
            Some(Revision::new(7))
        );
        let streaming =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        assert_eq!(
            refused(watch(streaming)),
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        );
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
