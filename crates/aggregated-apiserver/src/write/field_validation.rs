//! Field validation: the treatment of unknown and duplicate fields.

use crate::codec::REPEATED_KEYS;

/// The `fieldValidation` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// The fields are dropped silently.
    Ignore,
    /// The fields are dropped, with a `Warning` header each.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

/// Returns the warnings: the messages in `problems`, then one about each unknown field.
///
/// # Errors
/// All problems in one message, under `Strict`.
pub(super) fn report(
    field_validation: FieldValidation,
    mut problems: Vec<String>,
    unknown: Vec<String>,
) -> Result<Vec<String>, String> {
    problems.extend(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")));
    match field_validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !problems.is_empty() => Err(problems.join(", ")),
        FieldValidation::Warn | FieldValidation::Strict => Ok(warnings(problems)),
    }
}

/// Splits the message of the YAML parser about repeated keys into one warning for each key.
fn warnings(problems: Vec<String>) -> Vec<String> {
    let mut warnings = Vec::with_capacity(problems.len());
    for problem in problems {
        match problem.strip_prefix(REPEATED_KEYS) {
            Some(lines) => warnings.extend(lines.lines().map(|line| line.trim().to_owned())),
            None => warnings.push(problem),
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_yaml_keys_are_one_error_or_several_warnings() {
        let problems = || vec![format!("{REPEATED_KEYS}line 1: x\n  line 2: y")];
        let unknown = || vec!["spec.z".to_owned()];
        let warnings = report(FieldValidation::Warn, problems(), unknown()).unwrap();
        assert_eq!(warnings, ["line 1: x", "line 2: y", "unknown field \"spec.z\""]);
        let error = report(FieldValidation::Strict, problems(), unknown()).unwrap_err();
        let expected =
            "yaml: unmarshal errors:\n  line 1: x\n  line 2: y, unknown field \"spec.z\"";
        assert_eq!(error, expected);
        assert_eq!(report(FieldValidation::Ignore, problems(), unknown()).unwrap(), [""; 0]);
    }
}
