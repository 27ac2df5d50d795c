//! The path of a request, one line per step.
//!
//! route → deadline → authenticate → impersonate → authorize → negotiate → read → throttle → decode → verb or write →
//! encode. A step never calls another step; only this file does.

mod answers;
mod authenticate;
mod authorize;
mod bounds;
mod connection_priority;
mod deadline;
mod decode;
mod detached;
mod documents;
mod encode;
pub mod head;
mod impersonate;
mod mutation;
mod negotiate;
mod query;
mod refusal;
mod route;
mod served;
mod stream_reset;
mod throttle;
mod update_follower;
mod websocket;
mod write_context;

pub use answers::{Answer, Answers, without_body};
pub use authenticate::{Authentication, ClientCertificate, Peer, Presented};
pub use bounds::Bounds;
pub use connection_priority::ConnectionPriority;
pub use deadline::REQUEST_TIMEOUT;
pub use documents::Documents;
pub use impersonate::Impersonation;
pub use refusal::{panicked, refuse};
pub use stream_reset::StreamReset;
pub use throttle::Inflights;

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::body::Body;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use tokio::sync::Mutex;
use tracing::Instrument;

use crate::admission::{AdmissionChain, AdmissionTime};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::codec::YamlParsers;
use crate::conversion::{ConversionWebhooks, known};
use crate::document;
use crate::error::{ApiError, Reason};
use crate::kind::Kind;
use crate::log_throttle::shown;
use crate::quota::{Account, Quota};
use crate::record::{
    AUDIT_ID, Admission, Arrived, Audit, CertificateEnds, Metrics, Origin, Record, Step, Traces,
};
use crate::served_kind::{ServedKind, ServedKinds};
use crate::user::User;
use crate::verb::{self, DeleteOptions, Subresource, Verb};
use crate::watch_cache::SourceState;
use crate::write::{
    CommitLimit, CriticalSection, ManagedFields, Part, SlowWrites, UnsettledWrites,
};
use authorize::{Authorized, Permission, Revoked};
use decode::{Operation, Redacted};
use detached::{DetachedWrites, Named};
use encode::stream::WatchContext;
use encode::{Encoder, SharedForms, stream};
use mutation::Mutation;
use negotiate::{InProtobuf, Media, Negotiated, Presentation};
use refusal::{FAILURES, panic_text, refuse_as};
use route::{Destination, Route, Target};
use served::{Served, observed};
use throttle::{Permit, Throttle};
use update_follower::UpdateFollower;

/// The maximum length of an audit ID that is returned and logged, in bytes.
const LONGEST_AUDIT_ID: usize = 1 << 10;

/// The memory that is reserved while a document is built, in bytes; few documents are larger.
const DOCUMENT: usize = 64 << 10;

/// The user of a request, with the response that memory is charged to.
struct Caller<'a> {
    user: &'a Arc<User>,
    answer: &'a Answer,
    /// The permission that a watch depends on while it is open.
    permission: Option<Permission>,
    /// The fields that are omitted from objects for this caller.
    authorized: Authorized,
}

/// The shared state of all requests.
pub struct Handler {
    served: Arc<ArcSwap<Served>>,
    authentication: Authentication,
    cluster: Cluster,
    /// The admission plugins.
    admission: AdmissionChain,
    clock: Clock,
    throttle: Throttle,
    /// The memory of responses until they have been sent.
    answers: Answers,
    /// Encoded watch events that watches share.
    forms: SharedForms,
    /// The memory limit for the bodies of writes and for the objects parsed from them.
    quota: Quota,
    yaml: YamlParsers,
    metrics: Arc<Metrics>,
    audit: Option<Arc<Audit>>,
    traces: Option<Arc<Traces>>,
    documents: Documents,
    openapi_turn: Arc<Mutex<()>>,
    /// The queue of slow writes.
    turns: SlowWrites,
    /// Limits the commits of `system:masters`, whose requests in flight are not limited.
    commits_of_masters: CommitLimit,
    /// The limit of commits that are not settled.
    unsettled: UnsettledWrites,
    /// Writes that continue after their requests have ended.
    detached: DetachedWrites,
    /// Whether objects have `metadata.managedFields`.
    managed_fields: ManagedFields,
    /// The longest duration of a request that is not a watch.
    request_timeout: Duration,
    /// Callbacks that must finish before an update is answered.
    update_follower: UpdateFollower,
}

