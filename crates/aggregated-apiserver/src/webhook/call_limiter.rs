//! Turns: the permits of concurrent webhook calls. A slow webhook leaves turns to other webhooks, and a user with many
//! calls leaves turns of a webhook to other users.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::quota::{Busy, Limiter, Permit, Share};

/// The largest number of calls of one webhook that wait for a turn for one user.
const WAITING: usize = 1_000;

/// The turns of all webhooks. A webhook is identified by host and port: several definitions, and several paths, may
/// refer to the same program, and they share its turns.
///
/// A call first acquires one of the turns of its webhook, and then one of all turns. The waiting time has no limit here:
/// the time of a call includes it.
#[derive(Debug)]
pub(super) struct CallLimiter {
    /// All turns, whose users are the webhooks. A webhook gets a further turn only while it holds fewer than half of the
    /// free turns. So a few slow webhooks leave a turn to the next webhook: if one webhook may hold four turns, seven
    /// slow webhooks use up sixteen turns, and nineteen use up sixty-four.
    all: Limiter,
    /// The largest number of turns of one webhook.
    of_one: usize,
    /// The turns of each webhook with calls. A user gets a further turn only while it holds fewer turns than are free.
    webhooks: Mutex<BTreeMap<String, Weak<Limiter>>>,
}

/// The turn of a call. Dropping it releases the turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    caller: Caller<'a>,
    _turn: Permit,
    _of_webhook: (Permit, Arc<Limiter>),
}

/// A webhook, by host and port, and the user of the request that calls it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub webhook: &'a str,
    pub user: &'a str,
}

/// The queue of the webhook is full.
#[derive(Debug)]
pub(super) struct Full;

impl<'a> Turn<'a> {
    /// The webhook and the user of the call.
    pub fn caller(&self) -> Caller<'a> {
        self.caller
    }
}

impl CallLimiter {
    /// Creates limits for all turns, and for those of one webhook.
    pub(super) fn new(all: usize, of_one: usize) -> Self {
        // A call that waits for one of all turns has a turn of its webhook already. So `of_one` limits these calls.
        let all = Limiter::new(all, Share::PartOfFree(2)).with_waiting_of_user(WAITING);
        // Every webhook may have one call.
        Self { all, of_one: of_one.max(1), webhooks: Mutex::default() }
    }

