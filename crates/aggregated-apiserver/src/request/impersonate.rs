//! Impersonation of another user.
//!
//! The caller needs the permission to `impersonate` every part of the other user: the name or service account, each
//! group, the UID, and each extra attribute. Behind kube-aggregator, kube-apiserver has already processed the
//! impersonation.

use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use crate::auth::Attributes;
use crate::error::{ApiError, Reason, quote};
use crate::object::names::{check_dns_1123_label, check_dns_1123_subdomain};
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The maximum number of permissions that an impersonation needs. Each is a call of the authorizer.
const DEMANDS_LIMIT: usize = 200;
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The handling of requests that impersonate another user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Impersonation {
    /// Impersonation is rejected. kube-apiserver processes it before it calls an aggregated server, and on a direct
    /// connection nothing has checked the permission.
    #[default]
    Refused,
    /// Impersonation is authorized by this server, because there is no kube-apiserver in front of it.
    Authorized,
}

/// The user that a caller impersonates, and the permissions that this requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acting {
    pub user: User,
    pub demands: Vec<Attributes>,
}

/// Returns the impersonation that a request asks for, if any.
///
/// # Errors
/// 403 if impersonation is rejected; 400 if there is no user name, or if too many permissions are needed.
pub(super) fn requested(
    impersonation: Impersonation,
    headers: &HeaderMap,
) -> Result<Option<Acting>, ApiError> {
    let Some(name) = headers.keys().find(|name| name.as_str().starts_with("impersonate-")) else {
        return Ok(None);
    };
    if impersonation == Impersonation::Refused {
        let message = format!("impersonation ({name}) is not supported on direct connections");
        return Err(ApiError::new(Reason::Forbidden, message));
    }
    let given = ImpersonationHeaders::of(headers);
    if given.user.is_empty() {
        return match given.is_empty() {
            true => Ok(None),
            false => Err(ApiError::bad_request(format!(
                "requested {} without impersonating a user name",
                given.describe()
            ))
            .of_authorization()),
        };
    }
    let acting = given.acting();
    if acting.demands.len() > DEMANDS_LIMIT {
        let message = format!("impersonation asks for more than {DEMANDS_LIMIT} rights");
        return Err(ApiError::bad_request(message));
    }
    Ok(Some(acting))
}

/// The values of the impersonation headers.
struct ImpersonationHeaders {
    user: String,
    groups: Vec<String>,
    uid: String,
    extra: Vec<(String, String)>,
}

impl ImpersonationHeaders {
    fn of(headers: &HeaderMap) -> Self {
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).into_iter();
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
        };
        let first = |name: &str| all(name).into_iter().next().unwrap_or_default();
        let mut extra = Vec::new();
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
            let decoded = percent_decode_str(key).decode_utf8();
            let key = decoded.map_or_else(|_| key.to_owned(), |key| key.to_string());
            extra.extend(all(name.as_str()).into_iter().map(|value| (key.clone(), value)));
        }
        Self { user: first(USER), groups: all(GROUP), uid: first(UID), extra }
    }

    /// Whether no part of a user is given.
    fn is_empty(&self) -> bool {
        self.user.is_empty()
            && self.groups.is_empty()
            && self.uid.is_empty()
            && self.extra.is_empty()
    }

    /// The requested parts besides the user name, in Go's format.
    fn describe(&self) -> String {
        let list = |texts: &[String]| {
            let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
            format!("[]string{{{}}}", texts.join(", "))
        };
        let groups = match self.groups.as_slice() {
            [] => "[]string(nil)".to_owned(),
            groups => list(groups),
        };
        let mut by_key: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (key, value) in &self.extra {
            by_key.entry(key).or_default().push(value.clone());
        }
        let extra: Vec<String> =
            by_key.iter().map(|(key, values)| format!("{}:{}", quote(key), list(values))).collect();
        let extra = match extra.as_slice() {
            [] => "(nil)".to_owned(),
            extra => format!("{{{}}}", extra.join(", ")),
        };
        let uid = quote(&self.uid);
        format!(
            "&user.DefaultInfo{{Name:\"\", UID:{uid}, Groups:{groups}, Extra:map[string][]string{extra}}}"
        )
    }

    fn acting(self) -> Acting {
        let account = service_account(&self.user);
        let mut demands = vec![match account {
            Some((namespace, name)) => demand("", "serviceaccounts", "", namespace, name),
            None => demand("", "users", "", "", &self.user),
        }];
        let mut user = User { name: self.user.clone(), ..User::default() };
        if let (Some((namespace, _)), true) = (account, self.groups.is_empty()) {
            user.groups =
                vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        }
        for group in self.groups {
            demands.push(demand("", "groups", "", "", &group));
            user.groups.push(group);
        }
        for (key, value) in self.extra {
            demands.push(demand(AUTHENTICATION, "userextras", &key, "", &value));
            user.extra.entry(key).or_default().push(value);
        }
        if !self.uid.is_empty() {
            demands.push(demand(AUTHENTICATION, "uids", "", "", &self.uid));
            user.uid = Some(self.uid);
        }
        let is_in = |group: &str| user.groups.iter().any(|one| one == group);
        if user.name == ANONYMOUS && !is_in(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.to_owned());
        } else if user.name != ANONYMOUS && !is_in(AUTHENTICATED) && !is_in(UNAUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Acting { user, demands }
    }
}

