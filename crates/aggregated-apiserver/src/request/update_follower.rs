//! A callback for the updates of one kind: an update is answered when the callback has finished.

use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;

use super::throttle::Permit;
use crate::kind::Kind;

/// The longest time that a response waits for the callback. The update stays committed, whatever the result.
const PATIENCE: Duration = Duration::from_secs(5);

type Follow = Box<dyn Fn(&str) -> BoxFuture<'static, ()> + Send + Sync>;

/// The callback and its kind, if one is registered.
#[derive(Default)]
pub(super) struct UpdateFollower(OnceLock<(String, Follow)>);

impl UpdateFollower {
    /// Registers a callback for the kind with this qualified name (`foos.example.com`), unless one is registered
    /// already.
    pub(super) fn set(&self, qualified: &str, follow: Follow) {
        let _ = self.0.set((qualified.to_owned(), follow));
    }

    /// Returns when the callback for an updated object has finished or has timed out. The permit of the update is held
    /// until the callback has finished. If there is no callback, the permit is released immediately.
    pub(super) async fn await_followed(&self, kind: &Kind, name: &str, permit: Permit) {
        let Some((qualified, follow)) = self.0.get() else { return };
        if *qualified == kind.qualified() {
            let follow = follow(name);
            // The callback must not be cancelled halfway if the client disconnects.
            let followed = tokio::spawn(async move {
                follow.await;
                drop(permit);
            });
            let _ = tokio::time::timeout(PATIENCE, followed).await;
        }
    }
}
