//! The named formats of strings.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Extension, Native, url};
use crate::moment::Moment;
use crate::value::{Failure, Value};

/// A named format, as an index in `FORMATS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedFormat(usize);

/// The function, the name, and the length of the pattern of each format, for the computation of costs.
const FORMATS: [(&str, &str, u64); 13] = [
    ("dns1123Label", "DNS1123Label", 30),
    ("dns1123Subdomain", "DNS1123Subdomain", 60),
    ("dns1035Label", "DNS1035Label", 30),
    ("qualifiedName", "QualifiedName", 60),
    ("dns1123LabelPrefix", "DNS1123LabelPrefix", 30),
    ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60),
    ("dns1035LabelPrefix", "DNS1035LabelPrefix", 30),
    ("labelValue", "LabelValue", 40),
    ("uri", "URI", URI),
    ("uuid", "uuid", UUID),
    ("byte", "byte", BYTE),
    ("date", "date", DATE_TIME),
    ("datetime", "datetime", DATE_TIME),
];
const URI: u64 = 1_117;
const UUID: u64 = 71;
const BYTE: u64 = 84;
const DATE_TIME: u64 = 72;

impl NamedFormat {
    fn of(name: &str) -> Option<Self> {
        FORMATS.iter().position(|(known, _, _)| *known == name).map(Self)
    }

    pub(crate) fn name(self) -> &'static str {
        FORMATS[self.0].1
    }

    pub(crate) fn longest_pattern(self) -> u64 {
        FORMATS[self.0].2
    }
}

pub(super) fn native(name: &str) -> Option<Native> {
    macro_rules! constant {
        ($name:literal) => {
            |_, _| Ok(NamedFormat::of($name).map_or(Value::Null, value))
        };
    }
    Some(match name {
        "format.dns1123Label" => constant!("dns1123Label"),
        "format.dns1123Subdomain" => constant!("dns1123Subdomain"),
        "format.dns1035Label" => constant!("dns1035Label"),
        "format.qualifiedName" => constant!("qualifiedName"),
        "format.dns1123LabelPrefix" => constant!("dns1123LabelPrefix"),
        "format.dns1123SubdomainPrefix" => constant!("dns1123SubdomainPrefix"),
        "format.dns1035LabelPrefix" => constant!("dns1035LabelPrefix"),
        "format.labelValue" => constant!("labelValue"),
        "format.uri" => constant!("uri"),
        "format.uuid" => constant!("uuid"),
        "format.byte" => constant!("byte"),
        "format.date" => constant!("date"),
        "format.datetime" => constant!("datetime"),
        "format.named" => |_, all| match all {
            [Value::String(name)] => {
                let format = NamedFormat::of(name.as_str()).map(value);
                Ok(Value::Optional(format.map(Arc::new)))
            }
            _ => Err(Failure::no_such_overload()),
        },
        "validate" => |_, all| match all {
            [Value::Extension(format), Value::String(text)] => {
                let Extension::Format(format) = **format else {
                    return Err(Failure::no_such_overload());
                };
                let faults: Vec<Value<'_>> =
                    faults(format, text.as_str()).into_iter().map(Value::text).collect();
                Ok(match faults.is_empty() {
                    true => Value::Optional(None),
                    false => Value::optional(Value::list(faults)),
                })
            }
            _ => Err(Failure::no_such_overload()),
        },
        _ => return None,
    })
}

fn value(format: NamedFormat) -> Value<'static> {
    Value::Extension(Arc::new(Extension::Format(format)))
}

/// The errors of a string, with kube-apiserver's messages.
fn faults(format: NamedFormat, text: &str) -> Vec<String> {
    let (name, _, _) = FORMATS[format.0];
    let one = |is_valid: bool, why: &str| {
        if is_valid { Vec::new() } else { vec![why.to_owned()] }
    };
    match name {
        "dns1123Label" => label_1123(text),
        "dns1123LabelPrefix" => label_1123(&masked_end(text)),
        "dns1123Subdomain" => subdomain(text),
        "dns1123SubdomainPrefix" => subdomain(&masked_end(text)),
        "dns1035Label" => label_1035(text),
        "dns1035LabelPrefix" => label_1035(&masked_end(text)),
        "qualifiedName" => qualified_name(text),
        "labelValue" => label_value(text),
        "uri" => url::check_url(text).err().into_iter().collect(),
        "uuid" => one(is_uuid(text), "does not match the UUID format"),
        "byte" => one(!text.is_empty() && STANDARD.decode(text).is_ok(), "invalid base64"),
        "date" => one(text.len() == 10 && is_date(text), "invalid date"),
        _ => one(Moment::parse(&text.to_uppercase()).is_some(), "invalid datetime"),
    }
}

/// Completes a name prefix that ends with a minus, so that it can be checked like a name.
fn masked_end(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(text) => format!("{text}a"),
        None => text.to_owned(),
    }
}

fn is_date(text: &str) -> bool {
    text.parse::<jiff::civil::Date>().is_ok()
}

fn is_uuid(text: &str) -> bool {
    let plain: String = text.chars().filter(|char| *char != '-').collect();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let are_groups = groups == [8, 4, 4, 4, 12] || groups == [32];
    are_groups && plain.len() == 32 && plain.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} bytes"))
}

fn with_form(text: &str, most: usize, is_form: bool, why: &str) -> Vec<String> {
    let form = (!is_form).then(|| why.to_owned());
    too_long(text, most).into_iter().chain(form).collect()
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn label_1123(text: &str) -> Vec<String> {
    const WHY: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    // The error for the length comes first, same as for the other formats.
    let is_subdomain = text.split('.').all(is_label);
    let why = if is_subdomain { "must not contain dots" } else { WHY };
    with_form(text, 63, is_label(text), why)
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn subdomain(text: &str) -> Vec<String> {
    with_form(text, 253, text.split('.').all(is_label), SUBDOMAIN)
}

fn label_1035(text: &str) -> Vec<String> {
    const WHY: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let begins = text.starts_with(|char: char| char.is_ascii_lowercase());
    with_form(text, 63, is_label(text) && begins, WHY)
}

fn is_name(text: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|byte| is_end(byte) || b"-_.".contains(byte))
}

fn label_value(text: &str) -> Vec<String> {
    const WHY: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    with_form(text, 63, text.is_empty() || is_name(text), WHY)
}

fn qualified_name(text: &str) -> Vec<String> {
    const WHY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const SHAPE: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
    let mut faults = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults
                    .extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => return vec![SHAPE.to_owned()],
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if let Some(why) = too_long(name, 63) {
        faults.push(format!("name part {why}"));
    }
    if !is_name(name) {
        faults.push(WHY.to_owned());
    }
    faults
}
