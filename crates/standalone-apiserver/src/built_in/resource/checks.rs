//! Names, lists and labels that several kinds of the group have.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::names;
use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration};

use crate::built_in::checks::{FieldErrors, check_one_of, check_with, quote};
use crate::built_in::core::persistent_volume::check_driver_name;

const LONGEST_POOL_NAME: usize = 253;
const LONGEST_IDENTIFIER: usize = 32;
const BINDING_CONDITIONS: usize = 4;

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";

/// Checks the elements of a list, unless the list is longer than `most`.
pub(super) fn check_each<T>(
    list: Option<&Vec<T>>,
    most: usize,
    at: &str,
    faults: &mut FieldErrors,
    mut check: impl FnMut(&T, &str, &mut FieldErrors),
) {
    let list = list.map(Vec::as_slice).unwrap_or_default();
    if list.len() > most {
        return faults.push(FieldError::too_many(at, list.len(), most as u64));
    }
    for (index, item) in list.iter().enumerate() {
        check(item, &format!("{at}[{index}]"), faults);
    }
}

/// Same as [`check_each`] for a list without duplicates. `key` returns the key of an element as JSON.
pub(super) fn check_set<T>(
    list: Option<&Vec<T>>,
    most: usize,
    at: &str,
    faults: &mut FieldErrors,
    key: impl Fn(&T) -> String,
    check: impl FnMut(&T, &str, &mut FieldErrors),
) {
    check_each(list, most, at, faults, check);
    let list = list.map(Vec::as_slice).unwrap_or_default();
    let mut keys = BTreeSet::new();
    for (index, item) in list.iter().enumerate().filter(|_| list.len() <= most) {
        let key = key(item);
        if keys.contains(&key) {
            faults.push(FieldError::duplicate(format!("{at}[{index}]"), key));
        } else {
            keys.insert(key);
        }
    }
}

/// Checks a label of a domain.
pub(super) fn check_label(value: &str, at: &str, faults: &mut FieldErrors) {
    check_with(at, value, names::check_dns_1123_label, faults);
}

/// Checks the name of a pool: domains separated by slashes.
pub(super) fn check_pool_name(name: &str, at: &str, faults: &mut FieldErrors) {
    if name.is_empty() {
        return faults.push(FieldError::required(at, ""));
    }
    if name.len() > LONGEST_POOL_NAME {
        faults.push(FieldError::too_long(at, LONGEST_POOL_NAME as u64));
    }
    for part in name.split('/') {
        check_with(at, part, names::check_dns_1123_subdomain, faults);
    }
}

/// Checks a name of an attribute or a capacity, which may have a domain.
pub(super) fn check_qualified_name(name: &str, at: &str, faults: &mut FieldErrors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [name] => check_identifier(name, at, faults),
        [domain, name] => {
            if domain.is_empty() {
                faults.push(FieldError::invalid(at, quote(""), "the domain must not be empty"));
            } else {
                check_driver_name(at, domain, faults);
            }
            if name.is_empty() {
                faults.push(FieldError::invalid(at, quote(""), "the name must not be empty"));
            } else {
                check_identifier(name, at, faults);
            }
        }
        // kube-apiserver accepts names with several slashes.
        _ => {}
    }
}

/// Checks a name that must have a domain.
pub(super) fn check_fully_qualified_name(name: &str, at: &str, faults: &mut FieldErrors) {
    check_qualified_name(name, at, faults);
    if !name.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        faults.push(FieldError::invalid(at, quote(name), why));
    }
}

fn check_identifier(name: &str, at: &str, faults: &mut FieldErrors) {
    if name.len() > LONGEST_IDENTIFIER {
        faults.push(FieldError::too_long(at, LONGEST_IDENTIFIER as u64));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts_well = !name.starts_with(|c: char| c.is_ascii_digit());
    if name.is_empty() || !starts_well || !name.chars().all(is_allowed) {
        faults.push(FieldError::invalid(at, quote(name), IDENTIFIER));
    }
}

/// Checks that a uid is a UUID in its normal form.
pub(super) fn check_uid(uid: &str, at: &str, faults: &mut FieldErrors) {
    if let Some(why) = error_of_uuid(uid) {
        let why = format!("error validating uid: {why}");
        faults.push(FieldError::invalid(at, quote(uid), &why));
    } else if uid.len() != 36 || uid != uid.to_lowercase() {
        let why = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        faults.push(FieldError::invalid(at, quote(uid), why));
    }
}

/// The error of a UUID in any of its forms, in the words of Go's parser.
fn error_of_uuid(text: &str) -> Option<String> {
    const FORMAT: &str = "invalid UUID format";
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_plain = |text: &str| {
        let lengths: Vec<usize> = text.split('-').map(str::len).collect();
        lengths == [8, 4, 4, 4, 12] && text.split('-').all(is_hex)
    };
    let plain = match text.len() {
        36 => Some(text),
        45 => match text.split_at_checked(9) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case("urn:uuid:") => Some(rest),
            Some((prefix, _)) => return Some(format!("invalid urn prefix: {}", quote(prefix))),
            None => None,
        },
        38 => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(inner) => Some(inner),
            None => return Some("invalid bracketed UUID format".to_owned()),
        },
        32 => return (!is_hex(text)).then(|| FORMAT.to_owned()),
        length => return Some(format!("invalid UUID length: {length}")),
    };
    (!plain.is_some_and(is_plain)).then(|| FORMAT.to_owned())
}

