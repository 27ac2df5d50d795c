//! The audit log: the events of requests that a policy selects, in the format of kube-apiserver.
//!
//! A request with an event has a [`Trail`] from its authentication on. Other requests cost nothing: without a policy there
//! are no trails.

mod annotations;
mod callers;
mod event;
mod log;
mod objects;
mod origin;
mod policy;
mod queue;
mod rotation;
mod sink;
mod text;

pub use log::Destination;
pub use policy::Policy;
pub use rotation::Rotation;

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri};
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};

use super::user_limits::UserLimits;
use super::{CLIENT_CLOSED_REQUEST, Ending};
use crate::admission::AuditAnnotations;
use crate::auth::Attributes;
use crate::clock::Clock;
use crate::error::ApiError;
use crate::user::User;
use annotations::AdmissionAnnotations;
use callers::Caller;
pub use callers::apart;
use event::{Addresses, Annotations, Event, Named, Status, verb};
use log::Log;
pub use objects::RequestObject;
use objects::{Requested, Response};
use origin::{source_ips, user_agent};
use policy::{Level, Stage};

/// The largest body in an event, in bytes. A larger body is omitted, and an annotation of the event notes that.
const OBJECT_LIMIT: usize = 1 << 20;
/// The largest size of all bodies that are held for running requests, in bytes. One user may hold a quarter of it. Bodies
/// beyond this limit are omitted.
const OBJECTS: usize = 32 << 20;
/// The largest size of all annotations that are held, in bytes, if the policy records no bodies.
const ANNOTATIONS: usize = 4 << 20;

/// The capacity of the buffer of a thread, in bytes. A larger line gets a buffer of its own.
const LINE: usize = 16 << 10;

thread_local! {
    /// The buffer for lines, so that an event allocates no memory.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The audit log of a server.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    log: Log,
    clock: Clock,
    levels: [AtomicU64; 4],
    /// The bytes of bodies and annotations that are held.
    objects: Mutex<UserLimits>,
}

