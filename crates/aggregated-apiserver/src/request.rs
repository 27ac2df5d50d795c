//! The path of a request, one line per step.
//!
//! route → deadline → authenticate → impersonate → authorize → negotiate → read → throttle → decode → refresh → execute →
//! encode. A step never calls another step; only this file does. `read` executes reads, `mutation` executes writes, and
//! both pass the result to `respond`, which encodes it.

mod admitted;
mod answers;
mod authenticate;
mod authorize;
mod bounds;
mod caller;
mod connection_priority;
mod custom;
mod deadline;
mod decode;
mod detached;
mod documents;
mod encode;
mod fetch;
mod handler;
pub mod head;
mod impersonate;
mod mutation;
mod negotiate;
mod query;
mod read;
mod refusal;
mod respond;
mod route;
mod served;
mod stream_reset;
mod throttle;
mod update_follower;
mod websocket;
mod write_context;

pub use crate::openapi::ChangeDocument;
pub use answers::{Answer, without_body};
pub use authenticate::{Authentication, Peer, Presented};
pub use bounds::Bounds;
pub use connection_priority::ConnectionPriority;
pub use deadline::REQUEST_TIMEOUT;
pub use documents::Documents;
pub use handler::{Handler, SharedHandler};
pub use impersonate::Impersonation;
pub use refusal::{panic_text, panicked, refuse};
pub use stream_reset::{Activity, Close, ConnectionHandle, StreamReset};
pub use throttle::Inflights;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use futures::FutureExt;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response};
use tracing::Instrument;

use crate::auth::Decision;
use crate::error::{ApiError, Reason};
use crate::log_throttle::shown;
use crate::record::{AUDIT_ID, Arrived, Origin, Record, Step};
use crate::user::User;
use crate::verb::{self, Freshness, Operation, Redacted, Selection, ServedSubresource, Verb};
use admitted::Admitted;
use authorize::{Authorized, Permission};
use caller::Caller;
use custom::{CustomRequest, CustomTarget};
use negotiate::{InProtobuf, Media, Negotiated, Presentation};
use refusal::{FAILURES, refuse_as};
use route::{Destination, Route, Target};
use throttle::Permit;

/// The maximum length of an audit ID that is returned and logged, in bytes.
const LONGEST_AUDIT_ID: usize = 1 << 10;

/// The memory that is reserved while a document is built, in bytes; few documents are larger.
const DOCUMENT: usize = 64 << 10;

impl Handler {
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
                log_panic(head);
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
        record.is_served =
            matches!(route.destination, Destination::Target(_) | Destination::Path(_));
        record.labels = route.labels();
        record.is_long_running = route.longest().is_some();
        record.is_connection = route.custom().is_some_and(|custom| custom.is_connected());
        let deadline = match route.longest() {
            Some(longest) => longest,
            None => deadline::deadline(head, route.is_watch(), self.request_timeout)?,
        };
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
        let is_upgrade = websocket::is_upgrade(head);
        let authorized = self.authorize(&user, (&route, is_upgrade), record).await?;
        let is_long = route.is_watch() || route.longest().is_some();
        let permission = is_long.then(|| Permission::of(&self.cluster, &user, &route, is_upgrade));
        let caller = Caller { user: &user, answer: held, permission, authorized };
        let Route { destination, deprecation, .. } = route;
        let answer = match destination {
            // Boxed, because most requests do not need the memory of this future.
            Destination::Path(target) => {
                let custom = Arc::clone(&target.custom);
                let target = CustomTarget::Path(target);
                let request = CustomRequest { caller, target, custom, head, is_upgrade };
                Box::pin(self.custom(request, body, record)).await
            }
            Destination::Target(target) => match target.custom().cloned() {
                Some(custom) => {
                    let target = CustomTarget::Subresource(target);
                    let request = CustomRequest { caller, target, custom, head, is_upgrade };
                    Box::pin(self.custom(request, body, record)).await
                }
                None => self.resource(caller, target, head, body, record).await,
            },
            other => self.other_path(peer, &caller, other, head, record).await,
        };
        let Some(warning) = deprecation else { return answer };
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
                has_credentials: authenticate::has_credentials(&self.authentication, peer, head),
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

