//! Queries of the newest revision of etcd. One query serves all callers that wait at the same time.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::client::{Client, Fault};
use super::keys::{Prefix, revision};
use super::messages::RangeRequest;
use crate::Revision;

type Answer = Result<Revision, Fault>;

#[derive(Default)]
struct State {
    waiting: Vec<oneshot::Sender<Answer>>,
    is_asking: bool,
}

/// Queries the newest revision.
pub(super) struct Newest {
    client: Arc<Client>,
    prefix: Prefix,
    state: Mutex<State>,
}

impl Newest {
    pub fn new(client: Arc<Client>, prefix: Prefix) -> Self {
        Self { client, prefix, state: Mutex::default() }
    }

    /// Returns the newest revision at some moment after the call. The result of a query that was already running before
    /// the call would be too old.
    pub async fn ask(self: &Arc<Self>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.waiting.push(answer);
            !std::mem::replace(&mut state.is_asking, true)
        };
        if begins {
            // The query runs in a task of its own: its first caller may be cancelled, while other callers wait for the
            // result.
            tokio::spawn(Arc::clone(self).run());
        }
        let gone = || Fault::Unavailable("nobody asks any more".to_owned());
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn run(self: Arc<Self>) {
        loop {
            let waiting = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                // Cancelled callers need no result.
                let waiting: Vec<_> =
                    state.waiting.drain(..).filter(|answer| !answer.is_closed()).collect();
                state.is_asking = !waiting.is_empty();
                waiting
            };
            if waiting.is_empty() {
                return;
            }
            let answer = self.look().await;
            for waiting in waiting {
                let _ = waiting.send(answer.clone());
            }
        }
    }

    /// Queries the revision with a read of one key. The member that responds is as new as the majority of members.
    async fn look(&self) -> Answer {
        let request =
            RangeRequest { key: self.prefix.store(), keys_only: true, ..RangeRequest::default() };
        let answer = self.client.key(request).await?;
        Ok(revision(answer.header.unwrap_or_default().revision))
    }
}
