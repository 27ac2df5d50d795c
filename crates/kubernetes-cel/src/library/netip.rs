//! IP addresses, parsed like Go's `net/netip`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::go_text::quote;

/// An address, and whether it has a zone.
pub(super) struct Parsed {
    pub(super) ip: IpAddr,
    pub(super) has_zone: bool,
}

/// Parses an address.
///
/// # Errors
/// The error of Go's `netip.ParseAddr`.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let parsed = match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => fields_of_v4(text)
            .map(|fields| Parsed { ip: Ipv4Addr::from(fields).into(), has_zone: false }),
        Some(b':') => parse_v6(text),
        Some(_) => Err(Why::new("missing IPv6 address")),
        None => Err(Why::new("unable to parse IP")),
    };
    parsed.map_err(|Why { what, at }| {
        let at = at.filter(|at| !at.is_empty()).map(|at| format!(" (at {})", quote(at)));
        format!("ParseAddr({}): {what}{}", quote(text), at.unwrap_or_default())
    })
}

/// An error, and the rest of the address at the position of the error.
struct Why<'a> {
    what: &'static str,
    at: Option<&'a str>,
}

impl<'a> Why<'a> {
    fn new(what: &'static str) -> Self {
        Self { what, at: None }
    }

    fn at(what: &'static str, at: &'a str) -> Self {
        Self { what, at: Some(at) }
    }
}

fn fields_of_v4(text: &str) -> Result<[u8; 4], Why<'_>> {
    let mut fields = [0; 4];
    let (mut field, mut digits, mut value) = (0, 0, 0_u32);
    for (at, char) in text.char_indices() {
        match char.to_digit(10) {
            Some(_) if digits == 1 && value == 0 => {
                return Err(Why::new("IPv4 field has octet with leading zero"));
            }
            Some(digit) => {
                (value, digits) = (value * 10 + digit, digits + 1);
                fields[field] =
                    u8::try_from(value).map_err(|_| Why::new("IPv4 field has value >255"))?;
            }
            None if char == '.' && (digits == 0 || at + 1 == text.len()) => {
                return Err(Why::at("IPv4 field must have at least one digit", &text[at..]));
            }
            None if char == '.' && field == 3 => return Err(Why::new("IPv4 address too long")),
            None if char == '.' => (field, digits, value) = (field + 1, 0, 0),
            None => return Err(Why::at("unexpected character", &text[at..])),
        }
    }
    if field < 3 { Err(Why::new("IPv4 address too short")) } else { Ok(fields) }
}

fn parse_v6(text: &str) -> Result<Parsed, Why<'_>> {
    let (address, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(Why::new("zone must be a non-empty string")),
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let ip = Ipv6Addr::from(bytes_of_v6(address)?).into();
    Ok(Parsed { ip, has_zone: zone.is_some() })
}

fn bytes_of_v6(text: &str) -> Result<[u8; 16], Why<'_>> {
    let (mut rest, mut bytes, mut ellipsis) = (text, Vec::with_capacity(16), None);
    if let Some(behind) = rest.strip_prefix("::") {
        (rest, ellipsis) = (behind, Some(0));
    }
    while bytes.len() < 16 && !(rest.is_empty() && ellipsis == Some(bytes.len())) {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(Why::at("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            let what = "each colon-separated field must have at least one digit";
            return Err(Why::at(what, rest));
        }
        if rest[digits..].starts_with('.') {
            bytes.extend(embedded_v4(rest, bytes.len(), ellipsis.is_some())?);
            rest = "";
            break;
        }
        let group = u16::from_str_radix(&rest[..digits], 16).unwrap_or_default();
        bytes.extend(group.to_be_bytes());
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(behind) = rest.strip_prefix(':') else {
            return Err(Why::at("unexpected character, want colon", rest));
        };
        if behind.is_empty() {
            return Err(Why::at("colon must be followed by more characters", rest));
        }
        rest = behind;
        if let Some(behind) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(Why::at("multiple :: in address", rest));
            }
            (rest, ellipsis) = (behind, Some(bytes.len()));
        }
    }
    if !rest.is_empty() {
        return Err(Why::at("trailing garbage after address", rest));
    }
    expanded(&bytes, ellipsis)
}

fn embedded_v4(rest: &str, before: usize, has_ellipsis: bool) -> Result<[u8; 4], Why<'_>> {
    if !has_ellipsis && before != 12 {
        let what = "embedded IPv4 address must replace the final 2 fields of the address";
        return Err(Why::at(what, rest));
    }
    if before > 12 {
        let what = "too many hex fields to fit an embedded IPv4 at the end of the address";
        return Err(Why::at(what, rest));
    }
    fields_of_v4(rest)
}

fn expanded<'a>(bytes: &[u8], ellipsis: Option<usize>) -> Result<[u8; 16], Why<'a>> {
    let mut whole = [0; 16];
    match ellipsis {
        None if bytes.len() < 16 => return Err(Why::new("address string too short")),
        Some(_) if bytes.len() >= 16 => {
            return Err(Why::new("the :: must expand to at least one field of zeros"));
        }
        _ => {}
    }
    let (before, behind) = bytes.split_at(ellipsis.unwrap_or(bytes.len()));
    whole[..before.len()].copy_from_slice(before);
    whole[16 - behind.len()..].copy_from_slice(behind);
    Ok(whole)
}
