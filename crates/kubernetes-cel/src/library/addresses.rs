//! IP addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{Extension, Native, netip};
use crate::go_text::quote;
use crate::value::{Failure, Outcome, Value};

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "ip" => |_, all| match all {
            [Value::String(text)] => parse_ip(text.as_str()).map(ip_value),
            [Value::Extension(of)] => match **of {
                Extension::Cidr(ip, _) => Ok(ip_value(ip)),
                _ => Err(Failure::no_such_overload()),
            },
            _ => Err(Failure::no_such_overload()),
        },
        "isIP" => |_, all| match all {
            [Value::String(text)] => Ok(Value::Bool(parse_ip(text.as_str()).is_ok())),
            _ => Err(Failure::no_such_overload()),
        },
        "ip.isCanonical" => |_, all| match all {
            [Value::String(text)] => {
                let text = text.as_str();
                Ok(Value::Bool(parse_ip(text)?.to_string() == text))
            }
            _ => Err(Failure::no_such_overload()),
        },
        "family" => |_, all| ip(all, |ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |_, all| ip(all, |ip| Value::Bool(ip.is_unspecified())),
        "isLoopback" => |_, all| ip(all, |ip| Value::Bool(ip.is_loopback())),
        "isLinkLocalMulticast" => |_, all| ip(all, |ip| Value::Bool(is_local_multicast(ip))),
        "isLinkLocalUnicast" => |_, all| ip(all, |ip| Value::Bool(is_local_unicast(ip))),
        "isGlobalUnicast" => |_, all| {
            ip(all, |ip| {
                let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
                let is_special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
                Value::Bool(!is_broadcast && !is_special && !is_local_unicast(ip))
            })
        },
        "cidr" => |_, all| match all {
            [Value::String(text)] => {
                let parsed = parse_cidr(text.as_str()).map_err(told_twice);
                parsed.map(|(ip, bits)| cidr_value(ip, bits))
            }
            _ => Err(Failure::no_such_overload()),
        },
        "isCIDR" => |_, all| match all {
            [Value::String(text)] => Ok(Value::Bool(parse_cidr(text.as_str()).is_ok())),
            _ => Err(Failure::no_such_overload()),
        },
        "masked" => |_, all| cidr(all, |ip, bits| cidr_value(masked(ip, bits), bits)),
        "prefixLength" => |_, all| cidr(all, |_, bits| Value::Int(i64::from(bits))),
        "containsIP" => |_, all| {
            let [Value::Extension(network), other] = all else {
                return Err(Failure::no_such_overload());
            };
            let Extension::Cidr(network, bits) = **network else {
                return Err(Failure::no_such_overload());
            };
            let other = match other {
                Value::String(text) => {
                    parse_ip(text.as_str()).map_err(|_| Failure::no_such_overload())?
                }
                Value::Extension(other) => match **other {
                    Extension::Ip(ip) => ip,
                    _ => return Err(Failure::no_such_overload()),
                },
                _ => return Err(Failure::no_such_overload()),
            };
            Ok(Value::Bool(contains(network, bits, other)))
        },
        "containsCIDR" => |_, all| {
            let [Value::Extension(network), other] = all else {
                return Err(Failure::no_such_overload());
            };
            let Extension::Cidr(network, bits) = **network else {
                return Err(Failure::no_such_overload());
            };
            let (other, other_bits) = match other {
                Value::String(text) => parse_cidr(text.as_str()).map_err(told_twice)?,
                Value::Extension(other) => match **other {
                    Extension::Cidr(ip, bits) => (ip, bits),
                    _ => return Err(Failure::no_such_overload()),
                },
                _ => return Err(Failure::no_such_overload()),
            };
            let is_within = contains(network, bits, masked(other, other_bits));
            Ok(Value::Bool(is_within && bits <= other_bits))
        },
        _ => return None,
    })
}

/// Repeats the prefix of an error, same as kube-apiserver for networks.
fn told_twice(why: Failure) -> Failure {
    match why {
        Failure::Error(why) => Failure::new(format!("{PARSING}: {why}")),
        other => other,
    }
}

const PARSING: &str = "network address parse error during conversion from string";

fn ip_value(ip: IpAddr) -> Value<'static> {
    Value::Extension(Arc::new(Extension::Ip(ip)))
}

fn cidr_value(ip: IpAddr, bits: u8) -> Value<'static> {
    Value::Extension(Arc::new(Extension::Cidr(ip, bits)))
}

fn ip<'v>(all: &[Value<'v>], of: fn(IpAddr) -> Value<'static>) -> Outcome<'v> {
    match all {
        [Value::Extension(value)] => match **value {
            Extension::Ip(ip) => Ok(of(ip)),
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

fn cidr<'v>(all: &[Value<'v>], of: fn(IpAddr, u8) -> Value<'static>) -> Outcome<'v> {
    match all {
        [Value::Extension(value)] => match **value {
            Extension::Cidr(ip, bits) => Ok(of(ip, bits)),
            _ => Err(Failure::no_such_overload()),
        },
        _ => Err(Failure::no_such_overload()),
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, Failure> {
    let shown = quote(text);
    let parsed = netip::parse(text).map_err(|why| {
        Failure::new(format!("IP Address {shown} parse error during conversion from string: {why}"))
    })?;
    if parsed.has_zone {
        let message = format!("IP address {shown} with zone value is not allowed");
        return Err(Failure::new(message));
    }
    if is_mapped(parsed.ip) {
        let message = format!("IPv4-mapped IPv6 address {shown} is not allowed");
        return Err(Failure::new(message));
    }
    Ok(parsed.ip)
}

/// Checks the IPv6 address between the brackets of a URL's host.
///
/// # Errors
/// The error of Go's `net/url`.
pub(super) fn check_ipv6(text: &str) -> Result<(), String> {
    match netip::parse(text) {
        Ok(parsed) if parsed.ip.is_ipv4() => Err("invalid IP-literal".to_owned()),
        Ok(_) => Ok(()),
        Err(why) => Err(format!("invalid host: {why}")),
    }
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), Failure> {
    let shown = quote(text);
    let wrong = |why: &str| Failure::new(format!("{PARSING}: netip.ParsePrefix({shown}): {why}"));
    let (ip, bits) = text.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
    let parsed = netip::parse(ip).map_err(|why| wrong(&why))?;
    if parsed.has_zone {
        return Err(wrong("IPv6 zones cannot be present in a prefix"));
    }
    let parsed = parsed.ip;
    // Neither a sign nor a leading zero is allowed.
    let is_plain = bits.len() == 1 || !bits.starts_with(['0', '+', '-']);
    let length = bits.parse::<i64>().ok().filter(|_| is_plain);
    let length = length.ok_or_else(|| wrong(&format!("bad bits after slash: {}", quote(bits))))?;
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    let length = u8::try_from(length).ok().filter(|length| *length <= most);
    let length = length.ok_or_else(|| wrong("prefix length out of range"))?;
    if is_mapped(parsed) {
        let message = format!("IPv4-mapped IPv6 address {shown} is not allowed");
        return Err(Failure::new(message));
    }
    Ok((parsed, length))
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or_default();
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or_default();
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

fn contains(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    network.is_ipv4() == ip.is_ipv4() && masked(network, bits) == masked(ip, bits)
}

fn is_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}
