//! Reads request bodies to their end, regardless of the response.
//!
//! The server may respond to a request before its body is read, for example because the request is rejected or the body
//! is too large. If the rest of the body were dropped, the stream would be reset or the connection closed, and the
//! client might not receive the response. So the rest is read, within limits, and dropped.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use http::header::EXPECT;
use http_body::Body as _;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::runtime::Handle;

use crate::quota::{Limiter, Share};
use crate::request::ConnectionPriority;

/// The largest number of bodies that are read after the response; one network may have a quarter of them. Each holds
/// its stream. Most bodies arrive before the response is sent.
const BODIES: usize = 1_000;
/// The largest number of bytes that are read and dropped per body: more than clients send by mistake.
const LIMIT: usize = 16 << 20;
/// The longest time in which a body is read.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The slots of a server for bodies that are read after the response.
#[derive(Clone)]
pub(super) struct Drains(Limiter);

/// A body whose rest is read when it is dropped, if there is a free slot.
struct Draining {
    body: Body,
    standing: ConnectionPriority,
    drains: Drains,
}

impl Drains {
    pub(super) fn new() -> Self {
        Self(Limiter::new(BODIES, Share::PartOfRest(4)))
    }

    /// The same request with a body that is read to its end. A request with `Expect` is unchanged: the client has not
    /// sent its body yet, and reading would request it.
    pub(super) fn wrap(&self, request: Request, standing: &ConnectionPriority) -> Request {
        if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
            return request;
        }
        let (standing, drains) = (standing.clone(), self.clone());
        request.map(|body| Body::new(Draining { body, standing, drains }))
    }
}

impl http_body::Body for Draining {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            return;
        }
        // Without a free slot, the stream is reset.
        let Some(place) = self.drains.0.try_acquire(self.standing.from(), 1) else { return };
        let mut body = std::mem::take(&mut self.body);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _place = place;
                let mut read = 0;
                let rest = async {
                    while let Some(Ok(frame)) = body.frame().await {
                        read += frame.data_ref().map_or(0, Bytes::len);
                        if read > LIMIT {
                            return;
                        }
                    }
                };
                // The server does not wait longer for a client that stops sending.
                let _ = tokio::time::timeout(TIMEOUT, rest).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use futures::stream::{self, StreamExt};

    use super::*;

    #[tokio::test]
    async fn drained_request_bodies_are_limited_per_network() {
        let drains = Drains::new();
        let read_on = |network: &str| {
            let standing = ConnectionPriority::new(network.to_owned());
            let is_there = Arc::new(());
            for _ in 0..BODIES {
                let held = Arc::clone(&is_there);
                let endless = stream::pending::<Result<Bytes, Infallible>>().map(move |data| {
                    let _ = &held;
                    data
                });
                let body = Body::from_stream(endless);
                drop(drains.wrap(Request::new(body), &standing));
            }
            Arc::strong_count(&is_there) - 1
        };
        assert_eq!(read_on("a"), BODIES / 4);
        assert_eq!(read_on("a"), 0, "all it may have");
        assert!(read_on("b") > 0);
    }
}
