//! The audit log: what a policy wants to be known of requests, in the words of kube-apiserver.
//!
//! A request that is written down has a [`Trail`], from the moment at which it is known who asks.
//! Nothing else costs anything: where there is no policy there are no trails.

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

use super::shares::Shares;
use super::{CLIENT_CLOSED_REQUEST, Ending};
use crate::admission::AuditAnnotations;
use crate::clock::Clock;
use crate::cluster::Attributes;
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

/// The body of a request or of an answer that is larger is left out, which an annotation says.
const OBJECT_LIMIT: usize = 1 << 20;
/// Bytes of bodies that are held for requests that are not over, a quarter of it for those of one user at
/// most. Beyond that they are left out, too.
const OBJECTS: usize = 32 << 20;
/// Bytes of annotations that are held, if the policy writes no bodies.
const ANNOTATIONS: usize = 4 << 20;

/// What a thread keeps to make lines in; larger ones are made in room of their own.
const LINE: usize = 16 << 10;

thread_local! {
    /// Where lines are made, so that no event needs room of its own.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The audit log of a server.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    log: Log,
    clock: Clock,
    levels: [AtomicU64; 4],
    /// Bytes of bodies and annotations that are held.
    objects: Mutex<Shares>,
}

/// What has become of events, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditCounts {
    /// Requests, by the level that the policy has for them.
    pub levels: [(&'static str, u64); 4],
    /// Events that were made.
    pub events: u64,
    /// Events for which there was no room.
    pub dropped: u64,
    /// Events that could not be written.
    pub failed: u64,
}

impl Audit {
    /// Begins to write events.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(policy: Policy, destination: Destination, clock: Clock) -> io::Result<Self> {
        let log = Log::open(destination)?;
        let objects = Mutex::new(Shares::of(held(&policy)));
        Ok(Self { policy, log, clock, levels: Default::default(), objects })
    }

    /// Bytes of memory that are kept for a request until it is over, besides what is counted as its head and its body.
    pub const MEMORY_OF_REQUEST: usize = size_of::<Trail>() + size_of::<Named>();

    /// Bytes of memory that events, and bodies that are held for them, take at most.
    pub fn memory(&self) -> usize {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        log::MEMORY + held(&self.policy) + threads * (LINE + callers::REMEMBERED)
    }

    /// Waits until all events are written that there are, for so long at most. It blocks the thread.
    pub fn flush(&self, longest: Duration) {
        self.log.flush(longest);
    }

    /// Does something with the room for bodies.
    fn objects<T>(&self, with: impl FnOnce(&mut Shares) -> T) -> T {
        with(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has become of events.
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

/// Bytes of bodies and annotations that are held at most.
fn held(policy: &Policy) -> usize {
    if policy.writes_bodies() { OBJECTS } else { ANNOTATIONS }
}

/// What is written down of one request, besides what its record says of it.
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
    /// What an object that is sent says of itself.
    named: Option<Box<Named>>,
    requested: Requested,
    response: Response,
    /// The code of the answer; 0 until there is one.
    code: u16,
    /// What is said of its end, where that is more than a code.
    status: Option<Box<RawValue>>,
    is_truncated: bool,
    decision: Option<&'static str>,
    reason: Option<Cow<'static, str>>,
    /// How the write ended, if that was after the request.
    ended: Option<&'static str>,
    /// Whether a deprecated version of an API was requested.
    is_deprecated: bool,
    /// The annotations that admission adds; `None` for a request that admission does not see.
    annotations: Option<Arc<AdmissionAnnotations>>,
    is_over: bool,
    /// Bytes of bodies that are held for it.
    held: usize,
}

/// What a record says of a request.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub audit_id: &'a HeaderValue,
    pub uri: &'a Uri,
    pub attributes: &'a Attributes,
}

/// A request that comes, as far as the audit log is concerned.
pub(super) struct Arrival<'a> {
    pub head: &'a Parts,
    pub audit_id: &'a HeaderValue,
    pub address: Option<IpAddr>,
    pub attributes: &'a Attributes,
    /// Whether it lasts as long as its client wants.
    pub is_long: bool,
    /// When it came.
    pub received: Duration,
}

