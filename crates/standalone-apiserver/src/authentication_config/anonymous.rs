//! Requests without credentials, on the paths of an AuthenticationConfiguration.

use std::collections::BTreeSet;

use aggregated_apiserver::User;
use aggregated_apiserver::auth::{AuthError, Authenticated, AuthenticationRequest, Authenticator};
use futures::future::{BoxFuture, ready};

use super::document::Anonymous;

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The authenticator of requests without credentials on some paths. It is the last one of a chain.
pub(super) struct AnonymousPaths(BTreeSet<String>);

impl AnonymousPaths {
    /// The authenticator of a configuration; `None` if the configuration is the same for all paths.
    pub(super) fn new(anonymous: Anonymous) -> Option<Self> {
        let paths = anonymous.conditions.into_iter().map(|condition| condition.path);
        let paths: BTreeSet<String> = paths.filter(|_| anonymous.enabled).collect();
        (!paths.is_empty()).then_some(Self(paths))
    }
}

impl Authenticator for AnonymousPaths {
    fn name(&self) -> &str {
        "anonymous"
    }

    fn authenticate<'a>(
        &'a self,
        request: &'a AuthenticationRequest<'_>,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
        let is_anonymous = request.bearer_token().is_none() && request.certificate().is_none();
        let is_allowed = is_anonymous && self.0.contains(request.uri().path());
        Box::pin(ready(Ok(is_allowed.then(|| {
            let groups = vec![UNAUTHENTICATED.to_owned()];
            Authenticated::new(User { name: ANONYMOUS.to_owned(), groups, ..User::default() })
        }))))
    }
}
