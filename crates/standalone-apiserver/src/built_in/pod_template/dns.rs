//! The DNS configuration of Pods.

use aggregated_apiserver::FieldError;
use aggregated_apiserver::strategy::NameRule;

use super::scope::Scope;
use crate::built_in::checks::{FieldErrors, check_with, to_json};
use crate::built_in::networks::check_address;

const SERVER_LIMIT: usize = 3;
const SEARCH_LIMIT: usize = 32;
const SEARCH_LENGTH_LIMIT: usize = 2048;
const SUBDOMAIN_LIMIT: usize = 253;
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";

/// Validates the name servers and the search domains.
pub(crate) fn check_config(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    let at = format!("{at}.dnsConfig");
    let config = scope.spec.dns_config.as_ref();
    let servers = config.and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    if scope.spec.dns_policy.as_deref() == Some("None") {
        if config.is_none() {
            let why = "must provide `dnsConfig` when `dnsPolicy` is None";
            return faults.push(FieldError::required(at, why));
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return faults.push(FieldError::required(format!("{at}.nameservers"), why));
        }
    }
    let Some(config) = config else { return };
    if servers.len() > SERVER_LIMIT {
        let why = format!("must not have more than {SERVER_LIMIT} nameservers");
        faults.push(FieldError::invalid(format!("{at}.nameservers"), to_json(&servers), &why));
    }
    for (index, server) in servers.iter().enumerate() {
        check_address(&format!("{at}.nameservers[{index}]"), server, faults);
    }
    check_searches(
        config.searches.as_deref().unwrap_or_default(),
        &format!("{at}.searches"),
        faults,
    );
    for (index, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_ref().is_none_or(String::is_empty) {
            let at = format!("{at}.options[{index}]");
            faults.push(FieldError::required(at, "must not be empty"));
        }
    }
}

fn check_searches(searches: &[String], at: &str, faults: &mut FieldErrors) {
    if searches.len() > SEARCH_LIMIT {
        let why = format!("must not have more than {SEARCH_LIMIT} search paths");
        faults.push(FieldError::invalid(at, to_json(&searches), &why));
    }
    if searches.join(" ").len() > SEARCH_LENGTH_LIMIT {
        let why = format!(
            "must not have more than {SEARCH_LENGTH_LIMIT} characters (including spaces) in the search list"
        );
        faults.push(FieldError::invalid(at, to_json(&searches), &why));
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        check_with(&format!("{at}[{index}]"), search, faults_of_search, faults);
    }
}

/// Returns the errors of a search domain, whose labels may have underscores.
fn faults_of_search(search: &str) -> Vec<String> {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        let ends = [label.bytes().next(), label.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(is_end))
            && label.bytes().all(|byte| is_end(byte) || byte == b'-' || byte == b'_')
    };
    let mut faults = Vec::new();
    if search.len() > SUBDOMAIN_LIMIT {
        faults.push(format!("must be no more than {SUBDOMAIN_LIMIT} characters"));
    }
    if !search.split('.').all(is_label) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// Validates host aliases.
pub(crate) fn check_aliases(scope: &Scope<'_>, at: &str, faults: &mut FieldErrors) {
    for (index, alias) in scope.spec.host_aliases.iter().flatten().enumerate() {
        let at = format!("{at}.hostAliases[{index}]");
        check_address(&format!("{at}.ip"), &alias.ip, faults);
        for (number, name) in alias.hostnames.iter().flatten().enumerate() {
            let check = |name: &str| NameRule::Dns1123Subdomain.check(name);
            check_with(&format!("{at}.hostnames[{number}]"), name, check, faults);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searched_domains() {
        for (search, count) in [("a_b.c", 0), ("_a", 0), ("", 1), ("-a", 1), ("A", 1), ("a..b", 1)]
        {
            assert_eq!(faults_of_search(search).len(), count, "{search}");
        }
    }
}
