//! Functions of the language, and functions that Kubernetes adds.

mod addresses;
mod formats;
mod lists;
mod net_url;
mod netip;
mod quantity;
mod semver;
mod standard;
mod template;
mod texts;
mod times;
mod url;

use std::fmt;
use std::net::IpAddr;

use crate::cost::Meter;
use crate::pattern::Pattern;
use crate::value::{Outcome, Value};

pub(crate) use formats::NamedFormat;
pub use net_url::{UrlParts, url_parts};
pub(crate) use quantity::Quantity;
pub(crate) use semver::Version;
pub(crate) use template::{UNEXPECTED_END, clauses, misfit};
pub(crate) use url::Url;
pub use url::check_url;

/// The context of a call, without its arguments.
pub(crate) struct Invocation<'a> {
    pub meter: &'a mut Meter,
    /// The compiled pattern, if the pattern is a constant.
    pub pattern: Option<&'a Pattern>,
    /// The overload; empty if several overloads fit.
    pub overload: &'static str,
}

/// A function of any arguments. It returns an error for arguments that do not fit.
pub(crate) type Native = for<'v> fn(&mut Invocation<'_>, &[Value<'v>]) -> Outcome<'v>;

/// The function with this name.
pub(crate) fn native(name: &str) -> Option<Native> {
    standard::native(name)
        .or_else(|| texts::native(name))
        .or_else(|| lists::native(name))
        .or_else(|| times::native(name))
        .or_else(|| addresses::native(name))
        .or_else(|| url::native(name))
        .or_else(|| quantity::native(name))
        .or_else(|| semver::native(name))
        .or_else(|| formats::native(name))
}

/// Whether a function belongs to the language itself. The errors of these functions do not contain the types of the
/// arguments.
pub(crate) fn is_standard(name: &str) -> bool {
    const OF_TEXTS: [&str; 4] = ["contains", "startsWith", "endsWith", "matches"];
    OF_TEXTS.contains(&name) || standard::native(name).is_some()
}

/// Whether a function converts a value to another type.
pub(crate) fn is_conversion(name: &str) -> bool {
    const CONVERSIONS: [&str; 8] =
        ["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"];
    CONVERSIONS.contains(&name)
}

/// A value of a type that Kubernetes adds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Extension {
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Url(Box<Url>),
    Quantity(Quantity),
    Semver(Version),
    Format(NamedFormat),
    /// A value that Go cannot wrap again: its Go type and its string form.
    Lost(&'static str, String),
}

impl Extension {
    /// The value after Go has unwrapped it to a native value and wrapped it again.
    pub(crate) fn made_native(&self) -> Self {
        let go_type = match self {
            Self::Ip(_) => "netip.Addr",
            Self::Cidr(..) => "netip.Prefix",
            Self::Url(_) => "*url.URL",
            Self::Quantity(_) => "*resource.Quantity",
            Self::Semver(_) => "semver.Version",
            Self::Format(_) | Self::Lost(..) => return self.clone(),
        };
        Self::Lost(go_type, self.to_string())
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Lost(..) => "error",
        }
    }

    /// The Go type in error messages of cel-go.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Ip(_) => "cel.IP",
            Self::Cidr(..) => "cel.CIDR",
            Self::Url(_) => "cel.URL",
            Self::Quantity(_) => "cel.Quantity",
            Self::Semver(_) => "cel.Semver",
            Self::Format(_) => "*cel.Format",
            Self::Lost(..) => "*types.Err",
        }
    }

    /// The string form, if `string()` supports the type.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Ip(_) | Self::Cidr(..) => Some(self.to_string()),
            _ => None,
        }
    }

    /// The size for the computation of costs.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(_, bits) => u64::from(*bits).div_ceil(8),
            _ => 1,
        }
    }

    /// The length of the longest pattern of a format, for the computation of costs.
    pub(crate) fn longest_pattern(&self) -> Option<u64> {
        match self {
            Self::Format(format) => Some(format.longest_pattern()),
            _ => None,
        }
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Cidr(ip, bits) => write!(f, "{ip}/{bits}"),
            Self::Url(url) => f.write_str(url.text()),
            Self::Quantity(quantity) => write!(f, "{quantity:?}"),
            Self::Semver(version) => write!(f, "{version}"),
            Self::Format(format) => f.write_str(format.name()),
            Self::Lost(go_type, text) => {
                write!(f, "unsupported conversion to ref.Val: ({go_type}){text}")
            }
        }
    }
}