    /// Waits for a turn of this webhook for this user.
    ///
    /// # Errors
    /// [`Full`] if too many calls wait.
    pub(super) async fn take<'a>(&self, caller: Caller<'a>) -> Result<Turn<'a>, Full> {
        let full = |Busy { .. }| Full;
        let webhook = self.webhook(caller.webhook);
        let of_webhook = webhook.acquire(caller.user, 1, pending()).await.map_err(full)?;
        let turn = self.all.acquire(caller.webhook, 1, pending()).await.map_err(full)?;
        Ok(Turn { caller, _turn: turn, _of_webhook: (of_webhook, webhook) })
    }

    fn webhook(&self, address: &str) -> Arc<Limiter> {
        let mut webhooks = self.webhooks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(webhook) = webhooks.get(address).and_then(Weak::upgrade) {
            return webhook;
        }
        // Webhooks without calls are forgotten.
        webhooks.retain(|_, webhook| webhook.strong_count() > 0);
        let webhook = Limiter::new(self.of_one, Share::PartOfFree(1));
        let webhook = Arc::new(webhook.with_waiting_of_user(WAITING));
        webhooks.insert(address.to_owned(), Arc::downgrade(&webhook));
        webhook
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;

    const OF_ONE: usize = 4;

    /// A call of a webhook for a user.
    fn call<'a>(webhook: &'a str, user: &'a str) -> Caller<'a> {
        Caller { webhook, user }
    }

    fn now<'a>(turns: &CallLimiter, webhook: &'a str, user: &'a str) -> Option<Turn<'a>> {
        turns.take(call(webhook, user)).now_or_never().map(|taken| taken.unwrap())
    }

    /// A call that waits for its turn.
    fn waiting<'a>(
        turns: &'a CallLimiter,
        webhook: &'a str,
        user: &'a str,
    ) -> BoxFuture<'a, Turn<'a>> {
        let mut waiting = turns.take(call(webhook, user)).map(|taken| taken.unwrap()).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        waiting
    }

    /// Asserts that no call holds a turn or waits for one.
    fn assert_unused(turns: &CallLimiter) {
        assert_eq!(turns.all.used(), 0);
        turns.webhook("unused");
        assert_eq!(turns.webhooks.lock().unwrap().len(), 1);
    }

    /// The names of users, one for each call.
    fn users() -> Vec<String> {
        (0..100).map(|number| format!("user-{number:02}")).collect()
    }

    #[test]
    fn busy_webhooks_leave_call_permits_for_other_webhooks() {
        let (turns, users) = (CallLimiter::new(16, OF_ONE), users());
        let webhooks: Vec<String> = (0..16).map(|number| format!("a:{number}")).collect();
        let mut kept = Vec::new();
        let mut counts = Vec::new();
        for webhook in &webhooks[..5] {
            let before = kept.len();
            kept.extend(users[..10].iter().map_while(|user| now(&turns, webhook, user)));
            counts.push(kept.len() - before);
        }
        assert_eq!(counts, [4, 4, 3, 2, 1]);
        assert!(now(&turns, &webhooks[0], "another").is_none());
        for webhook in &webhooks[5..7] {
            kept.push(now(&turns, webhook, "a").unwrap());
        }
        assert!(now(&turns, &webhooks[7], "a").is_none(), "there are no more");
        kept.clear();
        assert_unused(&turns);
    }

    #[test]
    fn a_slow_webhook_does_not_delay_calls_to_a_fast_webhook() {
        let (turns, users) = (CallLimiter::new(16, OF_ONE), users());
        let slow: Vec<_> =
            users[..OF_ONE].iter().map(|user| now(&turns, "slow:443", user)).collect();
        let next = waiting(&turns, "slow:443", "a");
        let others: Vec<_> = (0..100).map(|_| waiting(&turns, "slow:443", "a")).collect();
        for _ in 0..1_000 {
            assert!(now(&turns, "quick:443", "a").is_some(), "nothing is before it");
        }
        drop(slow);
        assert!(next.now_or_never().is_some());
        drop(others);
        assert_unused(&turns);
    }

    #[test]
    fn a_user_with_many_calls_leaves_call_permits_for_other_users() {
        let (turns, users) = (CallLimiter::new(256, 64), users());
        let mut kept = Vec::new();
        let mut counts = Vec::new();
        for user in ["eve", "jane", "joe"] {
            let before = kept.len();
            kept.extend((0..100).map_while(|_| now(&turns, "a:443", user)));
            counts.push(kept.len() - before);
        }
        assert_eq!(counts, [32, 16, 8]);
        // Waiting calls of one user are behind the first call of another user.
        kept.extend(users.iter().map_while(|user| now(&turns, "a:443", user)));
        assert_eq!(kept.len(), 64);
        let eve: Vec<_> = (0..100).map(|_| waiting(&turns, "a:443", "eve")).collect();
        let new = waiting(&turns, "a:443", "new");
        drop(kept.pop());
        assert!(new.now_or_never().is_some());
        drop((eve, kept));
    }

    #[test]
    fn waiting_webhook_calls_are_round_robin_over_users() {
        let turns = CallLimiter::new(16, 1);
        let held = now(&turns, "a", "x").unwrap();
        let mut calls: Vec<_> = ["eve", "eve", "eve", "jane", "jane"]
            .map(|user| (user, waiting(&turns, "a", user)))
            .into();
        let mut order = Vec::new();
        drop(held);
        while !calls.is_empty() {
            let called = calls.iter_mut().position(|(_, call)| call.now_or_never().is_some());
            order.push(calls.remove(called.unwrap()).0);
        }
        assert_eq!(order, ["eve", "jane", "eve", "jane", "eve"]);
    }

    #[test]
    fn waiting_webhook_calls_are_limited() {
        let turns = CallLimiter::new(1, 1);
        let _held = now(&turns, "a", "eve").unwrap();
        let _waiting: Vec<_> = (0..WAITING).map(|_| waiting(&turns, "a", "eve")).collect();
        assert!(matches!(turns.take(call("a", "eve")).now_or_never(), Some(Err(Full))));
    }

    #[test]
    fn calls_of_many_webhooks_wait_while_all_turns_are_in_use() {
        let turns = CallLimiter::new(1, OF_ONE);
        let webhooks: Vec<String> = (0..100).map(|number| format!("a:{number}")).collect();
        let held = now(&turns, "held", "a").unwrap();
        let calls: Vec<_> = ["a", "b"]
            .iter()
            .flat_map(|user| webhooks.iter().map(|webhook| waiting(&turns, webhook, user)))
            .collect();
        drop(held);
        assert!(calls.into_iter().all(|call| call.now_or_never().is_some()));
        assert_unused(&turns);
    }

    #[test]
    fn a_webhook_may_always_have_one_call() {
        let turns = CallLimiter::new(1, 0);
        assert!(now(&turns, "a", "u").is_some());
    }

    #[test]
    fn waiting_webhook_calls_start_in_order_and_dropped_calls_use_no_permit() {
        let turns = CallLimiter::new(1, OF_ONE);
        let first = now(&turns, "a", "u");
        let mut second = waiting(&turns, "b", "u");
        let mut third = waiting(&turns, "a", "u");
        // A call that stops waiting for its turn takes none.
        assert!(now(&turns, "b", "u").is_none());
        let mut fourth = waiting(&turns, "b", "u");
        drop(first);
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        drop((&mut second).now_or_never().unwrap());
        assert!((&mut fourth).now_or_never().is_none());
        // A call that got a turn and was then dropped takes none, either.
        drop(third);
        drop(fourth.now_or_never().unwrap());
        assert_unused(&turns);
    }
}
