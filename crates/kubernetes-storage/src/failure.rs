//! A permanent failure and its reason.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// Whether a component, such as a store, has failed permanently. The failure is set once, and many tasks can read it or
/// wait for it.
#[derive(Debug)]
pub struct Failure(watch::Sender<Option<String>>);

impl Failure {
    /// Creates the state without a failure.
    pub fn none() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Sets the reason of the failure.
    pub fn set(&self, why: String) {
        self.0.send_replace(Some(why));
    }

    /// The reason of the failure, if there is one.
    pub fn why(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits for the failure, and returns its reason.
    pub fn wait(&self) -> BoxFuture<'static, String> {
        let mut failed = self.0.subscribe();
        async move {
            // The sender lives as long as the store.
            let failed = failed.wait_for(Option::is_some).await;
            failed.ok().and_then(|why| why.clone()).unwrap_or_default()
        }
        .boxed()
    }
}
