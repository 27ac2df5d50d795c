//! Mutating requests. Each is a future that owns its inputs, because it may outlive its request.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use http::{Response, StatusCode};

use super::answers::Answer;
use super::decode::Operation;
use super::encode::{self, Encoder, stream};
use super::route::Target;
use super::throttle::Permit;
use super::write_context::WriteContext;
use super::{Handler, deletion_warnings};
use crate::admission::AuditAnnotations;
use crate::conversion::known;
use crate::error::ApiError;
use crate::quota::{self, Account};
use crate::served_kind::Backing;
use crate::user::User;
use crate::verb::{self, SubresourceResponse};
use crate::write::{self, CriticalSection, Part};

/// A mutating request that is decoded and ready to be executed.
pub(super) struct Mutation {
    pub handler: Arc<Handler>,
    pub user: Arc<User>,
    pub answer: Answer,
    pub target: Target,
    pub operation: Operation,
    pub encoder: Encoder,
    /// The slot among the requests in flight.
    pub permit: Permit,
    /// The memory of the objects.
    pub account: Account,
    /// The body of the request, and its memory.
    pub sent: (Bytes, Option<quota::Permit>),
    pub section: CriticalSection,
    /// The audit event of the request, if it has one.
    pub audit: Option<Arc<dyn AuditAnnotations>>,
}

impl Mutation {
    /// Executes the operation, and encodes the response.
    ///
    /// # Errors
    /// The reason for which the operation is rejected.
    pub(super) async fn execute(self) -> Result<Response<Body>, ApiError> {
        let Self {
            handler,
            user,
            answer,
            target,
            operation,
            encoder,
            permit,
            account,
            sent: _sent,
            section,
            audit,
        } = self;
        let served = target.served.clone();
        let within = handler.request_timeout;
        let reader = {
            let (user, account) = (Arc::clone(&user), account.clone());
            || stream::Reader { answer: answer.clone(), user, account, within }
        };
        let context = |options| {
            let (handler, user) = (Arc::clone(&handler), Arc::clone(&user));
            WriteContext::new((handler, user), target, options, (account.clone(), section), audit)
        };
        match operation {
            Operation::Review(submitted, options) => {
                let Backing::Reviewed(review) = &served.backing else {
                    return Err(ApiError::internal("what is no review is answered"));
                };
                let context = context(options);
                let attributes = context.attributes();
                let (answer, warnings) = verb::review(&attributes, review, submitted).await?;
                Ok(encoder.review(&answer, &warnings))
            }
            Operation::CreateSubresource(code, submitted, options) => {
                let context = context(options);
                let mut warnings = Vec::new();
                let attributes = context.attributes();
                let response =
                    verb::create_subresource(&attributes, &code, submitted, &mut warnings).await;
                match response.map_err(|error| error.with_warnings(warnings.clone()))? {
                    SubresourceResponse::Object(answer) => Ok(encoder.review(&answer, &warnings)),
                    SubresourceResponse::Success => Ok(encoder.success(&warnings)),
                }
            }
            Operation::Write(change, options) => {
                let is_kept = !options.dry_run;
                let context = context(options);
                let attributes = context.attributes();
                let written = write::write(&attributes, change).await?;
                if is_kept && !written.is_created && attributes.part == Part::Main {
                    let name = written.versioned.object.key().name();
                    handler.update_follower.await_followed(&served.kind, name, permit).await;
                } else {
                    // A response that waits for memory does not occupy a slot.
                    drop(permit);
                }
                let status = if written.is_created { StatusCode::CREATED } else { StatusCode::OK };
                let _room = answer.room_for(&user, &written.versioned).await?;
                let encode = || encoder.object(&written.versioned, status, &written.warnings);
                known(encoder.kind(), &account, encode).await?
            }
            Operation::Delete(key, options) => {
                let context = context(WriteContext::deletes(options.dry_run));
                let attributes = context.attributes();
                let mut warnings = deletion_warnings(&served.kind, &options);
                let deleted = verb::delete(&attributes, &key, &options, &mut warnings).await;
                let deleted = deleted.map_err(|error| error.with_warnings(warnings.clone()))?;
                let encode = || encoder.deleted(&deleted, options.answers_accepted);
                let mut response = known(encoder.kind(), &account, encode).await??;
                encode::warn(&mut response, &warnings);
                Ok(response)
            }
            Operation::DeleteCollection(scope, options, how) => {
                let context = context(WriteContext::deletes(how.dry_run));
                let attributes = context.attributes();
                let mut warnings = deletion_warnings(&served.kind, &how);
                let listed =
                    verb::delete_collection(&attributes, scope, options, &how, &mut warnings).await;
                let listed = listed.map_err(|error| error.with_warnings(warnings.clone()))?;
                let mut response = stream::list(encoder, listed, permit, reader()).await?;
                encode::warn(&mut response, &warnings);
                Ok(response)
            }
            Operation::Get(..) | Operation::List(..) | Operation::Watch(..) => {
                Err(ApiError::internal("a read is carried out as a write"))
            }
        }
    }
}