/// Counters of events, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditCounts {
    /// The requests, by the level that the policy has for them.
    pub levels: [(&'static str, u64); 4],
    /// The events that were created.
    pub events: u64,
    /// The events that were dropped because the queue was full.
    pub dropped: u64,
    /// The events that could not be written.
    pub failed: u64,
}

impl Audit {
    /// Opens the log.
    ///
    /// # Errors
    /// The error of the file system if the file cannot be opened.
    pub fn open(policy: Policy, destination: Destination, clock: Clock) -> io::Result<Self> {
        let log = Log::open(destination)?;
        let objects = Mutex::new(UserLimits::of(held(&policy)));
        Ok(Self { policy, log, clock, levels: Default::default(), objects })
    }

    /// The bytes that a request reserves until it ends, besides those of its head and its body.
    pub const MEMORY_OF_REQUEST: usize = size_of::<Trail>() + size_of::<Named>();

    /// The largest size of events, and of bodies and annotations that are held for them, in bytes.
    pub fn memory(&self) -> usize {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        log::MEMORY + held(&self.policy) + threads * (LINE + callers::REMEMBERED)
    }

    /// Waits until all present events are written, at most for this duration. It blocks the thread.
    pub fn flush(&self, longest: Duration) {
        self.log.flush(longest);
    }

    /// Calls a function with the account of bodies and annotations.
    fn objects<T>(&self, with: impl FnOnce(&mut UserLimits) -> T) -> T {
        with(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The counters of events.
    pub fn counts(&self) -> AuditCounts {
        let counts = self.log.counts();
        let all = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut levels = [("", 0); 4];
        for ((level, counter), slot) in all.into_iter().zip(&self.levels).zip(&mut levels) {
            *slot = (level.name(), of(counter));
        }
        AuditCounts {
            levels,
            events: of(&counts.events),
            dropped: of(&counts.dropped),
            failed: of(&counts.failed),
        }
    }
}

/// The largest size of bodies and annotations that are held, in bytes.
fn held(policy: &Policy) -> usize {
    if policy.writes_bodies() { OBJECTS } else { ANNOTATIONS }
}

/// The data of the events of one request, besides those of its record.
#[derive(Debug)]
pub(super) struct Trail {
    audit: Arc<Audit>,
    level: Level,
    omitted: u8,
    omits_managed_fields: bool,
    is_long: bool,
    received: Timestamp,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    source_ips: Addresses,
    user_agent: Option<HeaderValue>,
    /// The identity of an object in a request body.
    named: Option<Box<Named>>,
    requested: Requested,
    response: Response,
    /// The status code of the response; 0 until there is a response.
    code: u16,
    /// The `responseStatus`, where it is more than a code.
    status: Option<Box<RawValue>>,
    is_truncated: bool,
    decision: Option<&'static str>,
    reason: Option<Cow<'static, str>>,
    /// The outcome of a write that was still running when the response was sent, for example after a timeout.
    ended: Option<&'static str>,
    /// Whether a deprecated version of an API was requested.
    is_deprecated: bool,
    /// The annotations that admission adds; `None` for a request that admission does not see.
    annotations: Option<Arc<AdmissionAnnotations>>,
    is_over: bool,
    /// The bytes of bodies that are held for the request.
    held: usize,
}

/// The fields of an event that a record has.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub audit_id: &'a HeaderValue,
    pub uri: &'a Uri,
    pub attributes: &'a Attributes,
}

/// A request that arrives, as far as the audit log reads it.
pub(super) struct Arrival<'a> {
    pub head: &'a Parts,
    pub audit_id: &'a HeaderValue,
    pub address: Option<IpAddr>,
    pub attributes: &'a Attributes,
    /// Whether the client decides how long the request lasts, as of a watch.
    pub is_long: bool,
    /// The time of arrival.
    pub received: Duration,
}

impl Trail {
    /// The trail of a request, if the policy selects it. `user` is `None` for a request that is not authenticated.
    pub(super) fn begin(
        audit: &Arc<Audit>,
        arrival: &Arrival<'_>,
        user: Option<&Arc<User>>,
    ) -> Option<Box<Self>> {
        let verdict = audit.policy.judge(user.map(Arc::as_ref), arrival.attributes);
        if let Some(counter) = audit.levels.get(verdict.level as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if verdict.level == Level::None {
            return None;
        }
        let head = arrival.head;
        let now = audit.clock.now();
        let trail = Box::new(Self {
            audit: Arc::clone(audit),
            level: verdict.level,
            omitted: verdict.omitted(),
            omits_managed_fields: verdict.omits_managed_fields,
            // A request that is not authenticated has the stage `ResponseStarted`, same as in kube-apiserver.
            is_long: arrival.is_long || user.is_none(),
            received: now.checked_sub(arrival.received).unwrap_or(now),
            user: user.map(Arc::clone),
            impersonated: None,
            source_ips: source_ips(&head.headers, arrival.address),
            user_agent: user_agent(&head.headers, arrival.is_long),
            named: None,
            requested: Requested::default(),
            response: Response::default(),
            code: 0,
            status: None,
            is_truncated: false,
            decision: None,
            reason: None,
            ended: None,
            is_deprecated: false,
            annotations: None,
            is_over: false,
            held: 0,
        });
        // Same as kube-apiserver: a request that is not authenticated has no event before its response.
        if trail.user.is_some() {
            let Arrival { audit_id, attributes, .. } = *arrival;
            let recorded = Recorded { audit_id, uri: &head.uri, attributes };
            trail.write(Stage::RequestReceived, trail.received, recorded);
        }
        Some(trail)
    }

    /// Notes that the caller impersonates another user.
    pub(super) fn impersonates(&mut self, user: &Arc<User>) {
        self.impersonated = Some(Arc::clone(user));
    }

    /// Notes the decision of the authorizer, and its reason.
    pub(super) fn authorized(&mut self, answer: &Result<(), ApiError>, reason: &str) {
        self.decision = match answer {
            Ok(()) => Some("allow"),
            Err(error) if error.is_of_authorization() => Some("forbid"),
            Err(_) => {
                self.reason = Some(Cow::Borrowed("internal error"));
                return;
            }
        };
        self.reason = Some(match reason {
            "" => Cow::Borrowed(""),
            reason => Cow::Owned(reason.to_owned()),
        });
    }

    /// Notes that a deprecated version of an API was requested.
    pub(super) fn deprecated(&mut self) {
        self.is_deprecated = true;
    }

    /// The annotations that admission adds.
    pub(super) fn annotations(&mut self) -> Option<Arc<dyn AuditAnnotations>> {
        let user = self.user.as_ref()?;
        let new = || Arc::new(AdmissionAnnotations::new(&self.audit, user, self.level));
        Some(Arc::clone(self.annotations.get_or_insert_with(new)) as Arc<dyn AuditAnnotations>)
    }

    /// Whether events hold the body of the request.
    pub(super) fn wants_request(&self) -> bool {
        self.level >= Level::Request
    }

    /// Notes the body of the request.
    pub(super) fn requested(&mut self, object: RequestObject<'_>) {
        if let RequestObject::Object(object) = object {
            self.named = Some(Box::new(objects::named(object)));
        }
        if !self.wants_request() {
            return;
        }
        self.requested.take(object, self.omits_managed_fields);
        let bytes = self.requested.object.as_ref().map_or(0, |object| object.get().len());
        if !self.hold(bytes) {
            self.requested.leave_out();
        }
    }

    /// Notes that the request is refused.
    pub(super) fn refused(&mut self, error: &ApiError) {
        let status = error.to_status();
        self.status = objects::status(&status);
        if self.level == Level::RequestResponse {
            // The message may quote the body of the request.
            let object = raw(&status).filter(|object| object.get().len() <= OBJECT_LIMIT);
            match object {
                Some(object) if self.hold(object.get().len()) => {
                    self.response.object = Some(object);
                }
                _ => {
                    self.response.leave_out();
                }
            }
        }
    }

    /// Notes the head of the response.
    pub(super) fn answered(&mut self, code: u16, headers: &HeaderMap, recorded: Recorded<'_>) {
        if self.is_over {
            return;
        }
        self.code = code;
        // A Status has more information than its code: that of a deletion, and of an object that is posted to a subresource.
        let may_be_status = match recorded.attributes {
            Attributes::Resource { verb, subresource, .. } => {
                verb == "delete" || (verb == "create" && !subresource.is_empty())
            }
            Attributes::Path { .. } => false,
        };
        let limit = match self.level {
            _ if verb(recorded.attributes) == "watch" => 0,
            Level::RequestResponse => OBJECT_LIMIT,
            _ if may_be_status => objects::STATUS_LIMIT,
            _ => 0,
        };
        self.response.begin(headers, limit);
        if self.is_long {
            self.write(Stage::ResponseStarted, self.audit.clock.now(), recorded);
        }
    }

    /// Whether events hold the body of the response.
    pub(super) fn wants_response(&self) -> bool {
        self.response.is_wanted()
    }

    /// Notes a chunk of the response.
    pub(super) fn sends(&mut self, piece: &Bytes) {
        if self.response.is_wanted() {
            if self.response.keeps(piece) && self.hold(piece.len()) {
                self.response.take(piece);
            } else {
                let kept = self.response.leave_out();
                self.give_back(kept);
            }
        }
    }

    /// Notes that a handler has panicked.
    pub(super) fn panicked(&mut self, why: &str, recorded: Recorded<'_>) {
        self.status = objects::panic(why);
        self.write(Stage::Panic, self.audit.clock.now(), recorded);
        self.is_over = true;
    }

    /// Reserves this number of bytes; returns whether they fit.
    fn hold(&mut self, bytes: usize) -> bool {
        let is_held = bytes == 0 || self.audit.objects(|room| room.take(self.name(), bytes));
        self.held += if is_held { bytes } else { 0 };
        is_held
    }

    /// Returns reserved bytes.
    fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.held);
        if bytes > 0 {
            self.held -= bytes;
            self.audit.objects(|room| room.give_back(self.name(), bytes));
        }
    }

    /// The user; `None` if the request is not authenticated.
    fn name(&self) -> &str {
        self.user.as_ref().map_or("", |user| &user.name)
    }

    /// Notes that the response has been sent, or that the client has disconnected.
    pub(super) fn complete(&mut self, recorded: Recorded<'_>) {
        if self.is_over || self.user.is_none() {
            return;
        }
        if std::thread::panicking() {
            // The body of a response may panic, too.
            self.panicked("what is answered has failed", recorded);
            return;
        }
        if self.code == 0 && self.status.is_none() {
            self.status = objects::disconnected(CLIENT_CLOSED_REQUEST);
        }
        if let Some(status) = self.response.finish(self.omits_managed_fields) {
            self.status = Some(status);
        }
        let keeps = self.level == Level::RequestResponse;
        self.is_truncated = self.requested.is_truncated || (keeps && self.response.is_truncated());
        self.write(Stage::ResponseComplete, self.audit.clock.now(), recorded);
        self.is_over = true;
    }

    /// The trail for a write that goes on after its request: without bodies, and without references to the buffer of the
    /// head.
    pub(super) fn remains(mut self: Box<Self>) -> Box<Self> {
        (self.requested, self.response) = Default::default();
        self.give_back(self.held);
        self.user_agent = self.user_agent.as_ref().and_then(apart);
        self
    }

    /// Notes that the write has ended after its request. Another event has the status that the response would have had.
    pub(super) fn ended(&mut self, ending: &Ending, recorded: Recorded<'_>) {
        self.ended = Some(ending.name());
        self.is_truncated = false;
        self.code = ending.code();
        self.status = match ending {
            Ending::Committed(_) => None,
            Ending::Refused(error) => objects::status(&error.to_status()),
            Ending::Panicked => objects::panic("the write has failed after its request"),
            Ending::Unknown => objects::unknown(self.code),
        };
        self.write(Stage::ResponseComplete, self.audit.clock.now(), recorded);
    }

    fn write(&self, stage: Stage, time: Timestamp, recorded: Recorded<'_>) {
        if self.omitted & 1 << stage as u8 != 0 {
            return;
        }
        let Recorded { audit_id, uri, attributes } = recorded;
        let added = self.annotations.as_deref().map(AdmissionAnnotations::state);
        let added = added.as_deref();
        let keeps_response = self.level == Level::RequestResponse;
        let event = Event {
            level: self.level,
            audit_id,
            stage,
            request_uri: uri.path_and_query().map_or("", |path| path.as_str()),
            attributes,
            named: self.named.as_deref(),
            caller: Caller {
                user: self.user.as_ref(),
                impersonated: self.impersonated.as_deref(),
                source_ips: &self.source_ips,
                user_agent: self.user_agent.as_ref(),
            },
            response_status: match (&self.status, self.code) {
                (Some(status), _) => Status::Said(status),
                (None, 0) => Status::Unknown,
                (None, code) => Status::Code(code),
            },
            request_object: self.requested.object.as_deref(),
            response_object: self.response.object.as_deref().filter(|_| keeps_response),
            received: self.received,
            time,
            annotations: Annotations {
                ended: self.ended,
                is_truncated: self.is_truncated || added.is_some_and(|added| added.is_truncated),
                decision: self.decision,
                reason: self.reason.as_deref(),
                // kube-apiserver adds this annotation at the end of the request.
                is_deprecated: self.is_deprecated && stage == Stage::ResponseComplete,
                added: added.map(|added| &added.values),
            },
        };
        // A thread that ends has no buffer any longer.
        let mut line = ROOM.try_with(Cell::take).unwrap_or_default();
        event.write(&mut line);
        self.audit.log.take(&line, self.name());
        if line.capacity() <= LINE {
            line.clear();
            let _ = ROOM.try_with(|room| room.set(line));
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

/// The JSON of a value that always serializes.
fn raw(value: &impl serde::Serialize) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}