impl Handler {
    /// Creates a handler that serves these kinds.
    pub fn new(
        kinds: ServedKinds,
        authentication: Authentication,
        cluster: Cluster,
        mut admission: AdmissionChain,
        clock: Clock,
        bounds: &Bounds,
        webhooks: Arc<ConversionWebhooks>,
    ) -> Self {
        let throttle = Throttle::new(bounds.throttle);
        let served = Arc::new(ArcSwap::from_pointee(Served::new(kinds)));
        let look = {
            let (served, inflight) = (Arc::clone(&served), throttle.inflight());
            Arc::new(move || observed(&served.load(), &webhooks, inflight()))
        };
        let metrics = Arc::new(Metrics::new(look));
        let observer = Arc::clone(&metrics);
        cluster.observe_reviews(Arc::new(move |review| observer.reviewed(review)));
        let observer = Arc::clone(&metrics);
        admission.set_observer(Arc::new(move |time| {
            let AdmissionTime { plugin, operation, validates, rejected, took } = *time;
            let operation = operation.name();
            observer.admitted(Admission { plugin, operation, validates, rejected, took });
        }));
        Self {
            metrics,
            audit: None,
            traces: None,
            served,
            authentication,
            cluster,
            admission,
            clock,
            throttle,
            answers: Answers::new(bounds.answers),
            forms: SharedForms::new(bounds.forms),
            quota: Quota::of_trees(bounds.trees),
            yaml: YamlParsers::new(bounds.yaml_parsers),
            documents: Documents {
                version: document::Document::json(&serde_json::Value::Null),
                others: HashMap::new(),
            },
            openapi_turn: Arc::default(),
            turns: SlowWrites::default(),
            commits_of_masters: CommitLimit::new(bounds.commits),
            unsettled: UnsettledWrites::default(),
            detached: DetachedWrites::default(),
            managed_fields: ManagedFields::default(),
            request_timeout: REQUEST_TIMEOUT,
            update_follower: UpdateFollower::default(),
        }
    }

    /// Sets the longest duration of requests that are not watches.
    #[must_use]
    pub fn with_request_timeout(self, request_timeout: Duration) -> Self {
        Self { request_timeout, ..self }
    }

    /// Sets whether objects have `metadata.managedFields`.
    #[must_use]
    pub fn with_managed_fields(self, managed_fields: ManagedFields) -> Self {
        Self { managed_fields, ..self }
    }

    /// Sets the audit log, if there is one.
    #[must_use]
    pub fn with_audit(self, audit: Option<Arc<Audit>>) -> Self {
        if let Some(audit) = &audit {
            self.metrics.set_audit(Arc::clone(audit));
        }
        Self { audit, ..self }
    }

    /// Sets the exporter of traces, if there is one.
    #[must_use]
    pub fn with_traces(self, traces: Option<Arc<Traces>>) -> Self {
        if let Some(traces) = &traces {
            self.metrics.set_traces(Arc::clone(traces));
        }
        Self { traces, ..self }
    }

    /// Waits until writes whose requests have ended are committed, the audit log is written, and the spans are sent; at
    /// most for this time.
    pub async fn flush(&self, longest: Duration) {
        let began = Instant::now();
        // One fifth of the time is reserved for the audit events and the spans of the last writes.
        let _ = tokio::time::timeout(longest * 4 / 5, self.detached.ended()).await;
        let longest = longest.saturating_sub(began.elapsed());
        let traces = async {
            if let Some(traces) = &self.traces {
                traces.flush(longest).await;
            }
        };
        let audit = async {
            if let Some(audit) = self.audit.clone() {
                // The flush blocks. The task fails only if the process does.
                let _ = tokio::task::spawn_blocking(move || audit.flush(longest)).await;
            }
        };
        tokio::join!(traces, audit);
    }

    /// Whether objects have `metadata.managedFields`.
    pub fn managed_fields(&self) -> ManagedFields {
        self.managed_fields
    }

    /// Sets the documents.
    #[must_use]
    pub fn with_documents(self, documents: Documents) -> Self {
        Self { documents, ..self }
    }

    /// Adds the expiry times of certificates to the metrics.
    pub fn set_certificate_ends(&self, ends: CertificateEnds) {
        self.metrics.set_certificate_ends(ends);
    }

