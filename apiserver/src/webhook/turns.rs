//! Bounds the calls of webhooks that run at the same time, so that a slow webhook leaves turns to others. Calls of one webhook get their
//! turns first come, first served.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// So many turns for all webhooks, which are known by host and port: several definitions, and several paths, may lead to
/// the same program, and all of them have the turns of one.
///
/// Beyond its first one a webhook gets a turn only while it has fewer than half as many as are free. So however many
/// webhooks keep theirs, the next one finds one free, as long as they are few: if one may have four, seven of them take sixteen turns, nineteen sixty-four.
#[derive(Debug)]
pub(super) struct Turns {
    all: usize,
    /// So many of one webhook at most.
    of_one: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    taken: usize,
    webhooks: BTreeMap<String, Webhook>,
    /// How many calls have waited since the start.
    waited: u64,
}

/// A webhook with calls that have a turn, or wait for one.
#[derive(Debug, Default)]
struct Webhook {
    taken: usize,
    /// The calls that wait, the oldest first.
    waiting: VecDeque<Waiting>,
}

/// A call that waits for its turn.
#[derive(Debug)]
struct Waiting {
    /// Later calls have larger numbers.
    number: u64,
    call: oneshot::Sender<()>,
}

/// The turn of a call, or its place in the queue; dropping it gives that back.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    webhook: &'a str,
    number: u64,
}

impl Turn<'_> {
    /// The host and port of the webhook.
    pub(super) fn address(&self) -> &str {
        self.webhook
    }
}

impl Turns {
    /// So many turns, and so many of one webhook.
    pub(super) const fn new(all: usize, of_one: usize) -> Self {
        let state = State { taken: 0, webhooks: BTreeMap::new(), waited: 0 };
        Self { all, of_one, state: Mutex::new(state) }
    }

    /// Waits for a turn of the webhook at this host and port.
    pub(super) async fn take<'a>(&'a self, webhook: &'a str) -> Turn<'a> {
        let (turn, called) = self.wait(webhook);
        // The sender is only dropped after it has sent, so this is never an error.
        let _ = called.await;
        turn
    }

    fn wait<'a>(&'a self, webhook: &'a str) -> (Turn<'a>, oneshot::Receiver<()>) {
        let (call, called) = oneshot::channel();
        let mut state = self.lock();
        state.waited += 1;
        let number = state.waited;
        let of_webhook = state.webhooks.entry(webhook.to_owned()).or_default();
        of_webhook.waiting.push_back(Waiting { number, call });
        state.hand_out(self.all, self.of_one);
        (Turn { turns: self, webhook, number }, called)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives turns to those who have waited longest, of webhooks that may have another one.
    fn hand_out(&mut self, all: usize, of_one: usize) {
        while self.taken < all {
            let free = all - self.taken;
            let may = |one: &Webhook| one.taken == 0 || one.taken < of_one.min(free / 2);
            let webhooks = self.webhooks.values_mut().filter(|one| may(one));
            let longest = webhooks
                .filter_map(|one| one.waiting.front().map(|first| first.number).zip(Some(one)))
                .min_by_key(|(number, _)| *number);
            let Some((_, webhook)) = longest else { return };
            let Some(first) = webhook.waiting.pop_front() else { return };
            // One who is about to give up waiting gives it back.
            let _ = first.call.send(());
            webhook.taken += 1;
            self.taken += 1;
        }
    }

    /// Gives a turn back, or stops waiting for it.
    fn leave(&mut self, webhook: &str, number: u64) {
        let Some(of_webhook) = self.webhooks.get_mut(webhook) else { return };
        match of_webhook.waiting.binary_search_by_key(&number, |waiting| waiting.number) {
            Ok(place) => drop(of_webhook.waiting.remove(place)),
            Err(_) => {
                of_webhook.taken = of_webhook.taken.saturating_sub(1);
                self.taken = self.taken.saturating_sub(1);
            }
        }
        if of_webhook.taken == 0 && of_webhook.waiting.is_empty() {
            self.webhooks.remove(webhook);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.leave(self.webhook, self.number);
        state.hand_out(self.turns.all, self.turns.of_one);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const OF_ONE: usize = 4;

    #[test]
    fn webhooks_that_keep_their_turns_leave_one_to_the_next() {
        let turns = Turns::new(16, OF_ONE);
        let webhooks: Vec<String> = (0..16).map(|number| format!("a:{number}")).collect();
        let mut kept = Vec::new();
        let mut counts = Vec::new();
        for webhook in &webhooks[..5] {
            let before = kept.len();
            kept.extend((0..10).map_while(|_| turns.take(webhook).now_or_never()));
            counts.push(kept.len() - before);
        }
        assert_eq!(counts, [4, 4, 3, 2, 1]);
        assert!(turns.take(&webhooks[0]).now_or_never().is_none());
        for webhook in &webhooks[5..7] {
            kept.push(turns.take(webhook).now_or_never().unwrap());
        }
        assert!(turns.take(&webhooks[7]).now_or_never().is_none(), "there are no more");
        kept.clear();
        let state = turns.lock();
        assert!(state.webhooks.is_empty() && state.taken == 0);
    }

    #[test]
    fn a_slow_webhook_keeps_nobody_from_a_quick_one() {
        let turns = Turns::new(16, OF_ONE);
        let slow: Vec<_> = (0..OF_ONE).map(|_| turns.take("slow:443").now_or_never()).collect();
        let mut next = Box::pin(turns.take("slow:443"));
        assert!((&mut next).now_or_never().is_none());
        let others: Vec<_> = (0..100).map(|_| turns.wait("slow:443")).collect();
        for _ in 0..1_000 {
            assert!(turns.take("quick:443").now_or_never().is_some(), "nobody is before it");
        }
        drop(slow);
        assert!((&mut next).now_or_never().is_some());
        drop(others);
        drop(next);
        assert!(turns.lock().webhooks.is_empty());
    }

    #[tokio::test]
    async fn who_has_asked_first_comes_first() {
        let turns = Turns::new(1, OF_ONE);
        let first = turns.take("a").await;
        let (mut second, mut third) = (Box::pin(turns.take("b")), Box::pin(turns.take("a")));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        // A call that stops waiting for its turn takes none.
        assert!(turns.take("b").now_or_never().is_none());
        let mut fourth = Box::pin(turns.take("b"));
        assert!((&mut fourth).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        drop(second.await);
        assert!((&mut fourth).now_or_never().is_none());
        // Nor one that was called, and did not come.
        drop(third);
        drop(fourth.await);
        let state = turns.lock();
        assert!(state.webhooks.is_empty() && state.taken == 0);
    }
}
