//! The audit log: what a policy wants to be known of requests, in the words of kube-apiserver.
//!
//! A request that is written down has a [`Trail`], from the moment at which it is known who asks.
//! Nothing else costs anything: where there is no policy there are no trails.

mod event;
mod log;
mod objects;
mod policy;
mod rotation;
mod shares;

pub use log::Destination;
pub use policy::Policy;
pub use rotation::Rotation;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};

use super::CLIENT_CLOSED_REQUEST;
use crate::clock::Clock;
use crate::cluster::Attributes;
use crate::error::ApiError;
use crate::user::User;
use event::{Event, ObjectReference, UserInfo, micro_time};
use log::Log;
pub use objects::RequestObject;
use objects::{Requested, Response};
use policy::{Level, Stage};
use shares::Shares;

/// At most so much of a user agent is written down; as kube-apiserver.
const USER_AGENT_LIMIT: usize = 1_024;
/// No more proxies than that are written down: a watch keeps them for hours.
const PROXIES: usize = 64;
/// The body of a request or of an answer that is larger is left out, which an annotation says.
const OBJECT_LIMIT: usize = 1 << 20;
/// Bytes of bodies that are held for requests that are not over, a quarter of it for those of one user at
/// most. Beyond that they are left out, too.
const OBJECTS: usize = 32 << 20;