    /// Registers a callback for the updates of a kind, given by its qualified name (`foos.example.com`). The callback
    /// receives the name of the updated object, and the update is answered when the callback has finished.
    pub fn follow_updates(
        &self,
        qualified: &str,
        follow: impl Fn(&str) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        self.update_follower.set(qualified, Box::new(follow));
    }

    /// The queue of slow writes.
    pub fn turns(&self) -> &SlowWrites {
        &self.turns
    }

    /// The kinds that are currently served.
    pub fn kinds(&self) -> ServedKinds {
        self.served.load().kinds.clone()
    }

    /// The state of the sources of computed kinds, one entry per source. If only a part of a source is synced, the
    /// entry has the worst state.
    pub fn sources(&self) -> Vec<SourceState> {
        self.served.load().sources()
    }

    /// Replaces the kinds that are served.
    pub fn serve(&self, kinds: ServedKinds) {
        self.served.store(Arc::new(Served::new(kinds)));
    }

    /// The responses that have not been sent yet.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Handles a request. Errors are returned as responses too.
    pub async fn handle(
        self: &Arc<Self>,
        peer: &Peer,
        held: &Answer,
        request: Request<Body>,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        self.name(&mut head);
        let readers = (self.audit.as_ref(), self.traces.as_ref());
        let mut arrived = Arrived::new(head, &self.metrics, readers);
        let Arrived { head, record } = &mut arrived;
        let audit_id = head.headers.get(AUDIT_ID);
        let span = tracing::debug_span!("request", method = %head.method, ?audit_id);
        // Panics are caught, because rules are written by users of this library.
        let answer = self.answer_in_time((peer, held), head, body, record);
        let answer = AssertUnwindSafe(answer.instrument(span)).catch_unwind().await;
        let mut response = match answer {
            Ok(answer) => answer.unwrap_or_else(|error| {
                record.refused(&error);
                refuse_as(&error, negotiate::refusal(head))
            }),
            Err(what) => {
                FAILURES.log(|suppressed| {
                    let path = shown(&head.uri);
                    let method = &head.method;
                    tracing::error!(
                        suppressed,
                        %method,
                        path,
                        ?audit_id,
                        "request is about to fail"
                    );
                });
                record.panicked(panic_text(&*what), head);
                panicked(&*what)
            }
        };
        keep_out_of_caches(&mut response);
        if head.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        arrived.answered(response)
    }

    async fn answer_in_time(
        self: &Arc<Self>,
        (peer, held): (&Peer, &Answer),
        head: &Parts,
        body: Body,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        let route = route::route(&self.served.load().kinds, head)?;
        record.attributes = Some(Arc::clone(&route.attributes));
        record.is_served = matches!(route.destination, Destination::Target(_));
        let deadline = deadline::deadline(head, route.is_watch(), self.request_timeout)?;
        let answer = self.answer((peer, held), route, head, body, record);
        let answer = tokio::time::timeout(deadline, answer).await;
        answer.unwrap_or_else(|_| {
            let message = "Timeout: request did not complete within the allotted timeout";
            Err(ApiError::new(Reason::Timeout, message))
        })
    }

