//! Requests for subresources that code of the user handles.

mod end;
mod handed_over;
mod streamed;

use std::sync::Arc;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{DefaultBodyLimit, Request};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use serde_json::Value;

use self::end::Ending;
use super::caller::Caller;
use super::route::Target;
use super::throttle::{LONGEST_BODY, Permit};
use super::write_context::WriteContext;
use super::{Handler, decode, encode, ensure_available, fetch, negotiate, refuse_as, websocket};
use crate::conversion::known;
use crate::error::{ApiError, Given, Reason};
use crate::object::{Key, Tree};
use crate::quota::{Account, Room};
use crate::record::{Record, Step};
use crate::served_kind::Backing;
use crate::storage::Versioned;
use crate::subresource::{self, ParentObject, Refusal, Subresource};
use crate::verb::{self, GetOptions, Read};
use crate::watch_cache::Scope;
use crate::write::{self, CriticalSection, Part, WriteOptions};

/// The longest text of an error response that becomes a message, in bytes.
const MESSAGE: usize = 16 << 10;

/// A request for a subresource of the user.
pub(super) struct CustomRequest<'a> {
    pub caller: Caller<'a>,
    pub target: Target,
    pub custom: Arc<Subresource>,
    pub head: &'a Parts,
}

/// The slot of a request, until its response has been sent or its connection has ended.
struct Held(#[allow(dead_code)] Permit);

impl Handler {
    /// Handles a request for a subresource of the user: finds the object, and calls the handler.
    pub(super) async fn custom(
        self: &Arc<Self>,
        mut request: CustomRequest<'_>,
        body: Body,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        ensure_available(&request.target)?;
        if request.custom.is_connection() && !websocket::is_upgrade(request.head) {
            return Err(ApiError::bad_request("Upgrade request required"));
        }
        let key = decode::key(&request.target)?;
        let user = request.caller.user;
        let limit = request.custom.longest_body();
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large(limit));
        }
        // A longer body is never in memory as a whole.
        let _sent = match limit <= LONGEST_BODY {
            true => self.throttle.body(user, &body)?,
            false => None,
        };
        let permit = match request.custom.longest() {
            Some(_) => self.throttle.long_running(user)?,
            None => self.throttle.throttle(user, &request.target).await?,
        };
        record.reached(Step::Admitted);
        let account = self.quota.account(&user.name, user.is_master());
        let (parent, room) = self.parent(&mut request, &key, &account).await?;
        record.reached(Step::Fresh);
        let uid = parent["metadata"]["uid"].as_str().map(str::to_owned);
        let mut ending = Ending::of(self, &mut request, &key, uid);
        let warnings = match request.custom.is_admitted(&request.head.method) {
            true => self.admit(&request, (&key, &parent), &account, record).await?,
            false => Vec::new(),
        };
        let handed = self.request(&request, (key, parent), body, &ending)?;
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
        drop(room);
        let mut response = finish(request, response, (Held(permit), ending), record).await?;
        encode::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Lets the admission plugins validate the request. Returns their warnings.
    async fn admit(
        self: &Arc<Self>,
        request: &CustomRequest<'_>,
        (key, parent): (&Key, &Value),
        account: &Account,
        record: &mut Record,
    ) -> Result<Vec<String>, ApiError> {
        let (handler, user) = (Arc::clone(self), Arc::clone(request.caller.user));
        let memory = (account.clone(), CriticalSection::default());
        let (target, options) = (request.target.clone(), WriteOptions::default());
        let audit = record.audit_annotations();
        let context = WriteContext::new((handler, user), target, options, memory, audit);
        let none = Tree::new();
        let parent = parent.as_object().unwrap_or(&none);
        // Boxed, because most requests do not need the memory of this future.
        Box::pin(write::validate_connection(&context.attributes(), key, parent)).await
    }

    /// The request for the handler: without credentials, and with the values of the extractors.
    fn request(
        &self,
        request: &CustomRequest<'_>,
        (key, parent): (Key, Arc<Value>),
        body: Body,
        ending: &Ending,
    ) -> Result<Request, ApiError> {
        let mut head = request.head.clone();
        self.authentication.remove_credentials(&mut head.headers);
        if !websocket::is_upgrade(&head) {
            head.extensions.remove::<OnUpgrade>();
        }
        let limit = request.custom.longest_body();
        let body = handed_over::body(body, limit, ending.activity().clone());
        let extensions = &mut head.extensions;
        extensions.insert(ParentObject(parent));
        extensions.insert(subresource::ParentKey(key));
        extensions.insert(ending.ended().clone());
        let (user, cluster) = (Arc::clone(request.caller.user), self.cluster.clone());
        extensions.insert(subresource::Caller::new(user, cluster));
        extensions.insert(handed_over::sub_path(&request.target, head.uri.path())?);
        let mut handed = Request::from_parts(head, body);
        DefaultBodyLimit::max(limit.min(LONGEST_BODY)).apply(&mut handed);
        Ok(handed)
    }

    /// Finds the object that the path names, in the version of the request.
    async fn parent(
        &self,
        request: &mut CustomRequest<'_>,
        key: &Key,
        account: &Account,
    ) -> Result<(Arc<Value>, Room), ApiError> {
        let CustomRequest { caller, target, .. } = request;
        let mut options = GetOptions::default();
        if target.served.kind.hides_from(caller.user) {
            options.viewer = Some(Arc::clone(caller.user));
        }
        let mut read = Read::Get(key.clone(), options);
        caller.redact(&mut read, &target.served)?;
        let Read::Get(_, options) = read else {
            return Err(ApiError::internal("the read of an object has changed"));
        };
        let kind = &target.served.kind;
        let (served, _memory) = match &target.served.backing {
            Backing::Direct(reader) => {
                let scope = Scope::Object(key.clone());
                fetch::fetched(&target.served, reader, caller.user, &scope).await?
            }
            _ => (target.served.clone(), None),
        };
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
        Ok((Arc::new(Value::Object(tree)), room))
    }
}

