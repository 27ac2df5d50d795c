//! Mutating requests. Each is a future that owns its inputs, because it may outlive its request.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use http::{Response, StatusCode};

use super::Handler;
use super::admitted::Admitted;
use super::detached::Named;
use super::respond::Responder;
use super::write_context::WriteContext;
use crate::error::ApiError;
use crate::kind::ReviewHandler;
use crate::quota;
use crate::record::{AUDIT_ID, Record};
use crate::verb::{self, Write};
use crate::write::{self, CriticalSection, WriteOptions};

impl Handler {
    /// Executes a write, and encodes the response. The write may outlive its request.
    pub(super) async fn write(
        self: &Arc<Self>,
        (write, options): (Write, WriteOptions),
        mut request: Admitted<'_>,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        let responder = request.responder(self);
        let Admitted { caller, target, head, account, sent, is_costly, .. } = request;
        let section = match caller.user.is_master() {
            true => CriticalSection::limited(self.commits_of_masters.clone()),
            false => CriticalSection::default(),
        };
        let named = Named {
            verb: target.verb,
            kind: Arc::clone(&target.served.kind),
            audit_id: head.headers.get(AUDIT_ID).cloned(),
            aftermath: record.aftermath(),
        };
        let options = WriteOptions { audit_id: named.audit_id.clone(), ..options };
        let (handler, user) = (Arc::clone(self), Arc::clone(caller.user));
        let (memory, audit) = ((account, section.clone()), record.audit_annotations());
        let context = WriteContext::new((handler, user), target, options, memory, audit);
        let mutation = Mutation { context, write, responder, sent };
        self.detached.run(section, named, is_costly, mutation.execute()).await
    }
}

/// A mutating request that is decoded and ready to be executed.
struct Mutation {
    context: WriteContext,
    write: Write,
    responder: Responder,
    /// The body of the request, and its memory.
    sent: (Bytes, Option<quota::Permit>),
}

impl Mutation {
    /// Executes the operation, and encodes the response.
    ///
    /// # Errors
    /// The reason for which the operation is rejected.
    async fn execute(self) -> Result<Response<Body>, ApiError> {
        let Self { context, write, mut responder, sent: _sent } = self;
        let attributes = context.attributes();
        match write {
            Write::Review(handler, submitted) => match &*handler {
                ReviewHandler::PostTo(plural, subresource) => {
                    let target = (*plural, *subresource);
                    let posted = verb::post_to_subresource(&attributes, target, submitted).await?;
                    Ok(responder.posted(posted))
                }
                ReviewHandler::Code(review) => {
                    let (answer, warnings) = verb::review(&attributes, review, submitted).await?;
                    Ok(responder.encoder.review(&answer, &warnings))
                }
            },
            Write::CreateSubresource(handler, submitted) => {
                let posted = verb::create_subresource(&attributes, &handler, submitted).await?;
                Ok(responder.posted(posted))
            }
            Write::Change(change) => {
                let written = write::write(&attributes, change).await?;
                // A response that waits for memory does not occupy a slot.
                let permit = std::mem::take(&mut responder.permit);
                match written.is_created {
                    true => drop(permit),
                    false => context.followed(&written.versioned, permit).await,
                }
                let status = if written.is_created { StatusCode::CREATED } else { StatusCode::OK };
                responder.object(&written.versioned, status, &written.warnings).await
            }
            Write::Delete(key, options) => {
                let (deleted, warnings) = verb::delete(&attributes, &key, &options).await?;
                responder.deleted(&deleted, options.answers_accepted, &warnings).await
            }
            Write::DeleteCollection(scope, options, how) => {
                let (listed, warnings) =
                    verb::delete_collection(&attributes, scope, options, &how).await?;
                responder.list(listed, &warnings).await
            }
        }
    }
}
