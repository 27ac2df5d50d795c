//! Limits the concurrent calls of webhooks. A slow webhook leaves turns to other webhooks, and a user with many calls
//! leaves turns of a webhook to other users.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The largest number of calls of one webhook that wait for a turn.
const WAITING: usize = 1_000;

/// The turns of all webhooks. A webhook is identified by host and port: several definitions, and several paths, may
/// refer to the same program, and they share its turns.
///
/// A webhook gets a further turn only while it holds fewer than half of the free turns. So a few slow webhooks leave a
/// turn to the next webhook: if one webhook may hold four turns, seven slow webhooks use up sixteen turns, and nineteen
/// use up sixty-four.
///
/// A user gets a further turn of a webhook only while it holds fewer turns than are free. Users get their turns
/// round-robin.
#[derive(Debug)]
pub(super) struct CallLimiter {
    all: usize,
    /// The largest number of turns of one webhook.
    of_one: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    taken: usize,
    webhooks: BTreeMap<String, Webhook>,
    /// The number of calls that have waited since the start.
    waited: u64,
}

/// A webhook with calls that hold a turn or wait for one.
#[derive(Debug, Default)]
struct Webhook {
    taken: usize,
    waiting: usize,
    /// The number of calls that have got a turn.
    called: u64,
    users: BTreeMap<String, OfUser>,
}

/// The calls of a webhook for one user.
#[derive(Debug, Default)]
struct OfUser {
    taken: usize,
    /// The value of `called` when the last call of the user got a turn.
    last: u64,
    /// The waiting calls, the oldest first.
    waiting: VecDeque<Waiting>,
}

/// A call that waits for its turn.
#[derive(Debug)]
struct Waiting {
    /// Later calls have larger numbers.
    number: u64,
    call: oneshot::Sender<()>,
}

/// The turn of a call, or its position in the queue. Dropping it releases either.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a CallLimiter,
    caller: Caller<'a>,
    number: u64,
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
    pub(super) const fn new(all: usize, of_one: usize) -> Self {
        let state = State { taken: 0, webhooks: BTreeMap::new(), waited: 0 };
        Self { all, of_one, state: Mutex::new(state) }
    }

    /// Waits for a turn of this webhook for this user.
    ///
    /// # Errors
    /// [`Full`] if too many calls wait.
    pub(super) async fn take<'a>(&'a self, caller: Caller<'a>) -> Result<Turn<'a>, Full> {
        let (turn, called) = self.wait(caller)?;
        // The sender is dropped only after it has sent, so this is never an error.
        let _ = called.await;
        Ok(turn)
    }

    fn wait<'a>(&'a self, caller: Caller<'a>) -> Result<(Turn<'a>, oneshot::Receiver<()>), Full> {
        let (call, called) = oneshot::channel();
        let mut state = self.lock();
        state.waited += 1;
        let number = state.waited;
        let webhook = state.webhooks.entry(caller.webhook.to_owned()).or_default();
        if webhook.waiting >= WAITING {
            return Err(Full);
        }
        webhook.waiting += 1;
        let user = webhook.users.entry(caller.user.to_owned()).or_default();
        user.waiting.push_back(Waiting { number, call });
        state.hand_out(self.all, self.of_one);
        Ok((Turn { turns: self, caller, number }, called))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives free turns to the calls that have waited longest, among the webhooks and users that may get a further
    /// turn.
    fn hand_out(&mut self, all: usize, of_one: usize) {
        while self.taken < all {
            let free = all - self.taken;
            let mut next: Option<(u64, &mut Webhook, String)> = None;
            for webhook in self.webhooks.values_mut() {
                let limit = of_one.min(free / 2);
                if webhook.taken > 0 && webhook.taken >= limit {
                    continue;
                }
                let Some((number, user)) = webhook.next(of_one) else { continue };
                if next.as_ref().is_none_or(|(first, ..)| number < *first) {
                    next = Some((number, webhook, user));
                }
            }
            let Some((_, webhook, user)) = next else { return };
            webhook.call(&user);
            self.taken += 1;
        }
    }

    /// Releases a turn, or a position in the queue.
    fn leave(&mut self, caller: Caller<'_>, number: u64) {
        let Some(webhook) = self.webhooks.get_mut(caller.webhook) else { return };
        let Some(user) = webhook.users.get_mut(caller.user) else { return };
        match user.waiting.binary_search_by_key(&number, |waiting| waiting.number) {
            Ok(place) => {
                drop(user.waiting.remove(place));
                webhook.waiting -= 1;
            }
            Err(_) => {
                user.taken = user.taken.saturating_sub(1);
                webhook.taken = webhook.taken.saturating_sub(1);
                self.taken = self.taken.saturating_sub(1);
            }
        }
        if user.taken == 0 && user.waiting.is_empty() {
            webhook.users.remove(caller.user);
        }
        if webhook.users.is_empty() {
            self.webhooks.remove(caller.webhook);
        }
    }
}

