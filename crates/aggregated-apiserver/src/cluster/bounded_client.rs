//! A client with a size limit for responses. kube reads every response, and every event of a watch, into memory,
//! however long it is.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::Client;
use kube::client::Body;
use thiserror::Error;
use tower::BoxError;

/// The largest response, and the largest event of a watch, in bytes. etcd stores at most 1.5 MiB of an object. Most
/// objects are stored as protobuf, and their JSON may be ten times as long.
pub(super) const ANSWER_BYTES: usize = 16 << 20;

/// A response of the cluster exceeds the size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the response is longer than {} MiB", ANSWER_BYTES >> 20)]
pub(super) struct AnswerTooLong;

/// Wraps the client, so that longer responses and events are aborted.
pub(super) fn bounded(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let is_watch = is_watch(request.uri());
            let answer = client.send(request).await?;
            let bound = |inner| Bounded { inner, left: ANSWER_BYTES, is_watch };
            Ok::<Response<Bounded>, kube::Error>(answer.map(bound))
        }
    });
    Client::new(service, namespace)
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "watch" && value == "true")
}

struct Bounded {
    inner: Body,
    left: usize,
    /// Whether the limit applies to each line instead of the whole body.
    is_watch: bool,
}

impl Bounded {
    fn count(&mut self, data: &[u8]) -> Result<(), AnswerTooLong> {
        let ends = data.split(|byte| self.is_watch && *byte == b'\n');
        for (index, piece) in ends.enumerate() {
            if index > 0 {
                self.left = ANSWER_BYTES;
            }
            self.left = self.left.checked_sub(piece.len()).ok_or(AnswerTooLong)?;
        }
        Ok(())
    }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
        Poll::Ready(Some(counted.map(|()| frame).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(is_watch: bool, pieces: &[&[u8]]) -> Result<(), AnswerTooLong> {
        let mut bounded = Bounded { inner: Body::empty(), left: ANSWER_BYTES, is_watch };
        pieces.iter().try_for_each(|piece| bounded.count(piece))
    }

    #[test]
    fn the_size_limit_applies_to_a_whole_response_or_to_each_line_of_a_watch() {
        let half = vec![b'x'; ANSWER_BYTES / 2];
        assert_eq!(count(false, &[&half, &half]), Ok(()));
        assert_eq!(count(false, &[&half, &half, b"\n"]), Err(AnswerTooLong));
        assert_eq!(count(true, &[&half, &half, b"\n", &half, &half, b"\n"]), Ok(()));
        assert_eq!(count(true, &[&half, b"x\nx", &half, &half]), Err(AnswerTooLong));
    }

    #[test]
    fn watch_requests_are_recognized_by_the_watch_parameter() {
        assert!(is_watch(&Uri::from_static("/api/v1/pods?&watch=true&a=b")));
        assert!(!is_watch(&Uri::from_static("/api/v1/pods?&limit=1&continue=watch%3Dtrue")));
    }
}
