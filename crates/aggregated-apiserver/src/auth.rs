//! Authentication and authorization by code of the user.
//!
//! An [`Authenticator`] finds the user of a request. An [`Authorizer`] decides whether a user is allowed an action.
//! Both are called in chains, together with the built-in ones: [`Authenticators`] and [`Authorizers`]. The notions and
//! the order are those of `k8s.io/apiserver`.
//!
//! ```
//! use std::net::Ipv4Addr;
//!
//! use aggregated_apiserver::auth::{
//!     Attributes, AuthError, Authenticated, AuthenticationRequest, Authenticator, Authenticators,
//!     Authorizer, Authorizers, Decision,
//! };
//! use aggregated_apiserver::{ApiServer, Kinds, User};
//! use futures::future::BoxFuture;
//! use http::HeaderName;
//!
//! const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
//!
//! /// Authenticates requests by the header `X-Api-Key`.
//! struct ApiKeys;
//!
//! impl Authenticator for ApiKeys {
//!     fn credential_headers(&self) -> Vec<HeaderName> {
//!         vec![API_KEY]
//!     }
//!
//!     fn authenticate<'a>(
//!         &'a self,
//!         request: &'a AuthenticationRequest<'_>,
//!     ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
//!         Box::pin(async move {
//!             let Some(key) = request.headers().get(API_KEY) else { return Ok(None) };
//!             if key != "s3cret" {
//!                 return Err(AuthError::new("unknown API key"));
//!             }
//!             let user = User { name: "robot".to_owned(), ..User::default() };
//!             Ok(Some(Authenticated::new(user)))
//!         })
//!     }
//! }
//!
//! /// Denies deletions by robots, whatever their roles allow.
//! struct NoDeletions;
//!
//! impl Authorizer for NoDeletions {
//!     fn authorize<'a>(
//!         &'a self,
//!         user: &'a User,
//!         attributes: &'a Attributes,
//!     ) -> BoxFuture<'a, Result<Decision, AuthError>> {
//!         Box::pin(async move {
//!             let deletes = attributes.verb().starts_with("delete");
//!             Ok(match user.name == "robot" && deletes {
//!                 true => Decision::deny("robots delete nothing"),
//!                 false => Decision::no_opinion(""),
//!             })
//!         })
//!     }
//! }
//!
//! let server = ApiServer::new("foo-server", Kinds::new())
//!     .with_authenticators(
//!         Authenticators::new().front_proxy().client_certificate().with(ApiKeys).token_review(),
//!     )
//!     .with_authorizers(Authorizers::new().with(NoDeletions).built_in());
//! ```

mod attributes;
mod authenticator;
mod authenticators;
mod authorizer;
mod authorizers;
mod call;
mod decision_cache;

pub use attributes::Attributes;
pub use authenticator::{
    Authenticated, AuthenticationRequest, Authenticator, ClientCertificate, TokenAuthenticator,
};
pub use authenticators::Authenticators;
pub(crate) use authenticators::{AuthenticatorEntry, TOKEN_LIMIT};
pub use authorizer::{Authorizer, Decision, Verdict, authorizer_fn};
pub use authorizers::Authorizers;
pub use call::AuthError;
pub(crate) use decision_cache::DecisionCache;