    async fn answer(
        self: &Arc<Self>,
        (peer, held): (&Peer, &Answer),
        route: Route,
        head: &Parts,
        body: Body,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        let user = self.user(peer, head, record).await?;
        let _head = self.throttle.head(&user, head)?;
        let mut reason = String::new();
        let authorized = authorize::authorize(&self.cluster, &user, &route, &mut reason).await;
        let (answer, authorized) = match authorized {
            Ok(authorized) => (Ok(()), authorized),
            Err(error) => (Err(error), Authorized::default()),
        };
        record.authorized(&answer, &reason);
        answer?;
        let permission = route.is_watch().then(|| Permission::of(&self.cluster, &user, &route));
        let caller = Caller { user: &user, answer: held, permission, authorized };
        let answer = match route.destination {
            Destination::Document(document) => {
                // Some documents are built for each request.
                let _room = held.room(&user, DOCUMENT).await?;
                let answer = self.document(head, &document).await;
                record.is_served = answer.is_ok();
                answer
            }
            // kube-apiserver forwards requests for every registered resource, and to every replica: also to one of the
            // previous release. The replica must not respond that the object does not exist, because dependents of the
            // object would be deleted then.
            Destination::Unserved { group, version, resource } if peer.is_front_proxy() => {
                Err(ApiError::not_served_yet(&group, &version, &resource))
            }
            Destination::Unserved { .. } => Err(ApiError::no_such_resource()),
            Destination::Refused(error) => match self.documents.others.get(head.uri.path()) {
                Some(document) if matches!(head.method, Method::GET | Method::HEAD) => {
                    record.is_served = true;
                    let plain = Presentation { media: Media::Json, gzip: false };
                    Ok(encode::document(head, document, plain))
                }
                _ => Err(error),
            },
            Destination::Target(target) => self.target(caller, target, head, body, record).await,
        };
        let Some(warning) = route.deprecation else { return answer };
        record.deprecated();
        let mut response = answer.unwrap_or_else(|error| {
            record.refused(&error);
            refuse_as(&error, negotiate::refusal(head))
        });
        encode::warn(&mut response, &[warning]);
        Ok(response)
    }

    /// Returns the user of a request: the caller, or the user that it impersonates.
    async fn user(
        &self,
        peer: &Peer,
        head: &Parts,
        record: &mut Record,
    ) -> Result<Arc<User>, ApiError> {
        let caller = {
            let network = peer.unknown_from();
            let head_of = |network| self.throttle.head_of_stranger(network, head);
            let _head = network.map(head_of).transpose()?;
            let answer = authenticate::authenticate(&self.authentication, peer, head).await;
            let answer = answer.map(Arc::new);
            let origin = Origin {
                head,
                address: peer.address(),
                has_credentials: authenticate::has_credentials(peer, head),
                is_front_proxy: peer.is_front_proxy(),
            };
            record.authenticated(&answer, &origin);
            answer?
        };
        record.set_user(&caller);
        let impersonation = self.authentication.impersonation;
        let Some(acting) = impersonate::requested(impersonation, &head.headers)? else {
            return Ok(caller);
        };
        for demand in &acting.demands {
            authorize::demand(&self.cluster, &caller, demand).await?;
        }
        tracing::debug!(user = caller.name, impersonates = acting.user.name, "impersonation");
        let user = Arc::new(acting.user);
        record.set_impersonated_user(&user);
        Ok(user)
    }

