//! The options of a deletion, in the body or in the query.

use bytes::Bytes;
use serde_json::Value;

use super::body::BodyFormat;
use super::parameters::Parameters;
use crate::error::{ApiError, no_object, quote};
use crate::quota::Account;
use crate::verb::{DeleteOptions, propagation};

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
            answers_accepted: orphan == Some(false),
            dry_run,
        })
    }
}

/// Returns the options in the body of a deletion. They replace those in the query.
pub(super) async fn in_body(
    format: BodyFormat,
    bytes: &Bytes,
    account: &Account,
) -> Result<DeleteOptions, ApiError> {
    let parsed = format.parse(bytes, account, |why: &str| ApiError::bad_request(why)).await?;
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
    DeleteOptions::from_tree(&tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Propagation;

    #[tokio::test]
    async fn bodies() {
        let parse = async |text: &'static str| {
            let bytes = Bytes::from_static(text.as_bytes());
            in_body(BodyFormat::Json, &bytes, &Account::own())
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
        assert!(waits.answers_accepted);
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
        assert!(orphan.dry_run && !orphan.answers_accepted);
        assert_eq!(
            refused("propagationPolicy=Background&orphanDependents=true"),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Background\": orphanDependents and deletionPropagation cannot be both set"
        );
        assert!(refused("propagationPolicy=x").contains("supported values: \"Foreground\""));
        assert!(refused("gracePeriodSeconds=x").starts_with("strconv.ParseInt"));
    }
}
