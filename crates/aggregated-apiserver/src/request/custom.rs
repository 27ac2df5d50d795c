//! Requests for subresources and paths that code of the user handles.

mod dry_run;
mod end;
mod handed_over;
mod refused;
mod streamed;

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{DefaultBodyLimit, Request};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use serde_json::Value;
use tokio::time::timeout;

use self::end::Ending;
use super::caller::Caller;
use super::route::{PathTarget, Target};
use super::throttle::{Permit, STREAMED_BODY};
use super::write_context::WriteContext;
use super::{Handler, decode, encode, ensure_available, fetch, negotiate, refuse_as};
use crate::conversion::known;
use crate::error::{ApiError, Reason};
use crate::object::selector::Selector;
use crate::object::{Key, Tree};
use crate::quota::{self, Account, Room};
use crate::record::{Record, Step};
use crate::served_kind::{Backing, DirectBacking};
use crate::storage::Versioned;
use crate::subresource::{self, ParentObject, Refusal, Subresource, Unchanged};
use crate::verb::{self, GetOptions, Read, Verb};
use crate::watch_cache::Scope;
use crate::write::{self, CriticalSection, Part, WriteOptions};

/// The target of a request that code of the user handles.
pub(super) enum CustomTarget {
    /// A subresource of an object.
    Subresource(Target),
    /// A path of a group version.
    Path(PathTarget),
}

impl CustomTarget {
    /// The verb, which decides about the slot of a request.
    fn verb(&self) -> Verb {
        match self {
            Self::Subresource(target) => target.verb,
            Self::Path(target) => target.verb,
        }
    }

    /// The subresource of an object.
    fn subresource(&self) -> Option<&Target> {
        match self {
            Self::Subresource(target) => Some(target),
            Self::Path(_) => None,
        }
    }
}

/// A request that code of the user handles.
pub(super) struct CustomRequest<'a> {
    pub caller: Caller<'a>,
    pub target: CustomTarget,
    pub custom: Arc<Subresource>,
    pub head: &'a Parts,
    /// Whether the request upgrades its connection.
    pub is_upgrade: bool,
}

/// The slots of a request, until its response has been sent or its connection has ended.
struct Held {
    _permit: Permit,
    /// The slot of a connection, which belongs to the handler.
    _upgrade: Option<quota::Permit>,
    /// The memory of the body, if it was read as a whole.
    _sent: Option<quota::Permit>,
}

/// An object with its memory.
struct Found {
    object: Arc<Value>,
    room: Room,
    warnings: Vec<String>,
}

impl Found {
    /// No object: the handler gets the path alone.
    fn none(account: &Account) -> Result<Self, ApiError> {
        Ok(Self { object: Arc::default(), room: account.room(0)?, warnings: Vec::new() })
    }
}

