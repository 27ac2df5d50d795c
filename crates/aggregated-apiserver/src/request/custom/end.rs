//! The end of a long request: the events that end it before its handler does.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{CustomRequest, CustomTarget};
use crate::error::{ApiError, Reason};
use crate::object::Key;
use crate::request::{Activity, Handler};
use crate::served_kind::{Backing, ServedKind};
use crate::subresource::Ended;
use crate::user::User;
use crate::watch_cache::Scope;

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
    /// The error for a client that has no response yet, or whose connection was upgraded.
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
    /// The end of a request, for the object with this uid if it has one.
    pub fn of(
        handler: &Handler,
        request: &mut CustomRequest<'_>,
        key: Option<&Key>,
        uid: Option<String>,
    ) -> Self {
        let CustomRequest { caller, target, custom, is_upgrade, .. } = request;
        let connection = caller.answer.reset().connection();
        let connection = connection.filter(|_| *is_upgrade);
        let activity = connection.map(|one| one.activity.clone()).unwrap_or_default();
        let longest = custom.longest();
        let until = sleep(longest.unwrap_or(handler.request_timeout));
        let idle = idle(activity.clone(), longest.is_some().then_some(custom.idle()));
        let withdrawn = match target {
            CustomTarget::Subresource(target) => &target.served.ended,
            CustomTarget::Path(target) => &target.served.ended,
        };
        let withdrawn = withdrawn.child_token().cancelled_owned();
        let parent = target.subresource().zip(key).map(|(target, key)| Parent {
            served: target.served.clone(),
            key: key.clone(),
            viewer: target.served.kind.hides_from(caller.user).then(|| Arc::clone(caller.user)),
        });
        let deleted = deleted(parent, uid.filter(|_| longest.is_some()));
        let permission = caller.permission.take();
        let (clock, missing) = (handler.clock.clone(), caller.authorized.missing.rights);
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
        self.ended.end_with(end.refusal());
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

    /// The same body, whose transfers are noted.
    pub fn noted(&self, body: Body) -> Body {
        let activity = self.activity.clone();
        Body::new(body.map_frame(move |frame| {
            activity.note();
            frame
        }))
    }
}

async fn idle(activity: Activity, longest: Option<Duration>) {
    match longest {
        Some(longest) => activity.idle(longest).await,
        None => pending().await,
    }
}

/// The object of a request, with the user that may see it.
struct Parent {
    served: ServedKind,
    key: Key,
    /// The user, if the kind may hide the object from it.
    viewer: Option<Arc<User>>,
}

/// Returns when the object of a request does not exist any more. Without an object, it never returns.
async fn deleted(parent: Option<Parent>, uid: Option<String>) {
    match parent {
        Some(parent) => parent.deleted(uid).await,
        None => pending().await,
    }
}

impl Parent {
    /// Returns when the object with this uid does not exist any more, or when the user may not see it any more. Without
    /// a uid, it never returns.
    async fn deleted(self, uid: Option<String>) {
        let Some(uid) = uid else { return pending().await };
        // The cache of a direct kind has the objects of one request.
        if matches!(self.served.backing, Backing::Direct(_)) {
            return pending().await;
        }
        let states = self.served.visibility.as_ref().filter(|_| self.viewer.is_some());
        let mut states = states.map(|states| states.subscribe());
        loop {
            let (_, mut changes) = self.served.cache.subscribe(Scope::Object(self.key.clone()));
            loop {
                if !self.is_there(&uid) {
                    return;
                }
                tokio::select! {
                    // Changes that were lost are found by the next look.
                    next = changes.next() => if next.is_err() { break },
                    () = changed(states.as_mut()) => {}
                }
            }
        }
    }

    fn is_there(&self, uid: &str) -> bool {
        let Some(found) = self.served.cache.get(&self.key) else { return false };
        let kind = &self.served.kind;
        let is_visible =
            self.viewer.as_ref().is_none_or(|viewer| kind.is_visible_to(viewer, &found.object));
        found.object.uid() == uid && is_visible
    }
}

/// Returns when the state of a visibility has changed. Without such a state, it never returns.
async fn changed(states: Option<&mut watch::Receiver<u64>>) {
    if let Some(states) = states
        && states.changed().await.is_ok()
    {
        return;
    }
    pending::<()>().await;
}

impl Drop for Ending {
    /// The request has ended, so tasks of its handler must end, too.
    fn drop(&mut self) {
        self.ended.end();
    }
}
