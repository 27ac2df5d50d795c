//! A client that acts as the user of a request, by impersonation.

use http::{HeaderMap, HeaderName, HeaderValue, Request};
use kube::Client;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Cluster;
use crate::user::User;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA: &str = "impersonate-extra-";
/// The characters of keys that are escaped, because they are no characters of header names.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

impl Cluster {
    /// The client of the server, without a size limit of responses.
    pub fn unbounded_client(&self) -> Client {
        self.unbounded.clone()
    }

    /// A client that sends its requests as this user.
    pub fn client_as(&self, user: &User) -> Client {
        let client = self.unbounded.clone();
        let namespace = client.default_namespace().to_owned();
        let headers = impersonation_headers(user);
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (client, headers) = (client.clone(), headers.clone());
            async move {
                match headers {
                    Some(headers) => impersonate(request.headers_mut(), headers),
                    None => return Err(kube::Error::Service(NO_HEADER.into())),
                }
                client.send(request).await
            }
        });
        Client::new(service, namespace)
    }
}

/// Replaces the impersonation of a request.
fn impersonate(headers: &mut HeaderMap, others: Vec<(HeaderName, HeaderValue)>) {
    let is_own = |name: &&HeaderName| name.as_str().starts_with("impersonate-");
    let own: Vec<HeaderName> = headers.keys().filter(is_own).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    headers.extend(others);
}

const NO_HEADER: &str = "the user has no name, or characters that no header can contain";

/// The headers that impersonate a user; `None` if a value is no header value. Without a name, the request would not be
/// an impersonation. A server trims values, so spaces around one would change it.
pub fn impersonation_headers(user: &User) -> Option<Vec<(HeaderName, HeaderValue)>> {
    if user.name.is_empty() {
        return None;
    }
    let value =
        |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok().filter(|_| text.trim() == text);
    let mut headers = vec![(USER, value(&user.name)?)];
    if let Some(uid) = &user.uid {
        headers.push((UID, value(uid)?));
    }
    for group in &user.groups {
        headers.push((GROUP, value(group)?));
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", utf8_percent_encode(key, ESCAPED));
        let name = HeaderName::try_from(name).ok()?;
        for one in values {
            headers.push((name.clone(), value(one)?));
        }
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_becomes_impersonation_headers() {
        let extra = [("example.com/Scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])];
        let user = User {
            name: "jane".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["dev".to_owned(), "ops".to_owned()],
            extra: extra.into(),
        };
        let headers = impersonation_headers(&user).unwrap();
        let text = |(name, value): &(HeaderName, HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let expected = [
            "impersonate-user: jane",
            "impersonate-uid: 7",
            "impersonate-group: dev",
            "impersonate-group: ops",
            "impersonate-extra-example.com%2fscopes: a",
            "impersonate-extra-example.com%2fscopes: b",
        ];
        assert_eq!(headers.iter().map(text).collect::<Vec<_>>(), expected);
        let forged = User { name: "a\r\nimpersonate-user: b".to_owned(), ..User::default() };
        let spaced = User { name: "admin ".to_owned(), ..User::default() };
        for user in [forged, spaced, User::default()] {
            assert!(impersonation_headers(&user).is_none(), "{user:?}");
        }
    }
}
