//! Encoding of the result of an operation as a response, with memory for it.

use axum::body::Body;
use http::{Response, StatusCode};

use super::encode::stream::{self, Reader, WatchContext};
use super::encode::{self, Encoder};
use super::throttle::Permit;
use crate::conversion::known;
use crate::error::ApiError;
use crate::storage::Versioned;
use crate::verb::{Deleted, ListPage, SubresourceResponse, WatchStream};

/// The encoder of a response, with its client and its slot.
pub(super) struct Responder {
    pub encoder: Encoder,
    pub reader: Reader,
    /// The slot among the requests in flight. Lists and watches hold it until they are sent.
    pub permit: Permit,
}

impl Responder {
    /// Returns the response to an object that was posted to a subresource.
    pub(super) fn posted(
        &self,
        (response, warnings): (SubresourceResponse, Vec<String>),
    ) -> Response<Body> {
        match response {
            SubresourceResponse::Object(answer) => self.encoder.review(&answer, &warnings),
            SubresourceResponse::Success => self.encoder.success(&warnings),
        }
    }

    /// Returns a response with one object, when there is memory for it.
    pub(super) async fn object(
        &self,
        versioned: &Versioned,
        status: StatusCode,
        warnings: &[String],
    ) -> Result<Response<Body>, ApiError> {
        let _room = self.reader.room_for(versioned).await?;
        let encode = || self.encoder.object(versioned, status, warnings);
        known(self.encoder.kind(), &self.reader.account, encode).await?
    }

    /// Returns the response to a deletion.
    pub(super) async fn deleted(
        &self,
        deleted: &Deleted,
        answers_accepted: bool,
        warnings: &[String],
    ) -> Result<Response<Body>, ApiError> {
        let encode = || self.encoder.deleted(deleted, answers_accepted);
        let mut response = known(self.encoder.kind(), &self.reader.account, encode).await??;
        encode::warn(&mut response, warnings);
        Ok(response)
    }

    /// Returns a list, which is encoded while it is sent.
    pub(super) async fn list(
        self,
        listed: ListPage,
        warnings: &[String],
    ) -> Result<Response<Body>, ApiError> {
        let mut response = stream::list(self.encoder, listed, self.permit, self.reader).await?;
        encode::warn(&mut response, warnings);
        Ok(response)
    }

    /// Returns a watch, whose events are encoded while they are sent.
    pub(super) async fn watch(
        self,
        watching: WatchStream,
        context: WatchContext<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let format = self.encoder.format();
        let client = (self.reader, self.permit);
        let events = stream::watch(self.encoder, watching, client, context).await?;
        Ok(encode::watching(&format, events))
    }
}