impl Webhook {
    /// The next call, and its user: of the users that may have a further call, the user with the longest time since its
    /// last call.
    fn next(&self, of_one: usize) -> Option<(u64, String)> {
        let free = of_one.saturating_sub(self.taken);
        let may = |user: &OfUser| user.taken == 0 || user.taken < free;
        let users = self.users.iter().filter(|(_, user)| may(user));
        let waiting = users.filter_map(|(name, user)| {
            user.waiting.front().map(|first| ((user.last, first.number), name))
        });
        waiting.min().map(|((_, number), name)| (number, name.clone()))
    }

    /// Gives a turn to the first call of a user.
    fn call(&mut self, name: &str) {
        let Some(user) = self.users.get_mut(name) else { return };
        let Some(first) = user.waiting.pop_front() else { return };
        // A call that is about to stop waiting releases the turn.
        let _ = first.call.send(());
        self.called += 1;
        user.last = self.called;
        user.taken += 1;
        self.taken += 1;
        self.waiting -= 1;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.leave(self.caller, self.number);
        state.hand_out(self.turns.all, self.turns.of_one);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const OF_ONE: usize = 4;

    /// A call of a webhook for a user.
    fn call<'a>(webhook: &'a str, user: &'a str) -> Caller<'a> {
        Caller { webhook, user }
    }

    fn now<'a>(turns: &'a CallLimiter, webhook: &'a str, user: &'a str) -> Option<Turn<'a>> {
        turns.take(call(webhook, user)).now_or_never().map(|taken| taken.unwrap())
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
        let state = turns.lock();
        assert!(state.webhooks.is_empty() && state.taken == 0);
    }

    #[test]
    fn a_slow_webhook_does_not_delay_calls_to_a_fast_webhook() {
        let (turns, users) = (CallLimiter::new(16, OF_ONE), users());
        let slow: Vec<_> =
            users[..OF_ONE].iter().map(|user| now(&turns, "slow:443", user)).collect();
        let mut next = Box::pin(turns.take(call("slow:443", "a")));
        assert!((&mut next).now_or_never().is_none());
        let others: Vec<_> = (0..100).map(|_| turns.wait(call("slow:443", "a")).unwrap()).collect();
        for _ in 0..1_000 {
            assert!(now(&turns, "quick:443", "a").is_some(), "nothing is before it");
        }
        drop(slow);
        assert!((&mut next).now_or_never().is_some());
        drop(others);
        drop(next);
        assert!(turns.lock().webhooks.is_empty());
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
        let eve: Vec<_> = (0..100).map(|_| turns.wait(call("a:443", "eve")).unwrap()).collect();
        let (_new, mut called) = turns.wait(call("a:443", "new")).unwrap();
        drop(kept.pop());
        assert!((&mut called).now_or_never().is_some());
        drop((eve, kept));
    }

    #[test]
    fn waiting_webhook_calls_are_round_robin_over_users() {
        let turns = CallLimiter::new(16, 1);
        let held = now(&turns, "a", "x").unwrap();
        let mut waiting: Vec<_> = ["eve", "eve", "eve", "jane", "jane"]
            .map(|user| (user, turns.wait(call("a", user)).unwrap()))
            .into();
        let mut order = Vec::new();
        drop(held);
        while !waiting.is_empty() {
            let called =
                waiting.iter_mut().position(|(_, (_, called))| called.now_or_never().is_some());
            let (user, turn) = waiting.remove(called.unwrap());
            order.push(user);
            drop(turn);
        }
        assert_eq!(order, ["eve", "jane", "eve", "jane", "eve"]);
    }

    #[test]
    fn waiting_webhook_calls_are_limited() {
        let turns = CallLimiter::new(1, 1);
        let held: Vec<_> = (0..=WAITING).map(|_| turns.wait(call("a", "eve")).unwrap()).collect();
        assert!(turns.wait(call("a", "eve")).is_err());
        drop(held);
        assert!(turns.lock().webhooks.is_empty());
    }

    #[tokio::test]
    async fn waiting_webhook_calls_start_in_order_and_dropped_calls_use_no_permit() {
        let turns = CallLimiter::new(1, OF_ONE);
        let first = turns.take(call("a", "u")).await;
        let mut second = Box::pin(turns.take(call("b", "u")));
        let mut third = Box::pin(turns.take(call("a", "u")));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        // A call that stops waiting for its turn takes none.
        assert!(now(&turns, "b", "u").is_none());
        let mut fourth = Box::pin(turns.take(call("b", "u")));
        assert!((&mut fourth).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        drop(second.await);
        assert!((&mut fourth).now_or_never().is_none());
        // A call that got a turn and was then dropped takes none, either.
        drop(third);
        drop(fourth.await);
        let state = turns.lock();
        assert!(state.webhooks.is_empty() && state.taken == 0);
    }
}