/// Returns the response of a handler: a whole one, one that is sent while it is made, or a connection.
async fn finish(
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
        let connection = connection.filter(|_| websocket::is_upgrade(request.head));
        let Some(connection) = connection.filter(|_| has_connection(request.head)) else {
            let why = "the handler upgrades a connection that cannot be upgraded";
            return Err(ApiError::internal(why));
        };
        handed_over::connection(&mut response, connection.clone(), (held, ending));
        return Ok(response);
    }
    if status.is_informational() {
        return Err(ApiError::internal(format!("the handler answers with {status}")));
    }
    let is_error = status.is_client_error() || status.is_server_error();
    if is_error && !request.custom.is_proxy() && is_text(&response) {
        return Err(refusal(response).await);
    }
    if response.body().size_hint().exact().is_some() {
        return Ok(response);
    }
    let (answer, is_cut) = (request.caller.answer.clone(), request.custom.longest().is_none());
    Ok(response.map(|body| streamed::body(body, answer, held, ending, is_cut)))
}

/// Whether the request came over a connection that can become one of another protocol.
fn has_connection(head: &Parts) -> bool {
    head.extensions.get::<OnUpgrade>().is_some()
}

/// Whether the body of a response is plain text.
fn is_text(response: &Response<Body>) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|media| media.starts_with("text/plain"))
}

/// The error of a response that is plain text.
async fn refusal(response: Response<Body>) -> ApiError {
    let (head, body) = response.into_parts();
    let code = head.status.as_u16();
    let text = to_bytes(body, MESSAGE).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let reason = Reason::of_code(code).word().to_owned();
    ApiError::given(Given { code, reason, details: None }, text.trim_end())
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("Request entity too large: limit is {limit}");
    ApiError::new(Reason::RequestEntityTooLarge, message)
}