/// Returns the namespace and the name of the service account, if the user is one.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_one =
        check_dns_1123_label(namespace).is_empty() && check_dns_1123_subdomain(name).is_empty();
    is_one.then_some((namespace, name))
}

fn demand(
    group: &str,
    resource: &str,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> Attributes {
    Attributes::Resource {
        verb: "impersonate".into(),
        group: group.to_owned(),
        version: if group.is_empty() { String::new() } else { "v1".to_owned() },
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn ask(headers: &[(&str, &str)]) -> Result<Option<Acting>, ApiError> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        requested(Impersonation::Authorized, &head.headers)
    }

    #[test]
    fn each_part_is_demanded() {
        let acting = ask(&[
            (USER, "jane"),
            (GROUP, "dev"),
            (GROUP, "ops"),
            (UID, "7"),
            ("impersonate-extra-example.com%2fscope", "all"),
        ]);
        let acting = acting.unwrap().unwrap();
        let expected = [
            demand("", "users", "", "", "jane"),
            demand("", "groups", "", "", "dev"),
            demand("", "groups", "", "", "ops"),
            demand(AUTHENTICATION, "userextras", "example.com/scope", "", "all"),
            demand(AUTHENTICATION, "uids", "", "", "7"),
        ];
        assert_eq!(acting.demands, expected);
        assert_eq!(acting.user.groups, ["dev", "ops", AUTHENTICATED]);
        assert_eq!(acting.user.extra["example.com/scope"], ["all"]);
    }

    #[test]
    fn impersonated_service_accounts_have_their_implicit_groups() {
        let acting = ask(&[(USER, "system:serviceaccount:ns:robot")]).unwrap().unwrap();
        assert_eq!(acting.demands, [demand("", "serviceaccounts", "", "ns", "robot")]);
        let expected = [SERVICE_ACCOUNTS, "system:serviceaccounts:ns", AUTHENTICATED];
        assert_eq!(acting.user.groups, expected);
        let odd = ask(&[(USER, "system:serviceaccount:NS:robot")]).unwrap().unwrap();
        assert_eq!(odd.demands, [demand("", "users", "", "", "system:serviceaccount:NS:robot")]);
    }

    #[test]
    fn impersonation_is_rejected_without_a_user_name_or_if_disabled() {
        assert_eq!(ask(&[]).unwrap(), None);
        let refused = ask(&[(GROUP, "dev")]).unwrap_err().to_string();
        let expected = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\"}, Extra:map[string][]string(nil)} without impersonating a user name";
        assert_eq!(refused, expected);
        let (head, ()) = Request::builder().header(USER, "root").body(()).unwrap().into_parts();
        let refused = requested(Impersonation::Refused, &head.headers).unwrap_err();
        assert_eq!(refused.reason(), Reason::Forbidden);
    }
}
