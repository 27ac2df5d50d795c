//! The query of CREATE, UPDATE and PATCH.

use serde_json::json;

use super::parameters::Parameters;
use crate::error::{ApiError, FieldError, quote};
use crate::object::Tree;
use crate::write::{FieldValidation, WriteOptions, check_manager};

impl Parameters {
    pub(super) fn create_options(&self) -> Result<WriteOptions, ApiError> {
        self.write_options("CreateOptions", Vec::new())
    }

    pub(super) fn update_options(&self) -> Result<WriteOptions, ApiError> {
        self.write_options("UpdateOptions", Vec::new())
    }

    pub(super) fn patch_options(&self) -> Result<WriteOptions, ApiError> {
        let mut errors = Vec::new();
        if self.flag("force").is_some() {
            let why = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden("force", why));
        }
        self.write_options("PatchOptions", errors)
    }

    /// Returns the options of an apply patch, and whether it takes ownership of conflicting fields (`force`).
    pub(super) fn apply_options(&self) -> Result<(WriteOptions, bool), ApiError> {
        let mut errors = Vec::new();
        if self.filled("fieldManager").is_none() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        let options = self.write_options("PatchOptions", errors)?;
        Ok((options, self.flag("force").unwrap_or_default()))
    }

    fn write_options(
        &self,
        kind: &str,
        mut errors: Vec<FieldError>,
    ) -> Result<WriteOptions, ApiError> {
        self.check_field_manager(&mut errors);
        let dry_run = self.dry_run(&mut errors);
        let field_validation = self.field_validation(&mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid_options(kind, errors));
        }
        let field_manager = self.filled("fieldManager").unwrap_or_default().to_owned();
        let said = self.said().map(Box::new);
        let audit_id = None;
        Ok(WriteOptions { field_validation, dry_run, field_manager, audit_id, said })
    }

    /// The options in the form that webhooks receive from kube-apiserver.
    fn said(&self) -> Option<Tree> {
        let mut said = Tree::new();
        let dry_runs = self.dry_runs();
        if !dry_runs.is_empty() {
            said.insert("dryRun".to_owned(), json!(dry_runs));
        }
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(value) = self.filled(name) {
                said.insert(name.to_owned(), value.into());
            }
        }
        (!said.is_empty()).then_some(said)
    }

    fn check_field_manager(&self, errors: &mut Vec<FieldError>) {
        let manager = self.filled("fieldManager").unwrap_or_default();
        check_manager(manager, "fieldManager", errors);
    }

    /// Whether the request is a dry run: everything is checked, and nothing is stored.
    pub(super) fn dry_run(&self, errors: &mut Vec<FieldError>) -> bool {
        let given = self.dry_runs();
        if given.iter().any(|one| one != "All") {
            let shown: Vec<String> = given.iter().map(|one| quote(one)).collect();
            let shown = format!("[{}]", shown.join(","));
            errors.push(FieldError::not_supported("dryRun", shown, &["All"]));
        }
        !given.is_empty()
    }

    fn field_validation(&self, errors: &mut Vec<FieldError>) -> FieldValidation {
        match self.filled("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", quote(other), &supported));
                FieldValidation::Warn
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(outcome: Result<WriteOptions, ApiError>) -> String {
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn creations_and_changes() {
        let create = |query| Parameters::parse(query).create_options();
        let options = create("fieldValidation=Strict&dryRun=All").unwrap();
        assert_eq!(options.field_validation, FieldValidation::Strict);
        assert!(options.dry_run);
        assert_eq!(create("fieldManager=x&fieldManager=y").unwrap().field_manager, "x");
        assert!(!create("").unwrap().dry_run);
        assert_eq!(
            refused(create("fieldValidation=x&dryRun=y")),
            "CreateOptions.meta.k8s.io \"\" is invalid: [dryRun: Unsupported value: [\"y\"]: supported values: \"All\", fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"]"
        );
        let patch = |query| Parameters::parse(query).patch_options();
        assert_eq!(
            refused(patch("force=false")),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
        let update = |query| Parameters::parse(query).update_options();
        assert!(refused(update("fieldManager=a%00")).starts_with("UpdateOptions.meta.k8s.io"));
    }
}