impl Handler {
    /// Handles a request for a subresource or a path of the user: finds the object, and calls the handler.
    pub(super) async fn custom(
        self: &Arc<Self>,
        mut request: CustomRequest<'_>,
        body: Body,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        request.caller.answer.charged_to(request.caller.user);
        // A long request has no deadline, but its handler must be reached in time.
        let prepared = timeout(self.request_timeout, self.prepared(&mut request, body, record));
        let late = || ApiError::new(Reason::Timeout, "the object was not found in time");
        let (handed, held, mut ending, found) = prepared.await.map_err(|_| late())??;
        let custom = Arc::clone(&request.custom);
        let answered = custom.call(handed);
        let answer = match custom.longest() {
            // Other requests have a deadline.
            None => answered.await,
            Some(_) => tokio::select! {
                answer = answered => answer,
                end = ending.next() => return Err(end.refusal()),
            },
        };
        let no_handler = || ApiError::internal("the method has no handler");
        let response = answer.ok_or_else(no_handler)?;
        let Found { room, warnings, .. } = found;
        drop(room);
        let finished = self.finish(request, response, (held, ending), record).await;
        let mut response = finished.map_err(|error| error.with_warnings(warnings.clone()))?;
        encode::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Everything before the call of the handler: the slots, the body, the object and admission.
    async fn prepared(
        self: &Arc<Self>,
        request: &mut CustomRequest<'_>,
        body: Body,
        record: &mut Record,
    ) -> Result<(Request, Held, Ending, Found), ApiError> {
        let key = request.target.subresource().map(|target| {
            ensure_available(target)?;
            decode::key(target)
        });
        let key = key.transpose()?;
        let is_upgrade = request.is_upgrade;
        if request.custom.is_connection() && !is_upgrade {
            return Err(ApiError::bad_request("Upgrade request required"));
        }
        let options = dry_run::options(request)?;
        record.is_dry_run = options.dry_run;
        let user = request.caller.user;
        let (body, sent) = self.body(request, body).await?;
        record.reached(Step::Read);
        let mut permit = self.slot_of(request).await?;
        // A proxy has a connection of its own for each request.
        let upgrade = match is_upgrade || request.custom.is_proxy() {
            true => self.throttle.upgrade(user)?,
            false => None,
        };
        record.reached(Step::Admitted);
        let account = self.quota.account(&user.name, user.is_master());
        let found = match &key {
            Some(key) => self.parent(request, key, (&account, &mut permit)).await?,
            None => Found::none(&account)?,
        };
        let Found { object, room, mut warnings } = found;
        record.reached(Step::Fresh);
        let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        let ending = Ending::of(self, request, key.as_ref(), uid);
        if let Some(key) = &key
            && request.custom.is_admitted(&request.head.method, is_upgrade)
        {
            let admitted = self.admit(request, (key, &object), (options, &account), record).await;
            warnings.extend(admitted?);
        }
        let handed = self.handed(request, (key, Arc::clone(&object)), body, &ending)?;
        let held = Held { _permit: permit, _upgrade: upgrade, _sent: sent };
        Ok((handed, held, ending, Found { object, room, warnings }))
    }

    /// The body for the handler. A short body is read first, so that slow senders occupy no slots. A long one is read
    /// by the handler, and only a part of it is in memory at a time.
    async fn body(
        &self,
        request: &CustomRequest<'_>,
        body: Body,
    ) -> Result<(Body, Option<quota::Permit>), ApiError> {
        let CustomRequest { caller, custom, head, .. } = request;
        let limit = custom.longest_body();
        if body.size_hint().lower() > limit as u64 {
            return Err(decode::too_large(limit));
        }
        if custom.reads_while_sent() {
            let permit = self.throttle.streamed_body(caller.user, &body)?;
            return Ok((handed_over::body(body, limit, permit), None));
        }
        let permit = self.throttle.body(caller.user, &body)?;
        if body.is_end_stream() {
            return Ok((Body::empty(), permit));
        }
        let bytes = decode::read_body(&head.headers, body).await?;
        match bytes.len() > limit {
            true => Err(decode::too_large(limit)),
            false => Ok((Body::from(bytes), permit)),
        }
    }

    /// Waits for the slot of a request.
    async fn slot_of(&self, request: &CustomRequest<'_>) -> Result<Permit, ApiError> {
        let CustomRequest { caller, target, custom, head, .. } = request;
        if !custom.reads_while_sent() {
            return self.throttle.throttle(caller.user, target.verb()).await;
        }
        let mut permit = self.throttle.long_running(caller.user)?;
        self.throttle.reader(caller.user, &Selector::default(), head, &mut permit)?;
        Ok(permit)
    }

    /// Lets the admission plugins validate the request. Returns their warnings.
    async fn admit(
        self: &Arc<Self>,
        request: &CustomRequest<'_>,
        (key, parent): (&Key, &Value),
        (options, account): (WriteOptions, &Account),
        record: &mut Record,
    ) -> Result<Vec<String>, ApiError> {
        let Some(target) = request.target.subresource() else { return Ok(Vec::new()) };
        let (handler, user) = (Arc::clone(self), Arc::clone(request.caller.user));
        let memory = (account.clone(), CriticalSection::default());
        let (target, audit) = (target.clone(), record.audit_annotations());
        let context = WriteContext::new((handler, user), target, options, memory, audit);
        let none = Tree::new();
        let parent = parent.as_object().unwrap_or(&none);
        // Boxed, because most requests do not need the memory of this future.
        Box::pin(write::validate_connection(&context.attributes(), key, parent)).await
    }

    /// The request for the handler: without credentials, and with the values of the extractors.
    fn handed(
        &self,
        request: &CustomRequest<'_>,
        (key, parent): (Option<Key>, Arc<Value>),
        body: Body,
        ending: &Ending,
    ) -> Result<Request, ApiError> {
        let mut head = request.head.clone();
        self.authentication.remove_credentials(&mut head.headers);
        handed_over::remove_named(&mut head.headers, request.is_upgrade);
        if !request.is_upgrade {
            head.extensions.remove::<OnUpgrade>();
        }
        let extensions = &mut head.extensions;
        if !parent.is_null() {
            extensions.insert(ParentObject(parent));
        }
        if let Some(key) = key {
            extensions.insert(subresource::ParentKey(key));
        }
        if let CustomTarget::Path(target) = &request.target {
            extensions.insert(target.values.clone());
        }
        extensions.insert(ending.ended().clone());
        let (user, cluster) = (Arc::clone(request.caller.user), Arc::clone(&self.cluster));
        extensions.insert(subresource::Caller::new(user, cluster));
        extensions.insert(handed_over::sub_path(&request.target, head.uri.path())?);
        let mut handed = Request::from_parts(head, ending.noted(body));
        let whole = match request.custom.reads_while_sent() {
            true => STREAMED_BODY,
            false => request.custom.longest_body(),
        };
        DefaultBodyLimit::max(whole).apply(&mut handed);
        Ok(handed)
    }

    /// Finds the object that the path names, in the version of the request.
    async fn parent(
        &self,
        request: &mut CustomRequest<'_>,
        key: &Key,
        (account, permit): (&Account, &mut Permit),
    ) -> Result<Found, ApiError> {
        let CustomRequest { caller, target, custom, .. } = request;
        let Some(target) = target.subresource() else { return Found::none(account) };
        if matches!(target.served.backing, Backing::Elsewhere) {
            return Found::none(account);
        }
        let mut options = GetOptions::default();
        if target.served.kind.hides_from(caller.user) {
            options.viewer = Some(Arc::clone(caller.user));
        }
        let mut read = Read::Get(key.clone(), options);
        caller.redact(&mut read, &target.served)?;
        let Read::Get(_, options) = read else {
            return Err(ApiError::internal("the read of an object has changed"));
        };
        let (served, _memory) = match &target.served.backing {
            Backing::Direct(DirectBacking { reader, .. }) => {
                let scope = Scope::Object(key.clone());
                let is_short = !custom.reads_while_sent();
                // While the backend works, other requests can use the slot.
                drop(is_short.then(|| std::mem::take(permit)));
                let fetched = fetch::fetched(&target.served, reader, caller.user, &scope).await?;
                if is_short {
                    *permit = self.throttle.throttle(caller.user, target.verb).await?;
                }
                fetched
            }
            _ => (target.served.clone(), None),
        };
        let kind = &target.served.kind;
        verb::await_freshness(&served, options.freshness).await?;
        let part = (&*target.version, Part::Main);
        let Versioned { revision, object } =
            verb::get(&served, part, key, options, account).await?;
        let shown = || kind.in_version(&object, &target.version);
        let shown = known(kind, account, shown).await??;
        let room = account.room(shown.tree_size())?;
        let mut tree = shown.to_parts().0;
        if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
        }
        let warnings = caller.warnings(&served);
        Ok(Found { object: Arc::new(Value::Object(tree)), room, warnings })
    }

