//! Requests that change nothing: GET, LIST and WATCH.

use std::borrow::Cow;

use axum::body::Body;
use http::{Response, StatusCode};

use super::Handler;
use super::admitted::Admitted;
use super::encode::stream::WatchContext;
use crate::backend::WriteError;
use crate::error::ApiError;
use crate::object::Key;
use crate::served_kind::{Backing, ServedKind};
use crate::user::User;
use crate::verb::{self, Freshness, Moment, Read, Redacted};
use crate::watch_cache::Scope;
use crate::write::store_error;

impl Handler {
    /// Executes a read, and encodes the response. Some fields of the objects may be omitted.
    pub(super) async fn read(
        &self,
        mut request: Admitted<'_>,
        mut read: Read,
        redacted: Redacted,
    ) -> Result<Response<Body>, ApiError> {
        let responder = request.responder(self);
        let Admitted { caller, target, account, .. } = request;
        let served = direct_objects(&target.served, &mut read, caller.user).await?;
        let (served, version) = (&*served, &target.version);
        match read {
            Read::Get(key, options) => {
                let part = (&**version, target.part());
                let versioned = verb::get(served, part, &key, options, &account).await?;
                let warnings = caller.warnings(served);
                responder.object(&versioned, StatusCode::OK, &warnings).await
            }
            Read::List(scope, options) => {
                let listed = verb::list(served, scope, options, &account).await?;
                responder.list(listed, &caller.warnings(served)).await
            }
            Read::Watch(scope, options, lasts) => {
                let watching = verb::watch(served, scope, options, &account).await?;
                let (group, plural) = (&served.kind.group, &served.kind.names.plural);
                let context = WatchContext {
                    lasts,
                    closing: &served.ended,
                    clock: self.clock.clone(),
                    sent: self.metrics.watch_events(group, &version.name, plural),
                    revoked: caller.revoked(&redacted, &self.clock),
                };
                responder.watch(watching, context).await
            }
        }
    }
}

/// The kind with the objects that a read needs. The backend of a direct kind is called for them.
async fn direct_objects<'a>(
    served: &'a ServedKind,
    read: &mut Read,
    user: &User,
) -> Result<Cow<'a, ServedKind>, ApiError> {
    let Backing::Direct(backend) = &served.backing else { return Ok(Cow::Borrowed(served)) };
    let kind = &served.kind;
    let scope = match read {
        Read::Get(key, options) => {
            options.freshness = Freshness::Any;
            Scope::Object(key.clone())
        }
        Read::List(scope, options) => {
            // Every list is complete and current, so it has one page.
            (options.limit, options.moment) = (None, Moment::Any);
            scope.clone()
        }
        Read::Watch(..) => return Ok(Cow::Borrowed(served)),
    };
    let (key, objects) = match scope {
        Scope::Object(key) => {
            let found = backend.get(kind, user, &key).await;
            (key, found.map(|found| found.into_iter().collect()))
        }
        Scope::Namespace(namespace) => {
            let listed = backend.list(kind, user, Some(&namespace)).await;
            (Key::new(Some(&namespace), ""), listed)
        }
        Scope::All => (Key::new(None, ""), backend.list(kind, user, None).await),
    };
    let objects = objects.map_err(|error| match error.of_read() {
        WriteError::Refused(error) => error,
        WriteError::Store(error) => store_error(kind, &key, error),
    })?;
    Ok(Cow::Owned(served.with_objects(objects)))
}
