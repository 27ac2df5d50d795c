//! Fault injection: errors and interruptions that a test requests.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;

/// The body of a response.
type Answer = UnsyncBoxBody<Bytes, io::Error>;

/// The message of a broken connection.
const BROKEN: &str = "the connection was dropped on purpose";

/// Injects faults into the requests of a server's clients. They apply to the clients of
/// [`TestServer::client`](crate::TestServer::client) and `client_as`, not to the server itself.
#[derive(Clone)]
pub struct Faults {
    planned: Arc<Mutex<Planned>>,
    /// The number of times that watches were ended, and the last way.
    watches: watch::Sender<(u64, End)>,
}

#[derive(Default)]
struct Planned {
    conflicts: usize,
    refusals: Option<(usize, StatusCode)>,
    broken: usize,
    delay: Duration,
}

/// The way in which watches end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With an error event for an expired resourceVersion.
    Expired,
    /// With a broken connection.
    Broken,
}

/// The fault of a request.
enum Fault {
    Refused(StatusCode),
    Conflict,
    Broken,
}

impl Default for Faults {
    fn default() -> Self {
        Self { planned: Arc::default(), watches: watch::Sender::new((0, End::Broken)) }
    }
}

impl Faults {
    /// The next `count` writes return 409, same as after a concurrent write.
    pub fn conflict(&self, count: usize) {
        self.planned().conflicts = count;
    }

    /// The next `count` requests return this status: 429, 500, 503 or any other.
    pub fn refuse(&self, count: usize, status: StatusCode) {
        self.planned().refusals = Some((count, status));
    }

    /// The next `count` requests get no response; their connection is dropped.
    pub fn break_off(&self, count: usize) {
        self.planned().broken = count;
    }

    /// Every request waits this long from now on, by the clock of the runtime.
    pub fn delay(&self, by: Duration) {
        self.planned().delay = by;
    }

    /// All open watches end with 410, so that their clients must list again.
    pub fn expire_watches(&self) {
        self.end_watches(End::Expired);
    }

    /// The connections of all open watches are dropped.
    pub fn break_watches(&self) {
        self.end_watches(End::Broken);
    }

    fn end_watches(&self, how: End) {
        self.watches.send_modify(|(count, end)| {
            *count += 1;
            *end = how;
        });
    }

    fn planned(&self) -> MutexGuard<'_, Planned> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The delay and the fault of the next request.
    fn take(&self, is_write: bool) -> (Duration, Option<Fault>) {
        let mut planned = self.planned();
        let delay = planned.delay;
        if planned.broken > 0 {
            planned.broken -= 1;
            return (delay, Some(Fault::Broken));
        }
        if let Some((count @ 1.., status)) = planned.refusals {
            planned.refusals = Some((count - 1, status));
            return (delay, Some(Fault::Refused(status)));
        }
        if is_write && planned.conflicts > 0 {
            planned.conflicts -= 1;
            return (delay, Some(Fault::Conflict));
        }
        (delay, None)
    }

    /// Wraps a client, so that its requests get these faults.
    pub(crate) fn before(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let faults = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (faults, client) = (faults.clone(), client.clone());
            async move { faults.send(&client, request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> io::Result<Response<Answer>> {
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
        // A watch is ended only by calls after this line.
        let mut ends = self.watches.subscribe();
        ends.mark_unchanged();
        let (delay, fault) = self.take(is_write);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match fault {
            Some(Fault::Broken) => Err(io::Error::other(BROKEN)),
            Some(Fault::Refused(status)) => Ok(refusal(status, "refused on purpose")),
            Some(Fault::Conflict) => {
                let message = "the object has been modified; please apply your changes to the latest version and try again";
                Ok(refusal(StatusCode::CONFLICT, message))
            }
            None => {
                let answer = client.send(request).await.map_err(io::Error::other)?;
                Ok(if is_watch {
                    ended_by(answer, ends)
                } else {
                    answer.map(|body| body.map_err(io::Error::other).boxed_unsync())
                })
            }
        }
    }
}

fn refusal(status: StatusCode, message: &str) -> Response<Answer> {
    let reason = match status {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::GONE => "Expired",
        _ => "InternalError",
    };
    let told = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    let mut response =
        Response::new(Full::from(told.to_string()).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", http::HeaderValue::from_static("application/json"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert("retry-after", http::HeaderValue::from_static("1"));
    }
    response
}

/// A watch that continues until it is ended.
fn ended_by(answer: Response<Body>, ends: watch::Receiver<(u64, End)>) -> Response<Answer> {
    answer.map(|body| {
        let beginning = Some((body.into_data_stream(), ends));
        let frames = stream::unfold(beginning, async |state| {
            let (mut events, mut ends) = state?;
            tokio::select! {
                biased;
                Ok(()) = ends.changed() => {
                    let (_, how) = *ends.borrow();
                    let last = match how {
                        End::Broken => Err(io::Error::other(BROKEN)),
                        End::Expired => Ok(Frame::data(expired())),
                    };
                    Some((last, None))
                }
                event = events.next() => {
                    let event = event?.map(Frame::data).map_err(io::Error::other);
                    Some((event, Some((events, ends))))
                }
            }
        });
        StreamBody::new(frames).boxed_unsync()
    })
}

fn expired() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}