    /// Returns the response of a handler: a whole one, one that is sent while it is made, or a connection.
    async fn finish(
        &self,
        request: CustomRequest<'_>,
        mut response: Response<Body>,
        (held, ending): (Held, Ending),
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        if let Some(Refusal(error)) = response.extensions_mut().remove() {
            record.refused(&error);
            return Ok(refuse_as(&error, negotiate::refusal(request.head)));
        }
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let connection = request.caller.answer.reset().connection();
            let connection = connection.filter(|_| request.is_upgrade);
            let Some(connection) = connection.filter(|_| has_connection(request.head)) else {
                let why = "the handler upgrades a connection that cannot be upgraded";
                return Err(ApiError::internal(why));
            };
            let followed = handed_over::follow(&mut response, connection.clone(), (held, ending));
            self.connections.spawn(followed);
            return Ok(response);
        }
        if status.is_informational() {
            return Err(ApiError::internal(format!("the handler answers with {status}")));
        }
        let is_error = status.is_client_error() || status.is_server_error();
        let is_unchanged = response.extensions_mut().remove::<Unchanged>().is_some();
        let is_unchanged = is_unchanged || request.custom.is_proxy();
        if is_error && !is_unchanged && refused::is_text(&response) {
            return Err(refused::error(response).await);
        }
        let answer = request.caller.answer.clone();
        Ok(streamed::response(response, answer, (held, ending), request.custom.cuts()))
    }
}

/// Whether the request came over a connection that can become one of another protocol.
fn has_connection(head: &Parts) -> bool {
    head.extensions.get::<OnUpgrade>().is_some()
}
