//! What happened to a request: made when it comes, filled in by the steps that it goes
//! through, and read when its answer has been sent or the client has disconnected.
//!
//! Its readers are the metrics (`metrics`), the access log (`access_log`), the audit log (`audit`),
//! traces (`traces`), and the lines about requests that took long (`slow`).

mod access_log;
mod aftermath;
mod audit;
mod body;
mod metrics;
mod shares;
mod slow;
mod steps;
mod traces;

pub use access_log::TARGET as ACCESS_LOG;
pub use aftermath::{Aftermath, Ending, Parted};
pub use audit::{Audit, Destination, Policy, RequestObject, Rotation, apart};
pub use metrics::{
    Admission, CallTimes, CertificateEnds, ConvertedCalls, EndedCalls, KeptKind, Metrics, Observed,
    SourceInView, WatchEventCounter,
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
use crate::cluster::Attributes;
use crate::error::{ApiError, Reason};
use crate::user::User;
use access_log::Said;
use audit::{Arrival, Recorded, Trail};
use body::Followed;
use metrics::Running;
use steps::Steps;
use traces::Trace;

/// What a request is called in logs.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");

/// The status code of a request whose client disconnected before the answer.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What happened to a request. It is read when it is dropped: once its answer has been
/// sent or the client has disconnected.
#[derive(Debug)]
pub struct Record {
    metrics: Option<Arc<Metrics>>,
    received: Instant,
    /// How long it took, once it is over.
    took: Duration,
    method: Method,
    /// What lines say, once its head is not needed for anything else: nothing is copied.
    uri: Uri,
    audit_id: HeaderValue,
    steps: Steps,
    audit: Option<Arc<Audit>>,
    traces: Option<Arc<Traces>>,
    /// What is told of it in its trace, once it is known who asks.
    trace: Option<Box<Trace>>,
    /// What the audit log says of it, once it is known who asks.
    trail: Option<Box<Trail>>,
    /// Where the end of its write is told, if that may outlive it.
    aftermath: Option<Aftermath>,
    /// What only the access log says, if it is written.
    said: Option<Box<Said>>,
    caller: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    /// What is asked for, once that is known.
    pub attributes: Option<Arc<Attributes>>,
    /// Whether what is asked for is served here: only then is it among the labels of
    /// metrics, which clients cannot add to.
    pub is_served: bool,
    /// Whether everything is checked and nothing is kept.
    pub is_dry_run: bool,
    code: u16,
    bytes: u64,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Its head.
    pub head: &'a Parts,
    /// The other end of the connection.
    pub address: Option<IpAddr>,
    /// Whether it says who asks, truly or not.
    pub has_credentials: bool,
    /// Whether kube-apiserver has sent it on.
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

    /// A record that nobody reads.
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
            is_dry_run: false,
            code: CLIENT_CLOSED_REQUEST,
            bytes: 0,
        }
    }

    /// Records that the request has come to the end of a step; answers how long after it came.
    pub fn reached(&mut self, step: Step) -> Duration {
        let after = self.received.elapsed();
        self.steps.reached(step, after);
        after
    }

    /// Records whether it is known who asks.
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
                is_long: self.is_watch(),
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

    /// Records whether the user may do it, and what was said of that.
    pub fn authorized(&mut self, answer: &Result<(), ApiError>, reason: &str) {
        self.reached(Step::Authorized);
        if let Some(trail) = &mut self.trail {
            trail.authorized(answer, reason);
        }
        let Some(metrics) = &self.metrics else { return };
        let result = match answer {
            Ok(()) => "allowed",
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

    /// Whether what the request brings is looked at by somebody.
    pub fn wants_request_object(&self) -> bool {
        self.trail.is_some()
    }

    /// Records what the request brings.
    pub fn requested(&mut self, object: RequestObject<'_>) {
        if let Some(trail) = &mut self.trail {
            trail.requested(object);
        }
    }

    /// Records that code has failed over it.
    pub fn panicked(&mut self, why: &str, head: &Parts) {
        if let (Some(trail), Some(attributes)) = (&mut self.trail, &self.attributes) {
            let recorded = Recorded { audit_id: audit_id(head), uri: &head.uri, attributes };
            trail.panicked(why, recorded);
        }
    }

    /// Where a write of the request tells of its end, if it outlives the request.
    pub fn aftermath(&mut self) -> Aftermath {
        let is_told = self.trail.is_some() || self.trace.is_some();
        let aftermath = Aftermath::new(self.metrics.clone(), is_told);
        self.aftermath = is_told.then(|| aftermath.clone());
        aftermath
    }

    /// Records that a piece of the answer is sent.
    fn sends(&mut self, piece: &Bytes) {
        self.bytes += piece.len() as u64;
        if let Some(trail) = &mut self.trail {
            trail.sends(piece);
        }
    }

    /// Records why it is refused.
    pub fn refused(&mut self, error: &ApiError) {
        if let (Some(metrics), Some(bound)) = (&self.metrics, error.bound()) {
            metrics.rejected(bound);
        }
        if let Some(trail) = &mut self.trail {
            trail.refused(error);
        }
    }

    /// Records the user who is authenticated, before impersonation.
    pub fn set_user(&mut self, caller: &Arc<User>) {
        // Only the access log says it.
        self.caller = self.said.is_some().then(|| Arc::clone(caller));
    }

    /// Records the user who is impersonated.
    pub fn set_impersonated_user(&mut self, user: &Arc<User>) {
        self.impersonated = self.said.is_some().then(|| Arc::clone(user));
        if let Some(trail) = &mut self.trail {
            trail.impersonates(user);
        }
    }

    /// Records the answer, until it has been sent or the client has disconnected.
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
        // Mostly its size is known, and nothing has to be followed.
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

    /// Whether it lasts as long as its client wants.
    fn is_watch(&self) -> bool {
        matches!(self.attributes.as_deref(), Some(Attributes::Resource { verb: "watch", .. }))
    }

    fn running(&self) -> Option<Running> {
        self.metrics.as_ref().and_then(|metrics| metrics.long_running(self))
    }
}

impl Record {
    /// It is over, so long after it came: whoever reads it is told.
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

/// A request that has come, and its record. When its client goes before it is answered, the record has what lines
/// say of it from its head.
#[derive(Debug)]
pub struct Arrived {
    /// Its head, in which the header `Audit-ID` says what it is called in logs.
    pub head: Parts,
    /// What happens to it.
    pub record: Record,
}

impl Arrived {
    /// A request that has just come, whose head has an `Audit-ID`.
    pub fn new(
        head: Parts,
        metrics: &Arc<Metrics>,
        readers: (Option<&Arc<Audit>>, Option<&Arc<Traces>>),
    ) -> Self {
        let record = Record::new(&head, metrics, readers);
        Self { head, record }
    }

    /// Records the answer, until it has been sent or the client has disconnected. Its `Audit-ID` is that
    /// of the request.
    pub fn answered(mut self, response: Response<Body>) -> Response<Body> {
        self.name();
        std::mem::replace(&mut self.record, Record::unread()).answered(response)
    }

    /// Names the request in its record.
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

/// What a request is called in logs.
fn audit_id(head: &Parts) -> &HeaderValue {
    static NONE: HeaderValue = UNKNOWN;
    head.headers.get(AUDIT_ID).unwrap_or(&NONE)
}

/// Holds the record of a request whose connection goes on as something else: it is over
/// when the last copy of this is dropped.
#[derive(Clone, Default)]
pub struct Upgraded(Arc<Mutex<Option<Following>>>);

/// A record, and what counts its request as running.
type Following = (Option<Running>, Record);