    /// Handles a request for a resource.
    async fn target(
        self: &Arc<Self>,
        caller: Caller<'_>,
        target: Target,
        head: &Parts,
        body: Body,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        if let Some(why) = &target.served.unavailable {
            let kind = target.served.kind.qualified();
            let message = format!(
                "{kind} are kept by the deployed server and could not be copied from there: {why}"
            );
            return Err(ApiError::new(Reason::ServiceUnavailable, message));
        }
        let user = caller.user;
        let body_permit = self.throttle.body(user, &body)?;
        decode::begin(&target, head, self.managed_fields)?;
        let (kind, _) = target.body_kind();
        let in_protobuf = match &target.subresource {
            // Events on a WebSocket are lines of text.
            _ if websocket::is_asked_for(head) => InProtobuf::Nothing,
            Some(Subresource { kind: Some(_), .. }) => InProtobuf::Objects,
            _ if kind.is_typed() => InProtobuf::Objects,
            _ => InProtobuf::Metadata,
        };
        let Negotiated { format, objection } =
            negotiate::negotiate(head, target.verb, in_protobuf)?;
        let account = self.quota.account(&user.name, user.is_master());
        // The body is read before the request takes a slot. Slow senders therefore occupy no slots. An unread body
        // would also block other requests on the same connection.
        let body = decode::read(&target, head, body, &self.yaml).await?;
        record.reached(Step::Read);
        let mut permit = self.throttle.throttle(user, &target).await?;
        let waited = permit.waited();
        let is_json_patch = decode::is_json_patch(&target, head);
        let is_costly = throttle::is_costly(&target, &body, is_json_patch);
        if is_costly {
            permit.turn = self.throttle.turn(user).await?;
        }
        record.reached(Step::Admitted);
        let is_watch = target.verb == Verb::Watch;
        // Boxed, because a request that waits for a slot does not need the memory of this future yet.
        let mut executed = Box::pin(async {
            let mut operation = decode::decode(&target, head, &body, &account, &self.yaml).await?;
            if record.wants_request_object()
                && let Some(object) = operation.brings(&body)
            {
                record.requested(object);
            }
            if target.served.kind.hides_from(user) {
                operation.show_to(user);
            }
            let mut caller = caller;
            let redacted = match target.served.computed_from() {
                Some(from) => {
                    let Authorized { missing, missing_to_select } = &mut caller.authorized;
                    if let Some(more) = missing_to_select.take()
                        && operation.selects_by(from, more.rights)
                    {
                        *missing = more;
                    }
                    // This call is also necessary for callers that see all fields, because a revision records which
                    // fields were hidden when it was issued.
                    operation.redact(from, missing.rights)?
                }
                None => Redacted::default(),
            };
            if let Some(revision) = redacted.passed {
                target.served.cache.pass(revision);
            }
            record.is_dry_run = operation.is_dry_run();
            record.reached(Step::Decoded);
            let freshness = operation.freshness();
            if !freshness.is_at_hand(&target.served) {
                // While a request waits for fresh data, other requests can use its slot.
                drop(std::mem::take(&mut permit));
                let (began, kind) = (Instant::now(), &target.served.kind);
                let fresh = verb::await_freshness(&target.served, freshness).await;
                self.metrics.waited(&kind.group, &kind.names.plural, began.elapsed());
                fresh?;
                permit = self.throttle.throttle(user, &target).await?;
                record.reached(Step::Fresh);
            }
            if let Some(selector) = operation.selector() {
                self.throttle.reader(user, selector, head, &mut permit)?;
            }
            let (kind, version) = target.body_kind();
            let encoder = Encoder::new(kind, version, format, self.clock.now(), &self.forms);
            if operation.is_read() {
                let operation = (operation, redacted);
                return self.execute(caller, &target, operation, encoder, permit, &account).await;
            }
            let section = match user.is_master() {
                true => CriticalSection::limited(self.commits_of_masters.clone()),
                false => CriticalSection::default(),
            };
            let audit_id = head.headers.get(AUDIT_ID).cloned();
            let named = Named {
                verb: target.verb,
                kind: Arc::clone(&target.served.kind),
                audit_id,
                aftermath: record.aftermath(),
            };
            let mutation = Mutation {
                handler: Arc::clone(self),
                user: Arc::clone(user),
                answer: caller.answer.clone(),
                target,
                operation,
                encoder,
                permit,
                account,
                sent: (body, body_permit),
                section: section.clone(),
                audit: record.audit_annotations(),
            };
            self.detached.run(section, named, is_costly, mutation.execute()).await
        });
        let executed = poll_fn(|context| match is_costly {
            true => crate::blocking::poll(executed.as_mut(), context),
            false => executed.as_mut().poll(context),
        });
        let mut response = executed.await?;
        encode::say_waited(&mut response, waited);
        match objection {
            Some(objection) => Err(objection),
            None if is_watch && websocket::is_asked_for(head) => {
                websocket::send(head, response.into_body()).await
            }
            None => Ok(response),
        }
    }

