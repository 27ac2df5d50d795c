//! A request for a resource that has a slot.

use std::sync::Arc;

use axum::body::Bytes;
use http::request::Parts;

use super::Handler;
use super::caller::Caller;
use super::encode::Encoder;
use super::encode::stream::Reader;
use super::negotiate::Format;
use super::respond::Responder;
use super::route::Target;
use super::throttle::Permit;
use crate::quota::{self, Account};

/// A request for a resource that has a slot.
pub(super) struct Admitted<'a> {
    pub caller: Caller<'a>,
    pub target: Target,
    pub head: &'a Parts,
    /// The format of the response.
    pub format: Format,
    /// The memory of the objects.
    pub account: Account,
    /// The body of the request, and its memory.
    pub sent: (Bytes, Option<quota::Permit>),
    /// The slot among the requests in flight.
    pub permit: Permit,
    /// Whether each poll may take long.
    pub is_costly: bool,
}

impl Admitted<'_> {
    /// Creates the encoder of the response. The slot moves into it.
    pub(super) fn responder(&mut self, handler: &Handler) -> Responder {
        let Self { caller, target, format, account, permit, .. } = self;
        let (kind, version) = target.body_kind();
        let encoder = Encoder::new(kind, version, *format, handler.clock.now(), &handler.forms);
        let (answer, user) = (caller.answer.clone(), Arc::clone(caller.user));
        let (account, within) = (account.clone(), handler.request_timeout);
        let reader = Reader { answer, user, account, within };
        Responder { encoder, reader, permit: std::mem::take(permit) }
    }
}
