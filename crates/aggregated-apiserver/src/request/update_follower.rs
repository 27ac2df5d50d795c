//! Code that follows the updates of one kind: an update is answered when it is done with it.

use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;

use super::throttle::Permit;
use crate::kind::Kind;

/// How long an answer waits for it. The update is kept, whatever comes of that.
const PATIENCE: Duration = Duration::from_secs(5);

type Follow = Box<dyn Fn(&str) -> BoxFuture<'static, ()> + Send + Sync>;

/// Who follows updates, if anybody does.
#[derive(Default)]
pub(super) struct UpdateFollower(OnceLock<(String, Follow)>);

impl UpdateFollower {
    /// Follows the updates of the kind of this name (`foos.example.com`), unless somebody does already.
    pub(super) fn set(&self, qualified: &str, follow: Follow) {
        let _ = self.0.set((qualified.to_owned(), follow));
    }

    /// Returns when an update of the object of this name was followed, or takes too long. The permit of the update is
    /// held until it was followed, or released at once.
    pub(super) async fn await_followed(&self, kind: &Kind, name: &str, permit: Permit) {
        let Some((qualified, follow)) = self.0.get() else { return };
        if *qualified == kind.qualified() {
            let follow = follow(name);
            // A client that goes away must not leave it half done.
            let followed = tokio::spawn(async move {
                follow.await;
                drop(permit);
            });
            let _ = tokio::time::timeout(PATIENCE, followed).await;
        }
    }
}
