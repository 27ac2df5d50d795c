//! IP addresses and networks (CIDRs), with the rules of kube-apiserver for fields that are older than its strict
//! validation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aggregated_apiserver::FieldError;

use super::checks::{FieldErrors, check_with, quote};

const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NETWORK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// An address, and the length of the prefix of its network in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    length: u32,
}

impl Network {
    /// Parses `10.9.8.0/24`. Leading zeros of a number are ignored, same as in old releases of Go.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u32 = length.parse().ok().filter(|_| is_number)?;
        let address = parse_address(address)?;
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// The network of this address: all bits after the prefix are zero.
    fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.length).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.length).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Self { address, ..self }
    }

    /// Whether this network is a proper part of another one.
    pub(crate) fn is_strictly_within(self, other: Self) -> bool {
        let is_same_family = self.address.is_ipv4() == other.address.is_ipv4();
        let first = Self { length: other.length, ..self.masked() };
        is_same_family && self.length > other.length && first.masked() == other.masked()
    }
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Parses an address. Leading zeros of a number are ignored, same as in old releases of Go.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    text.parse().or_else(|_| without_leading_zeros(text).parse()).ok()
}

fn without_leading_zeros(text: &str) -> String {
    let trimmed = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let parts = text.split(':').map(|part| part.split('.').map(trimmed).collect::<Vec<_>>());
    parts.map(|part| part.join(".")).collect::<Vec<_>>().join(":")
}

/// Checks the address of an interface with the length of its prefix, such as `10.9.8.7/24`.
pub(crate) fn check_interface_address(at: &str, text: &str, faults: &mut FieldErrors) {
    let Some(Network { address, length }) = Network::parse(text) else {
        let why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return faults.push(FieldError::invalid(at, quote(text), why));
    };
    let canonical = match address {
        IpAddr::V6(long) => match long.to_ipv4_mapped().filter(|_| length >= 96) {
            Some(short) => format!("{short}/{}", length - 96),
            None => format!("{address}/{length}"),
        },
        IpAddr::V4(_) => format!("{address}/{length}"),
    };
    if text != canonical {
        let why = format!("must be in canonical form ({})", quote(&canonical));
        faults.push(FieldError::invalid(at, quote(text), &why));
    }
}

/// Checks an address.
pub(crate) fn check_address(at: &str, text: &str, faults: &mut FieldErrors) {
    let why = match (parse_address(text), text.parse::<IpAddr>()) {
        (None, _) => ADDRESS,
        (Some(_), Err(_)) => "must not have leading 0s",
        (Some(_), Ok(address)) if is_mapped(address) => "must not be an IPv4-mapped IPv6 address",
        _ => return,
    };
    faults.push(FieldError::invalid(at, quote(text), why));
}

/// Checks the address of an endpoint: it must be a unicast address that other machines can reach.
pub(crate) fn check_endpoint_address(at: &str, text: &str, faults: &mut FieldErrors) {
    check_with(at, text, faults_of_endpoint, faults);
}

/// Returns the errors of the address of an endpoint.
fn faults_of_endpoint(text: &str) -> Vec<String> {
    let Some(address) = parse_address(text) else {
        return vec!["must be a valid IP address".to_owned()];
    };
    // Go treats an IPv4-mapped IPv6 address as an IPv4 address.
    let address = address.to_canonical();
    let is_in_fe80 = |address: Ipv6Addr| address.segments()[0] & 0xffc0 == 0xfe80;
    let is_in_ff02 = |address: Ipv6Addr| address.segments()[0] & 0xff0f == 0xff02;
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (is_in_fe80(address), is_in_ff02(address)),
    };
    let unspecified = format!("may not be unspecified ({text})");
    let faults = [
        (address.is_unspecified(), unspecified.as_str()),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            is_link_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ];
    let faults = faults.into_iter().filter(|(is_wrong, _)| *is_wrong);
    faults.map(|(_, why)| why.to_owned()).collect()
}

/// Returns the errors of a name that must be an address in canonical form.
pub(crate) fn faults_of_address_name(name: &str) -> Vec<String> {
    let parsed = name.parse::<IpAddr>();
    let why = match (parse_address(name), parsed) {
        (None, _) => ADDRESS.to_owned(),
        (Some(_), Err(_)) => "must not have leading 0s".to_owned(),
        (Some(_), Ok(address)) if is_mapped(address) => {
            "must not be an IPv4-mapped IPv6 address".to_owned()
        }
        (Some(_), Ok(address)) if address.to_string() != name => {
            format!("must be in canonical form ({})", quote(&address.to_string()))
        }
        _ => return Vec::new(),
    };
    vec![why]
}

/// Checks a network in canonical form.
pub(crate) fn check_canonical_network(at: &str, text: &str, faults: &mut FieldErrors) {
    let before = faults.len();
    let Some(network) = check_network(at, text, faults) else { return };
    let canonical = format!("{}/{}", network.address, network.length);
    if faults.len() == before && canonical != text {
        let why = format!("must be in canonical form ({})", quote(&canonical));
        faults.push(FieldError::invalid(at, quote(text), &why));
    }
}

/// Checks an address in canonical form.
pub(crate) fn check_canonical_address(at: &str, text: &str, faults: &mut FieldErrors) {
    let before = faults.len();
    check_address(at, text, faults);
    if let Ok(address) = text.parse::<IpAddr>()
        && faults.len() == before
        && address.to_string() != text
    {
        let why = format!("must be in canonical form ({})", quote(&address.to_string()));
        faults.push(FieldError::invalid(at, quote(text), &why));
    }
}

