//! Responses whose memory is counted until HTTP has sent them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body::{Frame, SizeHint};

use super::pool::Stream;
use super::{Charge, now};

/// The size of the pieces that are passed to HTTP, in bytes. Only one piece at a time is copied into buffers.
pub(super) const PIECE: usize = 64 << 10;

/// Returns a response without its body. No client can leave it unread, because headers are not subject to flow control.
pub fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, _) = response.into_parts();
    head.headers.remove(CONTENT_TYPE);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::empty())
}

/// Returns bytes that stay charged as long as any part of them is referenced.
pub(super) fn owned(bytes: Bytes, charge: Charge) -> Bytes {
    struct Owner(Bytes, #[allow(dead_code)] Charge);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(bytes, charge))
}

/// The body of a whole response, passed on in pieces.
pub(super) struct Held {
    pub(super) body: Body,
    /// The charge, until it moves into `rest`.
    pub(super) charge: Option<Charge>,
    pub(super) rest: Bytes,
    pub(super) stream: Arc<Stream>,
    /// Whether the body is longer than one piece, which every client can receive at once.
    pub(super) is_long: bool,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(context);
            if self.is_long && matches!(polled, Poll::Ready(None)) {
                return self.stream.poll_sent(context).map(|()| None);
            }
            let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            self.rest = match self.charge.take() {
                Some(charge) => owned(data, charge),
                None => data,
            };
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        // HTTP has sent the previous piece when it polls for the next one.
        self.stream.moved.store(now(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// A long body ends only when all of it has been sent.
    fn is_end_stream(&self) -> bool {
        !self.is_long && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint().exact();
        body.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length + rest))
    }
}
