//! Responses that are sent while a handler makes them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use futures::{FutureExt, StreamExt, stream};
use http::Response;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::sleep;

use super::Held;
use super::end::Ending;
use crate::request::encode::until;
use crate::request::{Activity, Answer};
use crate::subresource::Ended;

/// The longest time that an unread response is held after its end.
const OVERTIME: Duration = Duration::from_secs(5);

/// The response of a handler. A body that is in memory as a whole stays as it is. Another one is sent while it is made:
/// its memory is counted by what has not been sent yet, and it ends when the request must end, also while the client
/// does not read. `cuts` says whether the response is then incomplete.
pub(super) fn response(
    response: Response<Body>,
    answer: Answer,
    (held, ending): (Held, Ending),
    cuts: bool,
) -> Response<Body> {
    let (mut head, mut body) = response.into_parts();
    let length = body.size_hint().exact();
    let first = match body.frame().now_or_never() {
        Some(None) => return Response::from_parts(head, Body::empty()),
        Some(Some(Ok(frame))) if body.is_end_stream() && frame.is_data() => {
            let whole = frame.into_data().unwrap_or_default();
            return Response::from_parts(head, Body::from(whole));
        }
        Some(first) => first,
        None => None,
    };
    if let Some(length) = length {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    let streamed = Streamed {
        first,
        body,
        answer,
        ended: ending.ended().clone(),
        activity: ending.activity().clone(),
        is_complete: Arc::new(AtomicBool::new(!cuts)),
        _held: held,
    };
    Response::from_parts(head, streamed.into_body(ending))
}

type Sent = Result<Frame<Bytes>, axum::Error>;

struct Streamed {
    /// The first frame, if it was ready at once.
    first: Option<Sent>,
    body: Body,
    answer: Answer,
    ended: Ended,
    activity: Activity,
    /// Whether the response is complete if it ends now.
    is_complete: Arc<AtomicBool>,
    _held: Held,
}

impl Streamed {
    fn into_body(self, mut ending: Ending) -> Body {
        let is_complete = Arc::clone(&self.is_complete);
        let frames = stream::unfold(Box::new(self), next);
        let end = async move {
            let _ = ending.next().await;
            sleep(OVERTIME).await;
        };
        let cut = async move {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the request has ended");
            (!is_complete.load(Ordering::Acquire)).then(|| Err(axum::Error::new(late)))
        };
        let cut = stream::once(cut).filter_map(std::future::ready);
        Body::new(StreamBody::new(until(end, frames).chain(cut)))
    }
}

async fn next(mut streamed: Box<Streamed>) -> Option<(Sent, Box<Streamed>)> {
    let frame = match streamed.first.take() {
        Some(first) => first,
        None => tokio::select! {
            biased;
            () = streamed.ended.wait() => return None,
            frame = streamed.body.frame() => match frame {
                Some(frame) => frame,
                None => {
                    streamed.is_complete.store(true, Ordering::Release);
                    return None;
                }
            },
        },
    };
    streamed.activity.note();
    let frame = frame.map(|frame| frame.map_data(|data| streamed.answer.charge(data)));
    // An error of the handler is the end of the response.
    if frame.is_err() {
        streamed.is_complete.store(true, Ordering::Release);
    }
    Some((frame, streamed))
}
