//! The newest revision of etcd, asked for once for all who want to know it at the same time.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::client::{Client, Fault};
use super::messages::RangeRequest;
use super::place::{Prefix, revision};
use crate::Revision;

type Answer = Result<Revision, Fault>;

#[derive(Default)]
struct State {
    waiting: Vec<oneshot::Sender<Answer>>,
    is_asking: bool,
}

/// Asks for the newest revision.
pub(super) struct Newest {
    client: Arc<Client>,
    prefix: Prefix,
    state: Mutex<State>,
}

impl Newest {
    pub fn new(client: Arc<Client>, prefix: Prefix) -> Self {
        Self { client, prefix, state: Mutex::default() }
    }

    /// The newest revision at some moment after the call: a question that was under way before it
    /// would be too old.
    pub async fn ask(self: &Arc<Self>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.waiting.push(answer);
            !std::mem::replace(&mut state.is_asking, true)
        };
        if begins {
            // Whoever was first may go away before it is answered; the others still want to know.
            tokio::spawn(Arc::clone(self).run());
        }
        let gone = || Fault::Unavailable("nobody asks any more".to_owned());
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn run(self: Arc<Self>) {
        loop {
            let waiting = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                // Who has gone need not be told.
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

    /// Asks by a read of one key, which is answered by a member that is as new as most of them.
    async fn look(&self) -> Answer {
        let request =
            RangeRequest { key: self.prefix.store(), keys_only: true, ..RangeRequest::default() };
        let answer = self.client.key(request).await?;
        Ok(revision(answer.header.unwrap_or_default().revision))
    }
}
