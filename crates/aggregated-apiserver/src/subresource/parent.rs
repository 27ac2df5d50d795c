//! The object that a subresource belongs to, and the path behind the subresource.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Error;
use crate::object::Key;

/// The object that the path names, in the version of the request. Use `serde_json::Value` if the kind has several
/// versions that do not fit one Rust type. A field that is hidden from the user is missing.
#[derive(Clone, Copy, Debug)]
pub struct Parent<K>(pub K);

/// The namespace and the name of the object that the path names.
#[derive(Clone, Debug)]
pub struct ParentKey(pub Key);

/// The path behind the subresource, without a slash at its beginning. It may be empty. It is percent-encoded as
/// in the request, but kube-apiserver decodes an encoded slash when it forwards a request. No part of the path is `.`
/// or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath(pub String);

/// The object of a request, for the extractors.
#[derive(Clone)]
pub(crate) struct ParentObject(pub Arc<Value>);

impl<S: Sync, K: DeserializeOwned> FromRequestParts<S> for Parent<K> {
    type Rejection = Error;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Error> {
        let Some(ParentObject(object)) = head.extensions.get() else {
            let why = "the handler gets no object, because another server has it";
            return Err(Error::internal(why));
        };
        K::deserialize(&**object).map(Self).map_err(|error| {
            Error::internal(format!("the object does not fit the type of the handler: {error}"))
        })
    }
}

impl<S: Sync> FromRequestParts<S> for ParentKey {
    type Rejection = Error;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Error> {
        let key = head.extensions.get::<Self>().cloned();
        key.ok_or_else(|| Error::internal("the request is no request of a subresource"))
    }
}

impl<S: Sync> FromRequestParts<S> for SubPath {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(head.extensions.get::<Self>().cloned().unwrap_or(Self(String::new())))
    }
}
