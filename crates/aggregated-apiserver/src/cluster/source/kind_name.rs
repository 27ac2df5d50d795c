//! The name of a kind in a reference. Users write references, so the name is validated.

use std::fmt;
use std::sync::Arc;

use crate::object::names::{check_dns_1035_label, check_dns_1123_subdomain};

/// The longest name of a kind, in bytes.
const KIND_LIMIT: usize = 63;

/// The name of a kind in a reference: an API version (`apps/v1`) and a kind (`Deployment`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindName(Arc<(Box<str>, Box<str>)>);

impl KindName {
    /// Creates the name, or returns `None` if no kind can have this name.
    pub fn new(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = match api_version.split_once('/') {
            Some((group, version)) => (Some(group), version),
            None => (None, api_version),
        };
        let is_known_form = group.map_or(version == "v1", |group| {
            check_dns_1123_subdomain(group).is_empty() && check_dns_1035_label(version).is_empty()
        });
        let is_kind = kind.len() <= KIND_LIMIT
            && kind.starts_with(|first: char| first.is_ascii_alphabetic())
            && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (is_known_form && is_kind).then(|| Self(Arc::new((api_version.into(), kind.into()))))
    }

    /// The API version, for example `apps/v1` or `v1`.
    pub fn api_version(&self) -> &str {
        &self.0.0
    }

    /// The API group, for example `apps`; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version().split_once('/').map_or("", |(group, _)| group)
    }

    /// The kind, for example `Deployment`.
    pub fn kind(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind(), self.api_version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_api_versions_and_kinds_are_rejected() {
        for (api_version, kind) in
            [("v1", "Pod"), ("apps/v1", "Deployment"), ("a.example.com/v1alpha1", "X")]
        {
            let name = KindName::new(api_version, kind).unwrap();
            assert_eq!((name.api_version(), name.kind()), (api_version, kind));
        }
        let long = "a".repeat(64);
        for (api_version, kind) in [
            ("", "Pod"),
            ("v2", "Pod"),
            ("apps/v1/x", "Deployment"),
            ("/v1", "Pod"),
            ("apps/", "Pod"),
            ("../v1", "Pod"),
            ("Apps/v1", "Pod"),
            ("apps/v1?x=y", "Pod"),
            ("apps/v1", ""),
            ("apps/v1", "a b"),
            ("apps/v1", "a\n"),
            ("apps/v1", "ä"),
            ("apps/v1", long.as_str()),
            (&format!("{}/v1", "a".repeat(254)), "Pod"),
        ] {
            assert_eq!(KindName::new(api_version, kind), None, "{api_version} {kind}");
        }
    }
}
