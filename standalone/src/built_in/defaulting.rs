//! Defaulting that several kinds share.

pub(crate) fn fill(field: &mut Option<String>, default: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(default.to_owned());
    }
}

/// What is said once in an old field is the first of several in a new one.
pub(crate) fn agree<T>(
    one: &mut Option<String>,
    several: &mut Option<Vec<T>>,
    text: impl Fn(&T) -> String,
    of: impl Fn(String) -> T,
) {
    let first = several.as_ref().and_then(|several| several.first()).map(&text);
    match (one.clone().filter(|one| !one.is_empty()), first) {
        (Some(one), first) if first.as_ref() != Some(&one) => *several = Some(vec![of(one)]),
        (None, Some(first)) => *one = Some(first),
        _ => {}
    }
}