/// Checks a network. Returns it if it can be parsed.
pub(crate) fn check_network(at: &str, text: &str, faults: &mut FieldErrors) -> Option<Network> {
    let network = Network::parse(text);
    let why = match network {
        None => NETWORK,
        Some(network) => {
            let (address, length) = text.split_once('/').unwrap_or((text, ""));
            let has_zeros = length.len() > 1 && length.starts_with('0');
            if address.parse::<IpAddr>().is_err() || has_zeros {
                "must not have leading 0s in IP or prefix length"
            } else if is_mapped(network.address) {
                "must not have an IPv4-mapped IPv6 address"
            } else if network != network.masked() {
                "must not have bits set beyond the prefix length"
            } else {
                return Some(network);
            }
        }
    };
    faults.push(FieldError::invalid(at, quote(text), why));
    network
}

/// Whether these are two networks of the same IP family.
pub(crate) fn are_of_one_family(texts: &[String]) -> bool {
    let networks: Vec<Network> = texts.iter().filter_map(|text| Network::parse(text)).collect();
    matches!(networks.as_slice(), [one, other] if one.address.is_ipv4() == other.address.is_ipv4())
}

/// Whether these are two networks, one of each IP family.
pub(crate) fn is_pair_of_networks(texts: &[String]) -> bool {
    let networks: Vec<Network> = texts.iter().filter_map(|text| Network::parse(text)).collect();
    matches!(networks.as_slice(), [one, other] if one.address.is_ipv4() != other.address.is_ipv4())
}

/// Whether this is an IPv4-mapped IPv6 address.
fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// A warning about a valid address that is not in canonical form.
pub(crate) fn warning_of_address(at: &str, text: &str) -> Option<String> {
    let address: Ipv6Addr = text.parse().ok()?;
    let shown = address.to_string();
    (shown != text).then(|| {
        format!(
            "{at}: IPv6 address {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&shown)
        )
    })
}

/// A warning about a valid network that is not in canonical form.
pub(crate) fn warning_of_network(at: &str, text: &str) -> Option<String> {
    let network = Network::parse(text).filter(|network| network.address.is_ipv6())?;
    let shown = format!("{}/{}", network.address, network.length);
    (shown != text).then(|| {
        format!(
            "{at}: IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&shown)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::texts;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("10.9.8.7", None),
            ("2001:DB8::0", None),
            ("010.9.8.7", Some("must not have leading 0s")),
            ("::ffff:1.2.3.4", Some("must not be an IPv4-mapped IPv6 address")),
            ("10.9.8", Some(ADDRESS)),
            ("10.9.8.256", Some(ADDRESS)),
            ("fe80::1%eth0", Some(ADDRESS)),
            ("", Some(ADDRESS)),
        ] {
            let mut faults = Vec::new();
            check_address("f", text, &mut faults);
            let expected = expected.map(|why| format!("f: Invalid value: \"{text}\": {why}"));
            assert_eq!(texts(&faults), expected.into_iter().collect::<Vec<_>>(), "{text}");
        }
        assert_eq!(warning_of_address("f", "2001:db8::1"), None);
        assert_eq!(
            warning_of_address("f", "2001:DB8::1").unwrap(),
            "f: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"
        );
    }

    #[test]
    fn networks() {
        for (text, expected) in [
            ("10.9.8.0/24", None),
            ("0.0.0.0/0", None),
            ("::/0", None),
            ("2001:DB8::/64", None),
            ("10.9.8.0/024", Some("must not have leading 0s in IP or prefix length")),
            ("010.9.8.0/24", Some("must not have leading 0s in IP or prefix length")),
            ("::ffff:1.2.3.0/120", Some("must not have an IPv4-mapped IPv6 address")),
            ("10.9.8.7/24", Some("must not have bits set beyond the prefix length")),
            ("10.9.8.0/33", Some(NETWORK)),
            ("10.9.8.0", Some(NETWORK)),
            ("10.9.8.0/", Some(NETWORK)),
            ("10.9.8.0/+4", Some(NETWORK)),
        ] {
            let mut faults = Vec::new();
            check_network("f", text, &mut faults);
            let expected = expected.map(|why| format!("f: Invalid value: \"{text}\": {why}"));
            assert_eq!(texts(&faults), expected.into_iter().collect::<Vec<_>>(), "{text}");
        }
        assert_eq!(warning_of_network("f", "2001:db8::/64"), None);
        assert!(warning_of_network("f", "2001:DB8::/64").unwrap().ends_with("(\"2001:db8::/64\")"));
    }

    #[test]
    fn parts_of_networks() {
        let is_within = |inner: &str, outer: &str| {
            Network::parse(inner).unwrap().is_strictly_within(Network::parse(outer).unwrap())
        };
        assert!(is_within("10.9.8.0/24", "10.9.0.0/16"));
        assert!(is_within("10.9.8.0/24", "0.0.0.0/0"));
        assert!(!is_within("10.9.8.0/24", "10.9.8.0/24"));
        assert!(!is_within("10.9.0.0/16", "10.9.8.0/24"));
        assert!(!is_within("10.8.8.0/24", "10.9.0.0/16"));
        assert!(!is_within("::/64", "0.0.0.0/0"));
    }
}
