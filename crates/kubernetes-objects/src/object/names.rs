//! Validation of names, labels and their values, with kube-apiserver's messages.
//!
//! Each function returns a message for each problem.

const LABEL_LIMIT: usize = 63;
const SUBDOMAIN_LIMIT: usize = 253;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Checks a DNS-1123 subdomain, such as the name of an object.
pub fn check_dns_1123_subdomain(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_LIMIT {
        faults.push(format!("must be no more than {SUBDOMAIN_LIMIT} characters"));
    }
    if !name.split('.').all(is_dns_label) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// Checks a DNS-1123 label, such as the name of a namespace.
pub fn check_dns_1123_label(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > LABEL_LIMIT {
        faults.push(format!("must be no more than {LABEL_LIMIT} characters"));
    }
    if !is_dns_label(name) {
        let is_dotted = name.split('.').all(is_dns_label);
        faults.push(if is_dotted { "must not contain dots" } else { LABEL }.to_owned());
    }
    faults
}

/// Checks a DNS-1035 label, such as the name of a kind or a version.
pub fn check_dns_1035_label(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > LABEL_LIMIT {
        faults.push(format!("must be no more than {LABEL_LIMIT} characters"));
    }
    if !is_dns_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        faults.push(DNS_1035_LABEL.to_owned());
    }
    faults
}

/// Checks the key of a label or an annotation, or the name of a finalizer: `prefix/name`.
pub fn check_label_key(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.splitn(3, '/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(
                    check_dns_1123_subdomain(prefix).iter().map(|fault| prefix_fault(fault)),
                );
            }
            *name
        }
        _ => return vec![LABEL_KEY.to_owned()],
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LIMIT {
        faults.push(format!("name part must be no more than {LABEL_LIMIT} bytes"));
    }
    if !is_label_text(name) {
        faults.push(NAME_PART.to_owned());
    }
    faults
}

/// The message for an invalid subdomain that is the prefix of a label key. There the length is counted in bytes.
fn prefix_fault(fault: &str) -> String {
    if fault.starts_with("must be no more") {
        format!("prefix part must be no more than {SUBDOMAIN_LIMIT} bytes")
    } else {
        format!("prefix part {fault}")
    }
}

/// Checks the value of a label.
pub fn check_label_value(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LABEL_LIMIT {
        faults.push(format!("must be no more than {LABEL_LIMIT} bytes"));
    }
    if !value.is_empty() && !is_label_text(value) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

/// Checks a name that is part of a URL path. It is not `.` or `..`, and contains neither `/` nor `%`.
pub fn check_path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    check_path_segment_prefix(name)
}

/// Checks a prefix of a name that is part of a URL path.
pub fn check_path_segment_prefix(prefix: &str) -> Vec<String> {
    let held = ['/', '%'].into_iter().filter(|&held| prefix.contains(held));
    held.map(|held| format!("may not contain '{held}'")).collect()
}

fn is_dns_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    label.bytes().all(|byte| inner(byte) || byte == b'-')
        && label.bytes().next().is_some_and(inner)
        && label.bytes().last().is_some_and(inner)
}

fn is_label_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().last().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains() {
        for good in ["a", "a-1", "a.b", "0", &"a".repeat(253)] {
            assert!(check_dns_1123_subdomain(good).is_empty(), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "a/b", "é"] {
            assert_eq!(check_dns_1123_subdomain(bad), [SUBDOMAIN], "{bad}");
        }
        assert_eq!(
            check_dns_1123_subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
    }

    #[test]
    fn label_keys() {
        let rows: [(&str, Vec<String>); 6] = [
            ("app", vec![]),
            ("example.com/App_1", vec![]),
            ("/app", vec!["prefix part must be non-empty".into()]),
            ("a/b/c", vec![LABEL_KEY.into()]),
            ("", vec!["name part must be non-empty".into(), NAME_PART.into()]),
            ("E/a", vec![format!("prefix part {SUBDOMAIN}")]),
        ];
        for (key, expected) in rows {
            assert_eq!(check_label_key(key), expected, "{key}");
        }
        let long = format!("{}/a", "a".repeat(254));
        assert_eq!(check_label_key(&long), ["prefix part must be no more than 253 bytes"]);
    }

    #[test]
    fn label_values() {
        assert!(check_label_value("").is_empty());
        assert!(check_label_value("A.b_c-1").is_empty());
        assert_eq!(check_label_value("-a"), [LABEL_VALUE]);
        assert_eq!(check_label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn path_segments() {
        assert!(check_path_segment("a").is_empty());
        assert_eq!(check_path_segment(".."), ["may not be '..'"]);
        assert_eq!(check_path_segment("a%/b"), ["may not contain '/'", "may not contain '%'"]);
    }
}
