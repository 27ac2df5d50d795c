//! The record of a request: created when its head arrives, filled in by the steps of its handling, and read when its
//! response has been sent or its client has disconnected.
//!
//! Its readers are the metrics (`metrics`), the access log (`access_log`), the audit log (`audit`),
//! traces (`traces`), and the log of slow requests (`slow`).

mod access_log;
mod aftermath;
mod audit;
mod body;
mod metrics;
mod slow;
mod steps;
mod traces;
mod user_limits;

pub use access_log::TARGET as ACCESS_LOG;
pub use aftermath::{Aftermath, Ending, Parted};
pub use audit::{Audit, Destination, Policy, RequestObject, Rotation, apart};
pub use metrics::{
    Admission, CallTimes, CertificateEnds, ConvertedCalls, EndedCalls, KeptKind, Metrics, Observed,
    Registry, SourceInView, WatchEventCounter, prometheus_client,
};
pub use steps::Step;
pub use traces::{Traces, TracingConfiguration};

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, Uri};
use tokio::time::Instant;

use crate::admission::AuditAnnotations;
use crate::auth::{Attributes, Decision, Verdict};
use crate::error::{ApiError, Reason};
use crate::user::User;
use access_log::Said;
use audit::{Arrival, Recorded, Trail};
use body::Followed;
use metrics::Running;
use steps::Steps;
use traces::Trace;

/// The header with the identifier of a request in logs.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");

/// The status code of a request whose client disconnected before the response.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The record of a request. It is read when it is dropped: once the response has been
/// sent or the client has disconnected.
#[derive(Debug)]
pub struct Record {
    metrics: Option<Arc<Metrics>>,
    received: Instant,
    /// The duration of the request, once it has ended.
    took: Duration,
    method: Method,
    /// The fields of log lines. They are moved out of the head once the head is no longer needed.
    uri: Uri,
    audit_id: HeaderValue,
    steps: Steps,
    audit: Option<Arc<Audit>>,
    traces: Option<Arc<Traces>>,
    /// The trace of the request, once it is authenticated.
    trace: Option<Box<Trace>>,
    /// The audit trail of the request, once it is authenticated.
    trail: Option<Box<Trail>>,
    /// The meeting point with the end of a write that may outlive the request.
    aftermath: Option<Aftermath>,
    /// The fields that only the access log needs; `None` if it is off.
    said: Option<Box<Said>>,
    caller: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    /// The requested resource and verb, once they are known.
    pub attributes: Option<Arc<Attributes>>,
    /// Whether this server serves the requested resource. Only then is the resource among the labels of
    /// metrics, so that clients cannot add labels.
    pub is_served: bool,
    /// The resource and the subresource for metrics, if clients choose those of the path.
    pub labels: Option<(&'static str, &'static str)>,
    /// Whether the request is a dry run.
    pub is_dry_run: bool,
    /// Whether the request may last as long as a watch.
    pub is_long_running: bool,
    /// Whether the request opens a connection, or is forwarded by a proxy.
    pub is_connection: bool,
    code: u16,
    bytes: u64,
}

/// The origin of a request.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The head of the request.
    pub head: &'a Parts,
    /// The remote address of the connection.
    pub address: Option<IpAddr>,
    /// Whether the request has credentials, valid or not.
    pub has_credentials: bool,
    /// Whether kube-apiserver has forwarded the request.
    pub is_front_proxy: bool,
}

impl Record {
    fn new(
        head: &Parts,
        metrics: &Arc<Metrics>,
        (audit, traces): (Option<&Arc<Audit>>, Option<&Arc<Traces>>),
    ) -> Self {
        let mut record = Self::unread();
        record.method = head.method.clone();
        record.said = Said::of(head, audit_id(head));
        record.audit = audit.map(Arc::clone);
        record.traces = traces.map(Arc::clone);
        record.metrics = Some(Arc::clone(metrics));
        record
    }

    /// A record without readers.
    pub fn unread() -> Self {
        Self {
            metrics: None,
            received: Instant::now(),
            took: Duration::ZERO,
            method: Method::GET,
            uri: Uri::default(),
            audit_id: UNKNOWN,
            steps: Steps::default(),
            audit: None,
            traces: None,
            trace: None,
            trail: None,
            aftermath: None,
            said: None,
            caller: None,
            impersonated: None,
            attributes: None,
            is_served: false,
            labels: None,
            is_dry_run: false,
            is_long_running: false,
            is_connection: false,
            code: CLIENT_CLOSED_REQUEST,
            bytes: 0,
        }
    }

