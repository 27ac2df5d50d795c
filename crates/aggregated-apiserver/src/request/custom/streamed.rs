//! Responses that are sent while a handler makes them.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream;
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

struct Streamed {
    body: Body,
    answer: Answer,
    ended: Ended,
    activity: Activity,
    /// Whether the response is incomplete if the server ends it.
    is_cut: bool,
    _held: Held,
}

/// The body of a response that is sent while it is made. Its memory is counted by what has not been sent yet. The body
/// ends when the request must end, also while the client does not read.
pub(super) fn body(
    body: Body,
    answer: Answer,
    held: Held,
    mut ending: Ending,
    is_cut: bool,
) -> Body {
    let (ended, activity) = (ending.ended().clone(), ending.activity().clone());
    let streamed = Streamed { body, answer, ended, activity, is_cut, _held: held };
    let frames = stream::unfold(Some(Box::new(streamed)), next);
    let end = async move {
        let _ = ending.next().await;
        sleep(OVERTIME).await;
    };
    Body::new(StreamBody::new(until(end, frames)))
}

type Next = (Result<Frame<Bytes>, axum::Error>, Option<Box<Streamed>>);

async fn next(streamed: Option<Box<Streamed>>) -> Option<Next> {
    let mut streamed = streamed?;
    let frame = tokio::select! {
        biased;
        frame = streamed.body.frame() => frame?,
        () = streamed.ended.wait() => {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the time of the request is over");
            return streamed.is_cut.then(|| (Err(axum::Error::new(late)), None));
        }
    };
    streamed.activity.note();
    let frame = frame.map(|frame| frame.map_data(|data| streamed.answer.charge(data)));
    Some((frame, Some(streamed)))
}
