//! Network addresses and host names.

use std::sync::LazyLock;

use regex::Regex;

const HOSTNAME_LIMIT: usize = 255;
const LABEL_LIMIT: usize = 63;

/// Letters, digits and symbols of any language.
static WORD: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[a-zA-Z0-9\p{S}\p{L}]*$").ok());
static LETTERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[a-zA-Z\p{L}]*$").ok());

/// Whether a text is an IP address. The numbers of an IPv4 address can have leading zeros.
pub fn is_ip(text: &str) -> bool {
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.trim_start_matches('0').len() <= 3
            && part.parse::<u32>().is_ok_and(|number| number <= 255)
    };
    if !text.contains(':') {
        return text.split('.').count() == 4 && text.split('.').all(is_number);
    }
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

/// Whether a text is an IP address with a prefix length.
pub fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = if address.contains(':') { 128 } else { 32 };
    let is_plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    is_ip(&without_zeros(address)) && is_plain && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

/// Returns an IPv6 address without the leading zeros of its groups, of which there can be any number.
fn without_zeros(address: &str) -> String {
    // An address has eight groups, of which two can be omitted.
    if !address.contains(':') || address.matches(':').nth(9).is_some() {
        return address.to_owned();
    }
    let short = |group: &str| match group.trim_start_matches('0') {
        "" if !group.is_empty() => "0".to_owned(),
        rest if !group.contains('.') => rest.to_owned(),
        _ => group.to_owned(),
    };
    address.split(':').map(short).collect::<Vec<_>>().join(":")
}

/// Whether a text is a MAC address of six, eight or twenty bytes: pairs of digits separated by `:` or `-`, or groups of
/// four digits separated by `.`.
pub fn is_mac(text: &str) -> bool {
    let Some(separator) = text.chars().find(|c| [':', '-', '.'].contains(c)) else { return false };
    let size = if separator == '.' { 4 } else { 2 };
    let mut count = 0;
    for part in text.split(separator) {
        if part.len() != size || !super::is_hex(part) {
            return false;
        }
        count += size / 2;
    }
    [6, 8, 20].contains(&count)
}

/// Whether a text is a host name: a single word with at most one dash, or labels and a last label of at least two
/// letters.
pub fn is_hostname(text: &str) -> bool {
    let matches = |form: &LazyLock<Option<Regex>>, text: &str| {
        form.as_ref().is_some_and(|form| form.is_match(text))
    };
    let length = |text: &str| text.chars().count();
    let is_single = |text: &str| {
        let mut characters = text.chars();
        let Some(first) = characters.next() else { return false };
        let rest = characters.as_str();
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        matches(&WORD, &first.to_string()) && matches(&WORD, rest) && length(rest) < LABEL_LIMIT
    };
    let is_label = |label: &str| {
        let is_bound = |end: Option<char>| end.is_some_and(|c| matches(&WORD, &c.to_string()));
        length(label) <= LABEL_LIMIT
            && is_bound(label.chars().next())
            && is_bound(label.chars().next_back())
            && matches(&WORD, &label.replace('-', ""))
    };
    let is_name = |text: &str| {
        let Some((labels, last)) = text.rsplit_once('.') else { return false };
        let is_last = matches(&LETTERS, last) && (2..=LABEL_LIMIT).contains(&length(last));
        is_last && labels.split('.').all(is_label)
    };
    let is_short =
        text.len() <= HOSTNAME_LIMIT && text.split('.').all(|label| label.len() <= LABEL_LIMIT);
    is_short && (is_single(text) || is_name(text))
}
