//! The body of a response of unknown size. The response ends when the body has been sent or is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

use super::Record;
use super::metrics::Running;

/// A body that holds the record of its request until the response ends.
pub(super) struct Followed {
    body: Body,
    record: Record,
    _running: Option<Running>,
}

impl Followed {
    pub(super) fn new(body: Body, record: Record, running: Option<Running>) -> Self {
        Self { body, record, _running: running }
    }
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.record.sends(data);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