impl Trail {
    /// What is written down of a request, if anything; `user` is `None` if it is nobody's.
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
            // Who is not known is told so at once.
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
        // As kube-apiserver: what nobody has asked is written down only when it is answered.
        if trail.user.is_some() {
            let Arrival { audit_id, attributes, .. } = *arrival;
            let recorded = Recorded { audit_id, uri: &head.uri, attributes };
            trail.write(Stage::RequestReceived, trail.received, recorded);
        }
        Some(trail)
    }

    /// The caller acts as somebody else.
    pub(super) fn impersonates(&mut self, user: &Arc<User>) {
        self.impersonated = Some(Arc::clone(user));
    }

    /// It is known whether the user may do it, and what was said of that.
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

    /// Whether the body of the request is written down.
    pub(super) fn wants_request(&self) -> bool {
        self.level >= Level::Request
    }

    /// The body of the request was read.
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

    /// It is refused.
    pub(super) fn refused(&mut self, error: &ApiError) {
        let status = error.to_status();
        self.status = objects::status(&status);
        if self.level == Level::RequestResponse {
            // What it says may quote what the client has sent.
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

    /// The head of the answer is made.
    pub(super) fn answered(&mut self, code: u16, headers: &HeaderMap, recorded: Recorded<'_>) {
        if self.is_over {
            return;
        }
        self.code = code;
        // A status tells more than its code: that of a deletion, and of what is posted to a subresource.
        let may_be_status = match recorded.attributes {
            Attributes::Resource { verb: "delete", .. } => true,
            Attributes::Resource { verb: "create", subresource, .. } => !subresource.is_empty(),
            _ => false,
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

    /// Whether what is sent is looked at.
    pub(super) fn wants_response(&self) -> bool {
        self.response.is_wanted()
    }

    /// A piece of the answer is sent.
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

    /// Code has failed over it.
    pub(super) fn panicked(&mut self, why: &str, recorded: Recorded<'_>) {
        self.status = objects::panic(why);
        self.write(Stage::Panic, self.audit.clock.now(), recorded);
        self.is_over = true;
    }

    /// Whether there is room to hold so many bytes more.
    fn hold(&mut self, bytes: usize) -> bool {
        let is_held = bytes == 0 || self.audit.objects(|room| room.take(self.name(), bytes));
        self.held += if is_held { bytes } else { 0 };
        is_held
    }

    /// Room that is not needed any longer.
    fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.held);
        if bytes > 0 {
            self.held -= bytes;
            self.audit.objects(|room| room.give_back(self.name(), bytes));
        }
    }

    /// Who asks; nothing if that is not known.
    fn name(&self) -> &str {
        self.user.as_ref().map_or("", |user| &user.name)
    }

    /// All is sent, or the client is gone.
    pub(super) fn complete(&mut self, recorded: Recorded<'_>) {
        if self.is_over || self.user.is_none() {
            return;
        }
        if std::thread::panicking() {
            // Its body is code, too.
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

    /// What remains of it for a write that goes on: no bodies, and nothing that is a part of all that has come with the
    /// request.
    pub(super) fn remains(mut self: Box<Self>) -> Box<Self> {
        (self.requested, self.response) = Default::default();
        self.give_back(self.held);
        self.user_agent = self.user_agent.as_ref().and_then(apart);
        self
    }

    /// The write has ended after its request. Another event says how, with the status that would have been answered.
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
                is_deprecated: self.is_deprecated,
                added: added.map(|added| &added.values),
            },
        };
        // A thread that ends has none.
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

/// JSON of something that always encodes.
fn raw(value: &impl serde::Serialize) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}
