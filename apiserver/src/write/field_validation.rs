//! What happens to members that the schema does not know, and to those given twice.

/// What happens to members that are unknown or given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped, with a `Warning` header each.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

/// What is said about members that were unknown or given twice: warnings, or
/// under `Strict` the error.
pub(super) fn report(
    field_validation: FieldValidation,
    duplicates: Vec<String>,
    unknown: Vec<String>,
) -> Result<Vec<String>, String> {
    let duplicates = duplicates.into_iter().map(|path| format!("duplicate field \"{path}\""));
    report_problems(field_validation, duplicates.collect(), unknown)
}

/// The same behind problems that have words already.
pub(super) fn report_problems(
    field_validation: FieldValidation,
    mut problems: Vec<String>,
    unknown: Vec<String>,
) -> Result<Vec<String>, String> {
    problems.extend(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")));
    match field_validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !problems.is_empty() => Err(problems.join(", ")),
        FieldValidation::Warn | FieldValidation::Strict => Ok(problems),
    }
}