    /// Records the end of a step, and returns the time since the request arrived.
    pub fn reached(&mut self, step: Step) -> Duration {
        let after = self.received.elapsed();
        self.steps.reached(step, after);
        after
    }

    /// Records whether the request is authenticated.
    pub fn authenticated(&mut self, answer: &Result<Arc<User>, ApiError>, origin: &Origin<'_>) {
        let Origin { head, address, has_credentials, is_front_proxy } = *origin;
        let received = self.reached(Step::Authenticated);
        let result = match answer {
            Ok(_) => "success",
            Err(error) if error.reason() == Reason::Unauthorized && !has_credentials => "failure",
            Err(_) => "error",
        };
        if let Some(metrics) = &self.metrics {
            metrics.authenticated(result, self.steps.took(Step::Authenticated));
        }
        if let (Some(audit), Some(attributes)) = (&self.audit, &self.attributes) {
            let arrival = Arrival {
                head,
                audit_id: audit_id(head),
                address,
                attributes,
                is_long: self.is_watch() || self.is_long_running,
                received,
            };
            self.trail = Trail::begin(audit, &arrival, answer.as_ref().ok());
        }
        if let (Some(traces), Ok(user)) = (&self.traces, answer) {
            let arrival =
                traces::Arrival { head, address, is_from_front_proxy: is_front_proxy, received };
            self.trace = traces.begin(&arrival, user);
        }
    }

    /// Records whether the request is authorized, and the decision of the authorizers about the request itself.
    pub fn authorized(&mut self, answer: &Result<(), ApiError>, given: &Decision) {
        self.reached(Step::Authorized);
        if let Some(trail) = &mut self.trail {
            trail.authorized(answer, &given.reason);
        }
        let Some(metrics) = &self.metrics else { return };
        let result = match answer {
            Ok(()) => "allowed",
            Err(_) if given.verdict == Verdict::Deny => "denied",
            Err(error) if error.is_of_authorization() => "no-opinion",
            Err(_) => "error",
        };
        metrics.authorized(result, self.steps.took(Step::Authorized));
    }

    /// Records that a deprecated version of an API was requested.
    pub fn deprecated(&mut self) {
        if let Some(trail) = &mut self.trail {
            trail.deprecated();
        }
    }

    /// The audit event of the request for annotations of admission, if it has one.
    pub fn audit_annotations(&mut self) -> Option<Arc<dyn AuditAnnotations>> {
        self.trail.as_mut()?.annotations()
    }

    /// Whether a reader of the record needs the body of the request.
    pub fn wants_request_object(&self) -> bool {
        self.trail.is_some()
    }

    /// Records the body of the request.
    pub fn requested(&mut self, object: RequestObject<'_>) {
        if let Some(trail) = &mut self.trail {
            trail.requested(object);
        }
    }

    /// Records that a handler has panicked.
    pub fn panicked(&mut self, why: &str, head: &Parts) {
        if let (Some(trail), Some(attributes)) = (&mut self.trail, &self.attributes) {
            let recorded = Recorded { audit_id: audit_id(head), uri: &head.uri, attributes };
            trail.panicked(why, recorded);
        }
    }

    /// The meeting point with the end of a write that may outlive the request.
    pub fn aftermath(&mut self) -> Aftermath {
        let is_told = self.trail.is_some() || self.trace.is_some();
        let aftermath = Aftermath::new(self.metrics.clone(), is_told);
        self.aftermath = is_told.then(|| aftermath.clone());
        aftermath
    }

    /// Records that a chunk of the response was sent.
    fn sends(&mut self, piece: &Bytes) {
        self.bytes += piece.len() as u64;
        if let Some(trail) = &mut self.trail {
            trail.sends(piece);
        }
    }

    /// Records the error of a request that is rejected.
    pub fn refused(&mut self, error: &ApiError) {
        if let (Some(metrics), Some(bound)) = (&self.metrics, error.bound()) {
            metrics.rejected(bound);
        }
        if let Some(trail) = &mut self.trail {
            trail.refused(error);
        }
    }

    /// Records the authenticated user, before impersonation.
    pub fn set_user(&mut self, caller: &Arc<User>) {
        // Only the access log needs it.
        self.caller = self.said.is_some().then(|| Arc::clone(caller));
    }

    /// Records the impersonated user.
    pub fn set_impersonated_user(&mut self, user: &Arc<User>) {
        self.impersonated = self.said.is_some().then(|| Arc::clone(user));
        if let Some(trail) = &mut self.trail {
            trail.impersonates(user);
        }
    }

