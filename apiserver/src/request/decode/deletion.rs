//! The options of a deletion: in the body, or else in the query.

use bytes::Bytes;
use serde_json::Value;

use super::body::Language;
use super::parameters::Parameters;
use crate::error::{ApiError, FieldError, go_type, no_object, quote};
use crate::object::Tree;
use crate::quota::Account;
use crate::verb::DeleteOptions;
use crate::write::Propagation;

impl Parameters {
    pub(super) fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        let grace_period = self.integer("gracePeriodSeconds")?;
        let orphan = self.flag("orphanDependents");
        let mut errors = Vec::new();
        let propagation = propagation(self.filled("propagationPolicy"), orphan, &mut errors);
        let dry_run = self.dry_run(&mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("DeleteOptions", errors));
        }
        Ok(DeleteOptions {
            uid: self.filled("uid").map(str::to_owned),
            resource_version: self.filled("resourceVersion").map(str::to_owned),
            propagation,
            grace_period,
            tells_of_waiting: orphan == Some(false),
            dry_run,
        })
    }
}

/// The options in the body of a deletion. They void those in the query.
pub(super) async fn in_body(
    language: Language,
    bytes: &Bytes,
    account: &Account,
) -> Result<DeleteOptions, ApiError> {
    let parsed = language.parse(bytes, account, |why: &str| ApiError::bad_request(why)).await?;
    let tree = match parsed.value {
        Value::Null => return Ok(DeleteOptions::default()),
        Value::Object(tree) => tree,
        other => return Err(ApiError::bad_request(no_object(&other))),
    };
    match tree.get("kind") {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) if kind.is_empty() || kind == "DeleteOptions" => {}
        Some(kind) => {
            let version = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            return Err(ApiError::bad_request(format!(
                "no kind {kind} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                quote(version)
            )));
        }
    }
    let dry_run = match tree.get("dryRun") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(list)) if list.iter().all(Value::is_string) => list,
        Some(other) => return Err(mismatch(other, "dryRun", "[]string")),
    };
    let orphan = match tree.get("orphanDependents") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(orphan)) => Some(*orphan),
        Some(other) => return Err(mismatch(other, "orphanDependents", "bool")),
    };
    let grace_period = match tree.get("gracePeriodSeconds") {
        None | Some(Value::Null) => None,
        Some(Value::Number(number)) if number.is_i64() => number.as_i64(),
        Some(other) => return Err(mismatch(other, "gracePeriodSeconds", "int64")),
    };
    let policy = text(&tree, "", "propagationPolicy")?;
    let nothing = Tree::new();
    let preconditions = match tree.get("preconditions") {
        None | Some(Value::Null) => &nothing,
        Some(Value::Object(preconditions)) => preconditions,
        Some(other) => return Err(mismatch(other, "preconditions", "v1.Preconditions")),
    };
    let uid = text(preconditions, "preconditions.", "uid")?;
    let resource_version = text(preconditions, "preconditions.", "resourceVersion")?;
    let mut errors = Vec::new();
    let propagation = propagation(policy.as_deref(), orphan, &mut errors);
    if dry_run.iter().any(|value| value != "All") {
        let shown = Value::from(dry_run.to_vec());
        errors.push(FieldError::not_supported("dryRun", shown, &["All"]));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid_options("DeleteOptions", errors));
    }
    Ok(DeleteOptions {
        uid,
        resource_version,
        propagation,
        grace_period,
        tells_of_waiting: orphan == Some(false),
        dry_run: !dry_run.is_empty(),
    })
}

fn text(tree: &Tree, path: &str, field: &str) -> Result<Option<String>, ApiError> {
    match tree.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(mismatch(other, &format!("{path}{field}"), "string")),
    }
}

fn mismatch(found: &Value, field: &str, expected: &str) -> ApiError {
    let found = go_type(found);
    ApiError::bad_request(format!(
        "json: cannot unmarshal {found} into Go struct field DeleteOptions.{field} of type {expected}"
    ))
}

/// What becomes of what the object owns: there are an old and a new way to say it.
fn propagation(
    policy: Option<&str>,
    orphan: Option<bool>,
    errors: &mut Vec<FieldError>,
) -> Option<Propagation> {
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(FieldError::invalid("propagationPolicy", quote(policy), detail));
    }
    match (policy, orphan) {
        (None, None) => None,
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some(other), _) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            let error = FieldError::not_supported("propagationPolicy", quote(other), &supported);
            errors.push(error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies() {
        let parse = async |text: &'static str| {
            let bytes = Bytes::from_static(text.as_bytes());
            in_body(Language::Json, &bytes, &Account::own())
                .await
                .map_err(|error| error.to_string())
        };
        let collector = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Background"}"#;
        let expected = DeleteOptions {
            uid: Some("u".into()),
            resource_version: Some("7".into()),
            propagation: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        assert_eq!(parse(collector).await.unwrap(), expected);
        for nothing in ["{}", "null", r#"{"gracePeriodSeconds": null}"#, r#"{"dryRun":[]}"#] {
            assert_eq!(parse(nothing).await.unwrap(), DeleteOptions::default());
        }
        assert!(parse(r#"{"dryRun":["All"]}"#).await.unwrap().dry_run);
        let waits = parse(r#"{"orphanDependents":false}"#).await.unwrap();
        assert_eq!(waits.propagation, Some(Propagation::Background));
        assert!(waits.tells_of_waiting);
        for (text, expected) in [
            (r#"{"dryRun":"All"}"#, "json: cannot unmarshal"),
            (r#"{"dryRun":["x"]}"#, "DeleteOptions.meta.k8s.io"),
            (r#"{"propagationPolicy":"foreground"}"#, "DeleteOptions.meta.k8s.io"),
            (r#"{"kind":"Foo"}"#, "no kind \"Foo\" is registered"),
            (
                r#"{"propagationPolicy":"Background","orphanDependents":true}"#,
                "DeleteOptions.meta.k8s.io",
            ),
            (r#"{"preconditions":{"uid":1}}"#, "json: cannot unmarshal"),
            ("[]", "couldn't get version/kind"),
            ("{", "couldn't get version/kind"),
        ] {
            let error = parse(text).await.unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn queries() {
        let parse = |query| Parameters::parse(query).delete_options();
        let refused = |query| parse(query).unwrap_err().to_string();
        assert_eq!(parse("uid=u&propagationPolicy=Background").unwrap().uid.as_deref(), Some("u"));
        let orphan = parse("orphanDependents=true&dryRun=All").unwrap();
        assert_eq!(orphan.propagation, Some(Propagation::Orphan));
        assert!(orphan.dry_run && !orphan.tells_of_waiting);
        assert_eq!(
            refused("propagationPolicy=Background&orphanDependents=true"),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Background\": orphanDependents and deletionPropagation cannot be both set"
        );
        assert!(refused("propagationPolicy=x").contains("supported values: \"Foreground\""));
        assert!(refused("gracePeriodSeconds=x").starts_with("strconv.ParseInt"));
    }
}