    /// Authorizes a request, and records the decision. The flag says whether the request upgrades its connection.
    async fn authorize(
        &self,
        user: &User,
        asked: (&Route, bool),
        record: &mut Record,
    ) -> Result<Authorized, ApiError> {
        let mut given = Decision::no_opinion("");
        let authorized = authorize::authorize(&self.cluster, user, asked, &mut given).await;
        let (decision, authorized) = match authorized {
            Ok(authorized) => (Ok(()), authorized),
            Err(error) => (Err(error), Authorized::default()),
        };
        record.authorized(&decision, &given);
        decision.map(|()| authorized)
    }

    /// Returns the document of a path that is not the path of a resource.
    async fn other_path(
        &self,
        peer: &Peer,
        caller: &Caller<'_>,
        destination: Destination,
        head: &Parts,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        match destination {
            Destination::Document(document) => {
                // Some documents are built for each request.
                let _room = caller.answer.room(caller.user, DOCUMENT).await?;
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
            Destination::Refused(error) => match self.documents.others.get(head.uri.path()) {
                Some(document) if matches!(head.method, Method::GET | Method::HEAD) => {
                    record.is_served = true;
                    let plain = Presentation { media: Media::Json, gzip: false };
                    Ok(encode::document(head, document, plain))
                }
                _ => Err(error),
            },
            Destination::Unserved { .. } | Destination::Target(_) | Destination::Path(_) => {
                Err(ApiError::no_such_resource())
            }
        }
    }

    /// Handles a request for a resource, up to its slot.
    async fn resource(
        self: &Arc<Self>,
        caller: Caller<'_>,
        target: Target,
        head: &Parts,
        body: Body,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        ensure_available(&target)?;
        let user = caller.user;
        let body_permit = self.throttle.body(user, &body)?;
        decode::begin(&target, head, self.managed_fields)?;
        let Negotiated { format, objection } =
            negotiate::negotiate(head, target.verb, in_protobuf(&target, head))?;
        let account = self.quota.account(&user.name, user.is_master());
        // The body is read before the request takes a slot. Slow senders therefore occupy no slots. An unread body
        // would also block other requests on the same connection.
        let body = decode::read(&target, head, body, &self.yaml).await?;
        record.reached(Step::Read);
        let (permit, is_costly) = self.slot(user, &target, head, &body).await?;
        record.reached(Step::Admitted);
        let (waited, is_watch) = (permit.waited(), target.verb == Verb::Watch);
        let sent = (body, body_permit);
        let admitted = Admitted { caller, target, head, format, account, sent, permit, is_costly };
        // Boxed, because a request that waits for a slot does not need the memory of this future yet.
        let mut executed = Box::pin(self.admitted(admitted, record));
        let mut response = poll_fn(|context| match is_costly {
            true => crate::blocking::poll(executed.as_mut(), context),
            false => executed.as_mut().poll(context),
        })
        .await?;
        encode::say_waited(&mut response, waited);
        match objection {
            Some(objection) => Err(objection),
            None if is_watch && websocket::is_asked_for(head) => {
                websocket::send(head, response.into_body()).await
            }
            None => Ok(response),
        }
    }

    /// Waits for the slot of a request, and for a second one if the request may take long. Returns whether it may.
    async fn slot(
        &self,
        user: &User,
        target: &Target,
        head: &Parts,
        body: &Bytes,
    ) -> Result<(Permit, bool), ApiError> {
        let mut permit = self.throttle.throttle(user, target.verb).await?;
        let is_json_patch = decode::is_json_patch(target, head);
        let is_costly = throttle::is_costly(target, body, is_json_patch);
        if is_costly {
            permit.turn = self.throttle.turn(user).await?;
        }
        Ok((permit, is_costly))
    }

    /// Handles a request that has a slot.
    async fn admitted(
        self: &Arc<Self>,
        mut request: Admitted<'_>,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        let mut operation = self.decode(&request, record).await?;
        let redacted = match &mut operation {
            Operation::Read(read) => request.caller.redact(read, &request.target.served)?,
            Operation::Write(..) => Redacted::default(),
        };
        record.is_dry_run = operation.is_dry_run();
        record.reached(Step::Decoded);
        self.fetch(&mut request, &mut operation).await?;
        self.refresh(&mut request, operation.freshness(), record).await?;
        if let Some(Selection { selector, .. }) = operation.selection() {
            let (user, head) = (request.caller.user, request.head);
            self.throttle.reader(user, selector, head, &mut request.permit)?;
        }
        match operation {
            Operation::Read(read) => self.read(request, read, redacted).await,
            // Boxed, because a read does not need the memory of this future.
            Operation::Write(write, options) => {
                Box::pin(self.write((write, options), request, record)).await
            }
        }
    }

    /// Decodes the operation of a request, and records the object that the client has sent.
    async fn decode(
        &self,
        request: &Admitted<'_>,
        record: &mut Record,
    ) -> Result<Operation, ApiError> {
        let Admitted { caller, target, head, account, sent: (body, _), .. } = request;
        let mut operation = decode::decode(target, head, body, account, &self.yaml).await?;
        if record.wants_request_object()
            && let Some(object) = decode::request_object(&operation, body)
        {
            record.requested(object);
        }
        if target.served.kind.hides_from(caller.user) {
            operation.show_to(caller.user);
        }
        Ok(operation)
    }

    /// Waits until the cache is as fresh as an operation requires.
    async fn refresh(
        &self,
        request: &mut Admitted<'_>,
        freshness: Freshness,
        record: &mut Record,
    ) -> Result<(), ApiError> {
        let Admitted { caller, target, permit, .. } = request;
        if freshness.is_at_hand(&target.served) {
            return Ok(());
        }
        // While a request waits for fresh data, other requests can use its slot.
        drop(std::mem::take(permit));
        let (began, kind) = (Instant::now(), &target.served.kind);
        let fresh = verb::await_freshness(&target.served, freshness).await;
        self.metrics.waited(&kind.group, &kind.names.plural, began.elapsed());
        fresh?;
        *permit = self.throttle.throttle(caller.user, target.verb).await?;
        record.reached(Step::Fresh);
        Ok(())
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
            let mut given = Decision::no_opinion("");
            authorize::authorize(&self.cluster, &user, (&route, false), &mut given).await
        };
        permitted.await.map(drop).map_err(|error| {
            let mut response = refuse(&error);
            keep_out_of_caches(&mut response);
            Box::new(response)
        })
    }

