//! The end of a long request: the events that end it before its handler does.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use tokio::time::sleep;

use super::CustomRequest;
use crate::error::{ApiError, Reason};
use crate::object::Key;
use crate::request::{Activity, Handler, websocket};
use crate::served_kind::{Backing, ServedKind};
use crate::subresource::Ended;
use crate::verb::Redacted;
use crate::watch_cache::{Scope, WatchCache};

/// The reason why a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server drains, or the kind is no longer served with this definition.
    Withdrawn,
    /// The user has lost the permission.
    Forbidden,
    /// The object was deleted.
    Deleted,
    /// No byte was transferred for too long.
    Idle,
    /// The time of the request is over.
    Late,
}

impl End {
    /// The error for a client that has no response yet.
    pub fn refusal(self) -> ApiError {
        let (reason, why) = match self {
            Self::Withdrawn => (Reason::ServiceUnavailable, "the server ends its requests"),
            Self::Forbidden => (Reason::Forbidden, "the permission was withdrawn"),
            Self::Deleted => (Reason::NotFound, "the object was deleted"),
            Self::Idle => (Reason::Timeout, "no byte was transferred for too long"),
            Self::Late => (Reason::Timeout, "the time of the request is over"),
        };
        ApiError::new(reason, format!("the request has ended: {why}"))
    }
}

/// The end of a request.
pub(super) struct Ending {
    ended: Ended,
    activity: Activity,
    end: BoxFuture<'static, End>,
}

impl Ending {
    /// The end of a request for the object with this uid.
    pub fn of(
        handler: &Handler,
        request: &mut CustomRequest<'_>,
        key: &Key,
        uid: Option<String>,
    ) -> Self {
        let CustomRequest { caller, target, custom, head } = request;
        let connection = caller.answer.reset().connection();
        let connection = connection.filter(|_| websocket::is_upgrade(head));
        let activity = connection.map(|one| one.activity.clone()).unwrap_or_default();
        let longest = custom.longest();
        let until = sleep(longest.unwrap_or(handler.request_timeout));
        let idle = idle(activity.clone(), longest.is_some().then_some(custom.idle()));
        let withdrawn = target.served.ended.child_token().cancelled_owned();
        let deleted = deleted(&target.served, key.clone(), uid.filter(|_| longest.is_some()));
        let permission = caller.permission.take();
        let (clock, missing) = (handler.clock.clone(), Redacted::default().missing);
        let forbidden = async move {
            match permission {
                Some(permission) => drop(permission.ended(clock, missing).await),
                None => pending().await,
            }
        };
        let end = async move {
            tokio::select! {
                () = withdrawn => End::Withdrawn,
                () = forbidden => End::Forbidden,
                () = deleted => End::Deleted,
                () = idle => End::Idle,
                () = until => End::Late,
            }
        };
        Self { ended: Ended::default(), activity, end: end.boxed() }
    }

    /// Returns when the request must end, and tells the handler.
    pub async fn next(&mut self) -> End {
        let end = (&mut self.end).await;
        self.ended.0.cancel();
        end
    }

    /// The end as the handler sees it.
    pub fn ended(&self) -> &Ended {
        &self.ended
    }

    /// The last transfer of bytes.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }
}

async fn idle(activity: Activity, longest: Option<Duration>) {
    match longest {
        Some(longest) => activity.idle(longest).await,
        None => pending().await,
    }
}

/// Returns when the object with this uid does not exist any more.
fn deleted(served: &ServedKind, key: Key, uid: Option<String>) -> BoxFuture<'static, ()> {
    let cache = Arc::clone(&served.cache);
    match (uid, &served.backing) {
        // The cache of a direct kind has the objects of one request.
        (None, _) | (_, Backing::Direct(_)) => pending().boxed(),
        (Some(uid), _) => follow(cache, key, uid).boxed(),
    }
}

async fn follow(cache: Arc<WatchCache>, key: Key, uid: String) {
    let is_there = || cache.get(&key).is_some_and(|found| found.object.uid() == uid);
    loop {
        let (_, mut changes) = cache.subscribe(Scope::Object(key.clone()));
        loop {
            if !is_there() {
                return;
            }
            // Changes that were lost are found by the next look.
            if changes.next().await.is_err() {
                break;
            }
        }
    }
}