const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
/// Says, as kube-apiserver does, that bodies were left out.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The audit log of a server.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    log: Log,
    clock: Clock,
    levels: [AtomicU64; 4],
    /// Bytes of bodies that are held.
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
        let objects = Mutex::new(Shares::of(OBJECTS));
        Ok(Self { policy, log, clock, levels: Default::default(), objects })
    }

    /// Waits until all events are written that there are, five seconds at most. It blocks the thread.
    pub fn flush(&self) {
        self.log.flush();
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

/// What is written down of one request.
#[derive(Debug)]
pub(super) struct Trail {
    audit: Arc<Audit>,
    level: Level,
    omitted: u8,
    omits_managed_fields: bool,
    is_long: bool,
    received: Timestamp,
    audit_id: String,
    uri: String,
    verb: String,
    user: Option<User>,
    impersonated: Option<User>,
    source_ips: Vec<String>,
    user_agent: String,
    object_ref: Option<ObjectReference>,
    requested: Requested,
    response: Response,
    status: Option<Box<RawValue>>,
    annotations: BTreeMap<&'static str, String>,
    is_over: bool,
    /// Bytes of bodies that are held for it.
    held: usize,
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
    pub received: std::time::Duration,
}

impl Trail {
    /// What is written down of a request, if anything; `user` is `None` if it is nobody's.
    pub(super) fn begin(
        audit: &Arc<Audit>,
        arrival: &Arrival<'_>,
        user: Option<&User>,
    ) -> Option<Box<Self>> {
        let verdict = audit.policy.judge(user, arrival.attributes);
        if let Some(counter) = audit.levels.get(verdict.level as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if verdict.level == Level::None {
            return None;
        }
        let (head, attributes) = (arrival.head, arrival.attributes);
        let (verb, object_ref) = match attributes {
            Attributes::Path { verb, .. } => (verb.clone(), None),
            Attributes::Resource {
                verb,
                group,
                version,
                resource,
                subresource,
                namespace,
                name,
            } => {
                let object_ref = ObjectReference {
                    resource: resource.clone(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                    api_group: group.clone(),
                    api_version: version.clone(),
                    subresource: subresource.clone(),
                    ..ObjectReference::default()
                };
                ((*verb).to_owned(), Some(object_ref))
            }
        };
        let now = audit.clock.now();
        let trail = Box::new(Self {
            audit: Arc::clone(audit),
            level: verdict.level,
            omitted: verdict.omitted(),
            omits_managed_fields: verdict.omits_managed_fields,
            // Who is not known is told so at once.
            is_long: arrival.is_long || user.is_none(),
            received: now.checked_sub(arrival.received).unwrap_or(now),
            audit_id: text(arrival.audit_id),
            uri: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            verb,
            user: user.cloned(),
            impersonated: None,
            source_ips: source_ips(&head.headers, arrival.address),
            user_agent: user_agent(&head.headers),
            object_ref,
            requested: Requested::default(),
            response: Response::default(),
            status: None,
            annotations: BTreeMap::new(),
            is_over: false,
            held: 0,
        });
        // As kube-apiserver: what nobody has asked is written down only when it is answered.
        if trail.user.is_some() {
            trail.write(Stage::RequestReceived, trail.received);
        }
        Some(trail)
    }

    /// The caller acts as somebody else.
    pub(super) fn impersonates(&mut self, user: &User) {
        self.impersonated = Some(user.clone());
    }

    /// It is known whether the user may do it, and what was said of that.
    pub(super) fn authorized(&mut self, answer: &Result<(), ApiError>, reason: &str) {
        let decision = match answer {
            Ok(()) => "allow",
            Err(error) if error.is_of_authorization() => "forbid",
            Err(_) => {
                self.annotations.insert(REASON, "internal error".to_owned());
                return;
            }
        };
        self.annotations.insert(DECISION, decision.to_owned());
        self.annotations.insert(REASON, reason.to_owned());
    }

    /// Whether the body of the request is written down.
    pub(super) fn wants_request(&self) -> bool {
        self.level >= Level::Request
    }

    /// The body of the request was read.
    pub(super) fn requested(&mut self, object: RequestObject<'_>) {
        let keeps = self.wants_request();
        self.requested.take(object, keeps, self.omits_managed_fields, &mut self.object_ref);
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
    pub(super) fn answered(&mut self, code: u16, headers: &HeaderMap) {
        if self.is_over {
            return;
        }
        if self.status.is_none() {
            self.status = objects::code(code);
        }
        let is_change = matches!(self.verb.as_str(), "create" | "delete");
        // A status tells more than its code.
        let limit = match self.level {
            Level::RequestResponse => OBJECT_LIMIT,
            _ if is_change => objects::STATUS_LIMIT,
            _ => 0,
        };
        let is_watch = self.verb == "watch";
        self.response.begin(headers, if is_watch { 0 } else { limit });
        if self.is_long {
            self.write(Stage::ResponseStarted, self.audit.clock.now());
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
    pub(super) fn panicked(&mut self, why: &str) {
        self.status = objects::panic(why);
        self.write(Stage::Panic, self.audit.clock.now());
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
    fn complete(&mut self) {
        if self.is_over || self.user.is_none() {
            return;
        }
        if std::thread::panicking() {
            // Its body is code, too.
            self.panicked("what is answered has failed");
            return;
        }
        if self.status.is_none() {
            self.status = objects::disconnected(CLIENT_CLOSED_REQUEST);
        }
        if let Some(status) = self.response.finish(self.omits_managed_fields) {
            self.status = Some(status);
        }
        let keeps = self.level == Level::RequestResponse;
        let is_truncated = self.requested.is_truncated || (keeps && self.response.is_truncated());
        if is_truncated {
            self.annotations.insert(TRUNCATED, "true".to_owned());
        }
        self.write(Stage::ResponseComplete, self.audit.clock.now());
    }

    fn write(&self, stage: Stage, time: Timestamp) {
        if self.omitted & 1 << stage as u8 != 0 {
            return;
        }
        let keeps_response = self.level == Level::RequestResponse;
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.level.name(),
            audit_id: &self.audit_id,
            stage: stage.name(),
            request_uri: &self.uri,
            verb: &self.verb,
            user: self.user.as_ref().map(UserInfo::of).unwrap_or_default(),
            impersonated_user: self.impersonated.as_ref().map(UserInfo::of),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object_ref: self.object_ref.as_ref(),
            response_status: self.status.as_deref(),
            request_object: self.requested.object.as_deref(),
            response_object: self.response.object.as_deref().filter(|_| keeps_response),
            request_received_timestamp: micro_time(self.received),
            stage_timestamp: micro_time(time),
            annotations: &self.annotations,
        };
        self.audit.log.take(event.line(), self.name());
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.complete();
        self.give_back(self.held);
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn user_agent(headers: &HeaderMap) -> String {
    objects::cut(headers.get(USER_AGENT).map(text).unwrap_or_default(), USER_AGENT_LIMIT)
}

/// Where a request comes from: what proxies say, and the other end of the connection.
fn source_ips(headers: &HeaderMap, address: Option<IpAddr>) -> Vec<String> {
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
    let first = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = first("x-forwarded-for").unwrap_or_default();
    let mut all: Vec<IpAddr> = forwarded.split(',').take(PROXIES).filter_map(parse).collect();
    if let Some(real) = first("x-real-ip").and_then(parse)
        && !all.contains(&real)
    {
        all.push(real);
    }
    if let Some(address) = address
        && all.last() != Some(&address)
    {
        all.push(address);
    }
    all.iter().map(ToString::to_string).collect()
}

/// JSON of something that always encodes.
fn raw(value: &impl serde::Serialize) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}
