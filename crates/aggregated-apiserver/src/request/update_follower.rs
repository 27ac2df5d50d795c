//! Code that follows the updates of one kind: the response to an update is sent when the code has processed it.

use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;

use super::throttle::Permit;
use crate::kind::Kind;

/// The longest delay of a response. The update stays, whatever the result of the code is.
const PATIENCE: Duration = Duration::from_secs(5);

type Follow = Box<dyn Fn(&str) -> BoxFuture<'static, ()> + Send + Sync>;

/// The code that follows updates, if any.
#[derive(Default)]
pub(super) struct UpdateFollower(OnceLock<(String, Follow)>);

impl UpdateFollower {
    /// Sets the code for the kind of this name (`foos.example.com`), unless it is set already.
    pub(super) fn set(&self, qualified: &str, follow: Follow) {
        let _ = self.0.set((qualified.to_owned(), follow));
    }

    /// Returns when the update of the object of this name was processed, or takes too long. The permit of the update is
    /// held until then; without a follower it is released immediately.
    pub(super) async fn await_followed(&self, kind: &Kind, name: &str, permit: Permit) {
        let Some((qualified, follow)) = self.0.get() else { return };
        if *qualified == kind.qualified() {
            let follow = follow(name);
            // A client that disconnects must not interrupt the code.
            let followed = tokio::spawn(async move {
                follow.await;
                drop(permit);
            });
            let _ = tokio::time::timeout(PATIENCE, followed).await;
        }
    }
}
