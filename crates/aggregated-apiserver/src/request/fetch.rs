//! Requests on direct kinds: the backend is called for the objects of the request.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::Handler;
use super::admitted::Admitted;
use crate::backend::{DirectReader, WriteError};
use crate::error::ApiError;
use crate::served_kind::{Backing, DirectBacking, ServedKind};
use crate::user::User;
use crate::verb::{Freshness, ListOptions, Moment, Operation, Read, Write};
use crate::watch_cache::Scope;
use crate::write::store_error;

impl Handler {
    /// Replaces the objects of a direct kind by those that its backend returns for this request. A write of one object
    /// reads the object later.
    ///
    /// # Errors
    /// The error of the backend; 410 if the client asks for a past state; 503 if there is not enough memory.
    pub(super) async fn fetch(
        &self,
        request: &mut Admitted<'_>,
        operation: &mut Operation,
    ) -> Result<(), ApiError> {
        let Admitted { caller, target, permit, .. } = request;
        let Backing::Direct(DirectBacking { reader, .. }) = &target.served.backing else {
            return Ok(());
        };
        let reader = Arc::clone(reader);
        let scope = match operation {
            Operation::Read(read) => scope(read)?,
            Operation::Write(write, _) => {
                target.served = target.served.written_by(caller.user);
                match write {
                    Write::DeleteCollection(scope, options, _) => Some(listed(scope, options)?),
                    _ => None,
                }
            }
        };
        let Some(scope) = scope else { return Ok(()) };
        // While the backend works, other requests can use the slot.
        drop(std::mem::take(permit));
        // Boxed, because requests on other kinds do not need the memory of this future.
        let fetched = Box::pin(fetched(&target.served, &reader, caller.user, &scope));
        let (served, memory) = fetched.await?;
        target.served = served;
        *permit = self.throttle.throttle(caller.user, target.verb).await?;
        permit.memory = memory;
        Ok(())
    }
}

/// A direct kind with the objects that its backend returns for this request, and their memory.
///
/// # Errors
/// The error of the backend; 503 if there is not enough memory.
pub(super) async fn fetched(
    served: &ServedKind,
    reader: &DirectReader,
    user: &Arc<User>,
    scope: &Scope,
) -> Result<(ServedKind, Option<OwnedSemaphorePermit>), ApiError> {
    let kind = &served.kind;
    let fetched = reader.read(kind, user, scope).await.map_err(|error| match error {
        (_, WriteError::Refused(error)) => error,
        (key, WriteError::Store(error)) => store_error(kind, &key, error),
    });
    let (objects, memory) = fetched?;
    let objects = objects.into_iter().map(|item| {
        let version = reader.version(&item);
        (item.object, version)
    });
    let objects = objects.collect();
    Ok((served.with_objects(objects).await, memory))
}

/// The scope of a read, which is changed into a read of the fetched objects; `None` for a watch.
///
/// # Errors
/// 410 if the client asks for a past state.
fn scope(read: &mut Read) -> Result<Option<Scope>, ApiError> {
    match read {
        Read::Get(key, options) => {
            options.freshness = Freshness::Any;
            Ok(Some(Scope::Object(key.clone())))
        }
        Read::List(scope, options) => listed(scope, options).map(Some),
        Read::Watch(..) => Ok(None),
    }
}

/// The scope of a list, which is changed into a list of the fetched objects.
///
/// # Errors
/// 410 if the client asks for a past state.
fn listed(scope: &Scope, options: &mut ListOptions) -> Result<Scope, ApiError> {
    if matches!(options.moment, Moment::Exactly(_) | Moment::Continued(_)) {
        return Err(ApiError::expired("The kind has no past states: list the objects again."));
    }
    // The response has all objects, because no later request has the same state.
    (options.limit, options.moment) = (None, Moment::Any);
    Ok(scope.clone())
}