/// Checks the toleration of a taint of devices.
pub(super) fn check_toleration(one: &DeviceToleration, at: &str, faults: &mut FieldErrors) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, value) = (text(&one.key), text(&one.value));
    if !key.is_empty() {
        check_with(&format!("{at}.key"), &key, names::check_label_key, faults);
    }
    let at_value = format!("{at}.value");
    match text(&one.operator).as_str() {
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let why = "must be empty for operator `Exists`";
            faults.push(FieldError::invalid(at_value, quote(&value), why));
        }
        "Equal" => check_with(&at_value, &value, names::check_label_value, faults),
        "" => faults.push(FieldError::required(format!("{at}.operator"), "")),
        other => {
            let at = format!("{at}.operator");
            faults.push(FieldError::not_supported(at, quote(other), &["Equal", "Exists"]));
        }
    }
    let effect = one.effect.as_ref().filter(|effect| !effect.is_empty());
    check_one_of(format!("{at}.effect"), effect, &EFFECTS, faults);
}

/// Checks a taint of a device.
pub(super) fn check_taint(taint: &DeviceTaint, at: &str, faults: &mut FieldErrors) {
    check_with(&format!("{at}.key"), &taint.key, names::check_label_key, faults);
    if let Some(value) = taint.value.as_ref().filter(|value| !value.is_empty()) {
        check_with(&format!("{at}.value"), value, names::check_label_value, faults);
    }
    let at = format!("{at}.effect");
    match taint.effect.as_str() {
        "" => faults.push(FieldError::required(at, "")),
        _ => check_one_of(at, Some(&taint.effect), &EFFECTS, faults),
    }
}

/// Checks the conditions on which a Pod with a device is bound, and those on which its binding fails.
pub(super) fn check_binding(
    conditions: Option<&Vec<String>>,
    failures: Option<&Vec<String>>,
    at: &str,
    faults: &mut FieldErrors,
) {
    let check_key = |key: &String, at: &str, faults: &mut FieldErrors| {
        check_with(at, key, names::check_label_key, faults);
    };
    let [at_conditions, at_failures] =
        ["bindingConditions", "bindingFailureConditions"].map(|field| format!("{at}.{field}"));
    check_each(conditions, BINDING_CONDITIONS, &at_conditions, faults, check_key);
    check_each(failures, BINDING_CONDITIONS, &at_failures, faults, check_key);
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    let failures = failures.map(Vec::as_slice).unwrap_or_default();
    for (index, one) in conditions.iter().enumerate() {
        if conditions[..index].contains(one) {
            faults.push(FieldError::duplicate(format!("{at_conditions}[{index}]"), quote(one)));
        }
    }
    for (index, one) in failures.iter().enumerate() {
        let at = format!("{at_failures}[{index}]");
        if failures[..index].contains(one) {
            faults.push(FieldError::duplicate(&*at, quote(one)));
        }
        if conditions.contains(one) {
            let why = "bindingFailureConditions must not overlap with bindingConditions";
            faults.push(FieldError::invalid(at, quote(one), why));
        }
    }
    if conditions.is_empty() && !failures.is_empty() {
        let why = "bindingConditions are required to use bindingFailureConditions";
        faults.push(FieldError::invalid(at_conditions, "null", why));
    } else if failures.is_empty() && !conditions.is_empty() {
        let why = "bindingFailureConditions are required to use bindingConditions";
        faults.push(FieldError::invalid(at_failures, "null", why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::texts;

    #[test]
    fn uuids_are_read_as_in_go() {
        const VALID: &str = "0a1b2c3d-0000-4000-8000-000000000000";
        for (text, expected) in [
            (VALID.to_owned(), None),
            (VALID.replace('-', ""), None),
            (format!("{{{VALID}}}"), None),
            (format!("urn:uuid:{VALID}"), None),
            ("x".to_owned(), Some("invalid UUID length: 1")),
            ("x".repeat(36), Some("invalid UUID format")),
            ("x".repeat(38), Some("invalid bracketed UUID format")),
            ("x".repeat(45), Some("invalid urn prefix: \"xxxxxxxxx\"")),
        ] {
            assert_eq!(error_of_uuid(&text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn qualified_names_are_checked() {
        for (name, count) in
            [("a", 0), ("a.b/c_1", 0), ("1a", 1), ("/a", 1), ("a/", 1), ("a/b/c", 0)]
        {
            let mut faults = Vec::new();
            check_qualified_name(name, "n", &mut faults);
            assert_eq!(faults.len(), count, "{name}: {:?}", texts(&faults));
        }
    }
}
