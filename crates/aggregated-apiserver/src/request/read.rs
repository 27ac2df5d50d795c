//! Requests that change nothing: GET, LIST and WATCH.

use axum::body::Body;
use http::{Response, StatusCode};

use super::Handler;
use super::admitted::Admitted;
use super::encode::stream::WatchContext;
use crate::error::ApiError;
use crate::verb::{self, Read, Redacted};

impl Handler {
    /// Executes a read, and encodes the response. Some fields of the objects may be omitted.
    pub(super) async fn read(
        &self,
        mut request: Admitted<'_>,
        read: Read,
        redacted: Redacted,
    ) -> Result<Response<Body>, ApiError> {
        let responder = request.responder(self);
        let Admitted { caller, target, account, .. } = request;
        let (served, version) = (&target.served, &target.version);
        match read {
            Read::Get(key, options) => {
                let part = (&**version, target.part());
                let versioned = verb::get(served, part, &key, options, &account).await?;
                let warnings = caller.warnings(served);
                responder.object(&versioned, StatusCode::OK, &warnings).await
            }
            // Boxed, because a GET does not need the memory of these futures.
            Read::List(scope, options) => {
                let listed = Box::pin(verb::list(served, scope, options, &account)).await?;
                Box::pin(responder.list(listed, &caller.warnings(served))).await
            }
            Read::Watch(scope, options, lasts) => {
                let watching = Box::pin(verb::watch(served, scope, options, &account)).await?;
                let (group, plural) = (&served.kind.group, &served.kind.names.plural);
                let context = WatchContext {
                    lasts,
                    closing: &served.ended,
                    clock: self.clock.clone(),
                    sent: self.metrics.watch_events(group, &version.name, plural),
                    revoked: caller.revoked(&redacted, &self.clock),
                };
                Box::pin(responder.watch(watching, context)).await
            }
        }
    }
}