    /// Executes a read and encodes the response. Some fields of the objects may be omitted.
    async fn execute(
        &self,
        caller: Caller<'_>,
        target: &Target,
        (operation, redacted): (Operation, Redacted),
        encoder: Encoder,
        permit: Permit,
        account: &Account,
    ) -> Result<Response<Body>, ApiError> {
        let (served, version) = (&target.served, &target.version);
        let Caller { user, answer: held, permission, authorized } = caller;
        let is_scale = target.part() == Part::Scale;
        let within = self.request_timeout;
        let reader = || {
            let (answer, user, account) = (held.clone(), Arc::clone(user), account.clone());
            stream::Reader { answer, user, account, within }
        };
        match operation {
            Operation::Get(key, options) => {
                let versioned = if is_scale {
                    verb::get_scale(served, version, &key, options, account).await?
                } else {
                    verb::get(served, &key, options).await?
                };
                let _room = held.room_for(user, &versioned).await?;
                let warnings = reading_warnings(served, &authorized);
                let encode = || encoder.object(&versioned, StatusCode::OK, &warnings);
                known(&served.kind, account, encode).await?
            }
            Operation::List(scope, options) => {
                let listed = verb::list(served, scope, options, account).await?;
                let warnings = reading_warnings(served, &authorized);
                let mut response = stream::list(encoder, listed, permit, reader()).await?;
                encode::warn(&mut response, &warnings);
                Ok(response)
            }
            Operation::Watch(scope, options, lasts) => {
                if served.ended.is_cancelled() {
                    return Err(watches_end());
                }
                let watching = verb::watch(served, scope, options, account).await?;
                let (group, plural) = (&served.kind.group, &served.kind.names.plural);
                let clock = self.clock.clone();
                let revoked = match permission {
                    _ if redacted.must_list => std::future::ready(Revoked::Fields).boxed(),
                    Some(permission) => permission.ended(clock.clone(), redacted.missing).boxed(),
                    None => futures::future::pending().boxed(),
                };
                let context = WatchContext {
                    lasts,
                    closing: &target.served.ended,
                    clock,
                    permit,
                    sent: self.metrics.watch_events(group, &version.name, plural),
                    reader: reader(),
                    revoked,
                };
                let format = encoder.format();
                let events = stream::watch(encoder, watching, context).await?;
                Ok(encode::watching(&format, events))
            }
            _ => Err(ApiError::internal("a write is carried out as a read")),
        }
    }

    /// Authenticates and authorizes a request for a path that is served outside of this handler.
    ///
    /// # Errors
    /// 401, 403, or 500 if the cluster cannot be queried.
    pub async fn permit(&self, peer: &Peer, head: &Parts) -> Result<(), Box<Response<Body>>> {
        let permitted = async {
            let mut record = Record::unread();
            let user = self.user(peer, head, &mut record).await?;
            let _head = self.throttle.head(&user, head)?;
            let route = route::route(&self.served.load().kinds, head)?;
            authorize::authorize(&self.cluster, &user, &route, &mut String::new()).await
        };
        permitted.await.map(drop).map_err(|error| {
            let mut response = refuse(&error);
            keep_out_of_caches(&mut response);
            Box::new(response)
        })
    }

    /// Adds an audit ID to a request, unless the request has a usable one.
    fn name(&self, head: &mut Parts) {
        let is_usable = |id: &HeaderValue| (1..=LONGEST_AUDIT_ID).contains(&id.len());
        if !head.headers.get(AUDIT_ID).is_some_and(is_usable) {
            let random = u128::from(self.clock.random()) << 64 | u128::from(self.clock.random());
            let id = uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid();
            let id = HeaderValue::from_str(&id.to_string());
            head.headers.insert(AUDIT_ID, id.unwrap_or(HeaderValue::from_static("unknown")));
        }
    }
}

/// Rejects a watch that would end immediately, because client-go lists all objects again after a watch without events.
/// A rejected watch is retried: at another server, or with the new definition of the kind.
fn watches_end() -> ApiError {
    const WHY: &str = "watches end, because the server or the definition of their kind does: please try again later.";
    ApiError::try_again(WHY, 1)
}

/// Warnings for readers of a computed kind: the state of its sources, and the omitted fields.
fn reading_warnings(served: &ServedKind, authorized: &Authorized) -> Vec<String> {
    if served.computed_from().is_none() {
        return Vec::new();
    }
    let sources = served.cache.sources();
    let of_sources = sources.iter().filter_map(SourceState::warning);
    // If the cluster does not have a resource, nothing is omitted.
    let is_absent = |resource: &str| {
        sources.iter().any(|source| source.resource == resource && source.is_rightly_absent)
    };
    let left_out = authorized.missing.left_out.iter().filter(|one| !is_absent(&one.resource));
    of_sources
        .chain(left_out.map(|one| format!("{}: what that would add is left out", one.why)))
        .collect()
}

/// Warnings for a deletion of objects of a kind.
fn deletion_warnings(kind: &Kind, options: &DeleteOptions) -> Vec<String> {
    let warning =
        kind.strategy.warning_without_propagation_policy.filter(|_| options.propagation.is_none());
    warning.map(str::to_owned).into_iter().collect()
}

/// Forbids caching of a response that has no `Cache-Control` of its own.
fn keep_out_of_caches(response: &mut Response<Body>) {
    let none = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(CACHE_CONTROL).or_insert(none);
}

/// A handler that many connections share.
pub type SharedHandler = Arc<Handler>;
