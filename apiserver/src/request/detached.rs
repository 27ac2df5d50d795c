//! Writes that outlive their requests.
//!
//! A request awaits its write. If the request ends first, by its deadline or because the client has disconnected, and
//! the write is in its critical section, then a task continues the write until it leaves the critical section. The
//! write owns its permits, its reservations and its memory, so these are released when the write has ended, and the
//! number of tasks is limited by the permits.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use futures::FutureExt;
use http::{HeaderValue, Response};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use crate::aside;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::occasionally::Occasionally;
use crate::record::{Metrics, PostTimeout};
use crate::verb::Verb;
use crate::write::CriticalSection;

static ENDED: Occasionally = Occasionally::at_most(10);

/// What a write is called in the log: its verb, its kind, and the id of its request.
pub(super) type Named = (Verb, Arc<Kind>, Option<HeaderValue>);

/// Where writes go whose requests have ended.
#[derive(Clone)]
pub(super) struct DetachedWrites {
    tasks: TaskTracker,
    metrics: Arc<Metrics>,
}

impl DetachedWrites {
    /// None yet; metrics count how they end.
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { tasks: TaskTracker::new(), metrics }
    }

    /// Returns when all detached writes have ended.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs a write: it is continued by a task if the caller drops this in the critical section of the write.
    pub(super) fn run<F>(
        &self,
        section: CriticalSection,
        (verb, kind, audit_id): Named,
        is_costly: bool,
        write: F,
    ) -> Awaited<F>
    where
        F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
    {
        let (write, detached) = (Box::pin(write), self.clone());
        let running = Running { write, section, verb, kind, audit_id, is_costly, detached };
        Awaited { running: Some(running), runtime: Handle::try_current().ok() }
    }
}

/// A write that a request awaits.
pub(super) struct Awaited<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    running: Option<Running<F>>,
    runtime: Option<Handle>,
}

struct Running<F> {
    write: Pin<Box<F>>,
    section: CriticalSection,
    verb: Verb,
    kind: Arc<Kind>,
    audit_id: Option<HeaderValue>,
    /// Whether each poll may take long.
    is_costly: bool,
    detached: DetachedWrites,
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
        }
        polled
    }
}

impl<F> Drop for Awaited<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    fn drop(&mut self) {
        let Some(running) = self.running.take().filter(|one| one.section.is_entered()) else {
            return;
        };
        let Some(runtime) = Handle::try_current().ok().or_else(|| self.runtime.take()) else {
            return;
        };
        let tasks = running.detached.tasks.clone();
        let task = running.finish().instrument(Span::current());
        drop(runtime.spawn(tasks.track_future(task)));
    }
}

impl<F> Running<F>
where
    F: Future<Output = Result<Response<Body>, ApiError>> + Send + 'static,
{
    /// Continues the write until it leaves its critical section; then records how it has ended.
    async fn finish(self) {
        let Self { mut write, section, verb, kind, audit_id, is_costly, detached } = self;
        let since = Instant::now();
        let left = std::future::poll_fn(|context| {
            let polled = match is_costly {
                true => aside::poll(write.as_mut(), context),
                false => write.as_mut().poll(context),
            };
            match polled {
                Poll::Ready(answer) => Poll::Ready(Some(answer.is_ok())),
                Poll::Pending if !section.is_entered() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        let status = match AssertUnwindSafe(left).catch_unwind().await {
            Ok(Some(true)) => PostTimeout::Ok,
            Ok(None) if section.has_committed() => PostTimeout::Ok,
            Ok(_) => PostTimeout::Error,
            Err(_) => PostTimeout::Panic,
        };
        // Its permits and its memory are released before anybody is told.
        drop(write);
        detached.metrics.ended_after_timeout(status);
        ENDED.log(|suppressed| {
            let (after, status) = (since.elapsed(), status.name());
            let (verb, kind) = (verb.name(), kind.qualified());
            tracing::warn!(
                suppressed,
                status,
                ?audit_id,
                "{verb} {kind}: ended {after:?} after its request timed out or its client disconnected"
            );
        });
    }
}