    /// Adds an audit ID to a request, unless the request has a usable one.
    fn name(&self, head: &mut Parts) {
        let is_usable =
            |id: &HeaderValue| (1..=LONGEST_AUDIT_ID).contains(&id.len()) && id.to_str().is_ok();
        if !head.headers.get(AUDIT_ID).is_some_and(is_usable) {
            let random = u128::from(self.clock.random()) << 64 | u128::from(self.clock.random());
            let id = uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid();
            let id = HeaderValue::from_str(&id.to_string());
            head.headers.insert(AUDIT_ID, id.unwrap_or(HeaderValue::from_static("unknown")));
        }
    }
}

/// Logs a panic during a request.
fn log_panic(head: &Parts) {
    let (audit_id, method) = (head.headers.get(AUDIT_ID), &head.method);
    FAILURES.log(|suppressed| {
        let path = shown(&head.uri);
        tracing::error!(suppressed, %method, path, ?audit_id, "request is about to fail");
    });
}

/// Rejects requests for a kind whose objects could not be copied from the deployed server.
fn ensure_available(target: &Target) -> Result<(), ApiError> {
    let Some(why) = &target.served.unavailable else { return Ok(()) };
    let kind = target.served.kind.qualified();
    let message =
        format!("{kind} are kept by the deployed server and could not be copied from there: {why}");
    Err(ApiError::new(Reason::ServiceUnavailable, message))
}

/// The parts of a response that can be encoded in protobuf.
fn in_protobuf(target: &Target, head: &Parts) -> InProtobuf {
    let (kind, _) = target.body_kind();
    match &target.subresource {
        // Events on a WebSocket are lines of text.
        _ if websocket::is_asked_for(head) => InProtobuf::Nothing,
        Some(ServedSubresource { kind: Some(_), .. }) => InProtobuf::Objects,
        _ if kind.is_typed() => InProtobuf::Objects,
        _ => InProtobuf::Metadata,
    }
}

/// Forbids caching of a response that has no `Cache-Control` of its own.
fn keep_out_of_caches(response: &mut Response<Body>) {
    let none = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(CACHE_CONTROL).or_insert(none);
}
