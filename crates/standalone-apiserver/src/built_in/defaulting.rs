//! Defaulting that several kinds share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether an object is being created. In an update, the object has a resourceVersion when defaults are set, even if
/// the request has none.
pub(crate) fn is_new(metadata: &ObjectMeta) -> bool {
    metadata.resource_version.is_none()
}

/// Sets a string that is missing or empty.
pub(crate) fn set_default(field: &mut Option<String>, default: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(default.to_owned());
    }
}

/// Sets a string that is missing.
pub(crate) fn set_missing(field: &mut Option<String>, default: &str) {
    field.get_or_insert_with(|| default.to_owned());
}

/// Keeps a field consistent with the first element of its plural, for example `podIP` and `podIPs`. If both are set and
/// differ, the singular takes precedence.
pub(crate) fn sync_with_list<T>(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_string_is_replaced_by_the_default() {
        let filled = |mut field: Option<String>| {
            set_default(&mut field, "b");
            field.unwrap()
        };
        assert_eq!(filled(None), "b");
        assert_eq!(filled(Some(String::new())), "b");
        assert_eq!(filled(Some("a".to_owned())), "a");
    }

    #[test]
    fn a_singular_field_and_the_first_list_element_are_synced() {
        let text = |text: &str| text.to_owned();
        for (one, several, expected) in [
            (None, None, (None, None)),
            (Some("a"), None, (Some("a"), Some(vec!["a"]))),
            (None, Some(vec!["a", "b"]), (Some("a"), Some(vec!["a", "b"]))),
            (Some("a"), Some(vec!["a", "b"]), (Some("a"), Some(vec!["a", "b"]))),
            (Some("c"), Some(vec!["a", "b"]), (Some("c"), Some(vec!["c"]))),
            (Some(""), Some(vec!["a"]), (Some("a"), Some(vec!["a"]))),
        ] {
            let mut one = one.map(text);
            let mut several = several.map(|all| all.into_iter().map(text).collect::<Vec<_>>());
            sync_with_list(&mut one, &mut several, Clone::clone, |text| text);
            let several = several.as_ref().map(|all| all.iter().map(String::as_str).collect());
            assert_eq!((one.as_deref(), several), expected);
        }
    }
}
