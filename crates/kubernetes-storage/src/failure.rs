//! That something has failed for good, and why.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// Whether something has failed for good, as a store: noted once, read and awaited by many.
#[derive(Debug)]
pub struct Failure(watch::Sender<Option<String>>);

impl Failure {
    /// It works.
    pub fn none() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Notes why it works no more.
    pub fn set(&self, why: String) {
        self.0.send_replace(Some(why));
    }

    /// Why it works no more, if it does not.
    pub fn why(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Returns when it works no more; says why.
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