    /// Records the response. The record stays open until the response has been sent or the client has disconnected.
    fn answered(mut self, mut response: Response<Body>) -> Response<Body> {
        self.code = response.status().as_u16();
        let took = self.reached(Step::Answered);
        let mut is_followed = false;
        if let (Some(trail), Some(attributes)) = (&mut self.trail, &self.attributes) {
            let recorded = Recorded { audit_id: &self.audit_id, uri: &self.uri, attributes };
            trail.answered(self.code, response.headers(), recorded);
            is_followed = trail.wants_response();
        }
        if let Some(upgraded) = response.extensions().get::<Upgraded>().cloned() {
            response.headers_mut().insert(AUDIT_ID, self.audit_id.clone());
            let running = self.running();
            *upgraded.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((running, self));
            return response;
        }
        // The size of most responses is known, so their chunks are not counted.
        match response.body().size_hint().exact().filter(|_| !is_followed) {
            Some(bytes) => {
                self.bytes = bytes;
                self.finish(took);
                let audit_id = std::mem::replace(&mut self.audit_id, UNKNOWN);
                response.headers_mut().insert(AUDIT_ID, audit_id);
                response
            }
            None => {
                response.headers_mut().insert(AUDIT_ID, self.audit_id.clone());
                let running = self.running();
                response.map(|body| Body::new(Followed::new(body, self, running)))
            }
        }
    }

    /// Whether the client decides how long the request lasts, because it is a watch.
    fn is_watch(&self) -> bool {
        matches!(self.attributes.as_deref(), Some(Attributes::Resource { verb, .. }) if verb == "watch")
    }

    fn running(&self) -> Option<Running> {
        self.metrics.as_ref().and_then(|metrics| metrics.long_running(self))
    }
}

impl Record {
    /// Ends the record after this duration, and passes it to its readers.
    fn finish(&mut self, took: Duration) {
        self.took = took;
        if let Some(metrics) = self.metrics.take() {
            metrics.observe(self);
            slow::write(self);
            access_log::write(self);
            let trace = self.trace.take();
            if let Some(trace) = &trace {
                trace.end(self);
            }
            let mut trail = self.trail.take();
            if let (Some(trail), Some(attributes)) = (&mut trail, &self.attributes) {
                let recorded = Recorded { audit_id: &self.audit_id, uri: &self.uri, attributes };
                trail.complete(recorded);
            }
            if let Some(aftermath) = self.aftermath.take().filter(Aftermath::is_apart) {
                aftermath.leave(self, (trail, trace));
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.finish(self.received.elapsed());
    }
}

/// A request and its record. If the client disconnects before the response, the record takes the fields of log lines
/// from the head.
#[derive(Debug)]
pub struct Arrived {
    /// The head, whose header `Audit-ID` is the identifier of the request in logs.
    pub head: Parts,
    /// The record of the request.
    pub record: Record,
}

impl Arrived {
    /// Creates the record of a request that has just arrived. The head must contain an `Audit-ID`.
    pub fn new(
        head: Parts,
        metrics: &Arc<Metrics>,
        readers: (Option<&Arc<Audit>>, Option<&Arc<Traces>>),
    ) -> Self {
        let record = Record::new(&head, metrics, readers);
        Self { head, record }
    }

    /// Records the response and adds the `Audit-ID` of the request to it. The record stays open until the response has
    /// been sent or the client has disconnected.
    pub fn answered(mut self, response: Response<Body>) -> Response<Body> {
        self.name();
        std::mem::replace(&mut self.record, Record::unread()).answered(response)
    }

    /// Copies the identifier of the request to its record.
    fn name(&mut self) {
        self.record.uri = std::mem::take(&mut self.head.uri);
        self.record.audit_id = self.head.headers.remove(AUDIT_ID).unwrap_or(UNKNOWN);
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.name();
    }
}

/// The identifier of a request in logs.
fn audit_id(head: &Parts) -> &HeaderValue {
    static NONE: HeaderValue = UNKNOWN;
    head.headers.get(AUDIT_ID).unwrap_or(&NONE)
}

/// Holds the record of a request whose connection is upgraded. The record ends when the last copy of this value is
/// dropped.
#[derive(Clone, Default)]
pub struct Upgraded(Arc<Mutex<Option<Following>>>);

/// A record, and the count of running requests that includes it.
type Following = (Option<Running>, Record);
