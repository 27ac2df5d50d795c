//! Writes that outlive their requests.
//!
//! A request awaits its write. If the request ends first, by its deadline or because the client has disconnected, and
//! the write is in its critical section, then a task continues the write until it leaves the critical section. The
//! write owns its permits, its reservations and its memory, so these are released when the write has ended, and the
//! number of tasks is limited by the permits.
//!
//! If the store does not report whether it has committed, the request is answered at once. A task waits until the
//! guards of the write know the outcome (`write/guards`), which limit the number of these tasks.
//!
//! The audit log, traces, metrics and the log contain the end of each of these writes.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use futures::FutureExt;
use http::{HeaderValue, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use crate::blocking;
use crate::error::{ApiError, Reason};
use crate::kind::Kind;
use crate::log_throttle::LogThrottle;
use crate::record::{Aftermath, Ending, Parted, apart};
use crate::verb::Verb;
use crate::write::{CriticalSection, Outcome};

static ENDED: LogThrottle = LogThrottle::at_most(10);

/// The identification of a write in the log, and the record of its end.
pub(super) struct Named {
    pub verb: Verb,
    pub kind: Arc<Kind>,
    /// The audit ID of the request.
    pub audit_id: Option<HeaderValue>,
    pub aftermath: Aftermath,
}

/// The writes whose requests have ended.
#[derive(Clone, Default)]
pub(super) struct DetachedWrites(TaskTracker);

impl DetachedWrites {
    /// Returns when all detached writes have ended.
    pub(super) async fn ended(&self) {
        self.0.close();
        self.0.wait().await;
    }

    /// Runs a write. If the caller drops the returned future while the write is in its critical section, a task
    /// continues the write.
    pub(super) fn run<F>(
        &self,
        section: CriticalSection,
        named: Named,
        is_costly: bool,
        write: F,
    ) -> Awaited<F>
    where
        F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
    {
        let running = Running { write: Box::pin(write), section, named, is_costly };
        let (tasks, runtime) = (self.0.clone(), Handle::try_current().ok());
        Awaited { running: Some(running), tasks, runtime }
    }
}

/// A write that a request awaits.
pub(super) struct Awaited<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    running: Option<Running<F>>,
    tasks: TaskTracker,
    runtime: Option<Handle>,
}

struct Running<F> {
    write: Pin<Box<F>>,
    section: CriticalSection,
    named: Named,
    /// Whether each poll may take long.
    is_costly: bool,
}

impl<F> Future for Awaited<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A write that panics is not continued.
        let Some(mut running) = self.running.take() else {
            return Poll::Ready(Err(ApiError::internal("a write has ended already")));
        };
        let polled = running.write.as_mut().poll(context);
        if polled.is_pending() {
            self.running = Some(running);
            return polled;
        }
        let Running { section, named, .. } = running;
        if let Some(outcome) = section.take_unknown() {
            self.continues(&named.aftermath.clone(), settled(outcome, named.apart()));
        }
        polled
    }
}

impl<F> Drop for Awaited<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        running.named = running.named.apart();
        let aftermath = running.named.aftermath.clone();
        if running.section.is_entered() {
            self.continues(&aftermath, running.finish());
            return;
        }
        let Running { section, named, .. } = running;
        if let Some(outcome) = section.take_unknown() {
            self.continues(&aftermath, settled(outcome, named));
        } else if section.has_committed() {
            // The request ended between the commit and the response.
            aftermath.outlives();
            named.ended(committed(section.has_created()), Parted::RequestEnded, Duration::ZERO);
        }
    }
}

impl<F> Awaited<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    /// Spawns a task that continues a write after its request.
    fn continues(
        &mut self,
        aftermath: &Aftermath,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(runtime) = Handle::try_current().ok().or_else(|| self.runtime.take()) else {
            return;
        };
        aftermath.outlives();
        let task = self.tasks.track_future(task.instrument(Span::current()));
        drop(runtime.spawn(task));
    }
}

impl<F> Running<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    /// Continues the write until it leaves its critical section, and then records its end.
    async fn finish(self) {
        let Self { mut write, section, named, is_costly } = self;
        let since = Instant::now();
        let left = std::future::poll_fn(|context| {
            let polled = match is_costly {
                true => blocking::poll(write.as_mut(), context),
                false => write.as_mut().poll(context),
            };
            match polled {
                Poll::Ready(answer) => Poll::Ready(Some(answer.map(|answer| answer.status()))),
                Poll::Pending if !section.is_entered() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        let left = AssertUnwindSafe(left).catch_unwind().await;
        // The permits and the memory of the write are released before its end is recorded.
        drop(write);
        let ending = match left {
            Ok(left) => match section.take_unknown() {
                Some(outcome) => ending(outcome).await,
                None => named.ending(left, &section),
            },
            Err(_) => Ending::Panicked,
        };
        named.ended(ending, Parted::RequestEnded, since.elapsed());
    }
}

impl Named {
    /// Copies the audit ID, because it is a slice of a buffer that contains the whole head of the request.
    fn apart(self) -> Self {
        let audit_id = self.audit_id.as_ref().and_then(apart);
        Self { audit_id, ..self }
    }

    /// The end of a write with this response, or of a write that left its critical section without a response.
    fn ending(
        &self,
        answer: Option<Result<StatusCode, ApiError>>,
        section: &CriticalSection,
    ) -> Ending {
        // A deletion may commit several times, and may be rejected between two commits.
        let is_one_commit = matches!(self.verb, Verb::Create | Verb::Update | Verb::Patch);
        match answer {
            Some(Ok(status)) => Ending::Committed(status.as_u16()),
            Some(Err(_)) if is_one_commit && section.has_committed() => {
                committed(section.has_created())
            }
            Some(Err(error)) => Ending::Refused(error),
            None if section.has_committed() => committed(section.has_created()),
            None => Ending::Refused(ApiError::new(Reason::Timeout, "it would have begun again")),
        }
    }

    /// Records the end of a write, this long after its request.
    fn ended(self, ending: Ending, parted: Parted, after: Duration) {
        let Self { verb, kind, audit_id, aftermath } = self;
        let (outcome, code) = (ending.name(), ending.code());
        aftermath.ended(ending, parted);
        ENDED.log(|suppressed| {
            let (verb, kind) = (verb.name(), kind.qualified());
            let why = match parted {
                Parted::RequestEnded => "its request timed out or its client disconnected",
                Parted::OutcomeUnknown => "the store had not said whether it was committed",
            };
            tracing::warn!(
                suppressed,
                outcome,
                code,
                ?audit_id,
                "{verb} {kind}: ended {after:?} after {why}"
            );
        });
    }
}

/// The end of a committed write, by whether it created an object.
fn committed(is_created: bool) -> Ending {
    let status = if is_created { StatusCode::CREATED } else { StatusCode::OK };
    Ending::Committed(status.as_u16())
}

/// Waits for the outcome of a write whose outcome was unknown, and returns its end.
async fn ending(outcome: oneshot::Receiver<Outcome>) -> Ending {
    match outcome.await {
        Ok(Outcome::Committed { is_created }) => committed(is_created),
        Ok(Outcome::Refused(error)) => Ending::Refused(error),
        Ok(Outcome::Unknown) | Err(_) => Ending::Unknown,
    }
}

/// Records the end of a write that was answered before its outcome was known.
async fn settled(outcome: oneshot::Receiver<Outcome>, named: Named) {
    let since = Instant::now();
    let ending = ending(outcome).await;
    named.ended(ending, Parted::OutcomeUnknown, since.elapsed());
}
