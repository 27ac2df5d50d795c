//! Turns of calls: there are so many, and those of one webhook leave others some.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// So many turns of one webhook at once.
const OF_ONE: usize = 4;

/// So many turns for all webhooks, which are known by their URLs.
///
/// Beyond its first one a webhook gets a turn only while it has fewer than half as many as are free. So however many
/// webhooks keep theirs, the next one finds one free, as long as they are few: seven of them take sixteen turns, nineteen sixty-four.
#[derive(Debug)]
pub(super) struct Turns {
    all: usize,
    taken: Mutex<Taken>,
    given_back: Notify,
}

#[derive(Debug)]
struct Taken {
    all: usize,
    of: BTreeMap<String, usize>,
}

/// One of the turns, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    url: &'a str,
}

impl Turns {
    /// So many turns.
    pub(super) const fn new(all: usize) -> Self {
        let taken = Mutex::new(Taken { all: 0, of: BTreeMap::new() });
        Self { all, taken, given_back: Notify::const_new() }
    }

    /// Waits for a turn of the webhook of this URL.
    pub(super) async fn take<'a>(&'a self, url: &'a str) -> Turn<'a> {
        loop {
            let mut given_back = std::pin::pin!(self.given_back.notified());
            // From now on nothing that is given back is missed.
            given_back.as_mut().enable();
            if let Some(turn) = self.try_take(url) {
                return turn;
            }
            given_back.await;
        }
    }

    fn try_take<'a>(&'a self, url: &'a str) -> Option<Turn<'a>> {
        let mut taken = self.lock();
        let free = self.all.saturating_sub(taken.all);
        let has = taken.of.get(url).copied().unwrap_or(0);
        if free == 0 || (has > 0 && has >= OF_ONE.min(free / 2)) {
            return None;
        }
        taken.all += 1;
        match taken.of.get_mut(url) {
            Some(has) => *has += 1,
            None => {
                taken.of.insert(url.to_owned(), 1);
            }
        }
        Some(Turn { turns: self, url })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(has) = taken.of.get_mut(self.url) {
            *has -= 1;
            if *has == 0 {
                taken.of.remove(self.url);
            }
        }
        drop(taken);
        self.turns.given_back.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn webhooks_that_keep_their_turns_leave_one_to_the_next() {
        let turns = Turns::new(16);
        let urls: Vec<String> = (0..16).map(|number| format!("https://a/{number}")).collect();
        let mut kept = Vec::new();
        let mut counts = Vec::new();
        for url in &urls[..5] {
            let before = kept.len();
            kept.extend((0..10).map_while(|_| turns.try_take(url)));
            counts.push(kept.len() - before);
        }
        assert_eq!(counts, [4, 4, 3, 2, 1]);
        assert!(turns.take(&urls[0]).now_or_never().is_none());
        for url in &urls[5..7] {
            kept.push(turns.take(url).now_or_never().unwrap());
        }
        assert!(turns.take(&urls[7]).now_or_never().is_none(), "there are no more");
    }

    #[tokio::test]
    async fn what_is_given_back_goes_to_one_who_waits() {
        let turns = Turns::new(1);
        let first = turns.take("a").await;
        let mut second = Box::pin(turns.take("b"));
        assert!((&mut second).now_or_never().is_none());
        // A call that stops waiting for its turn takes none.
        let third = turns.take("c");
        assert!(third.now_or_never().is_none());
        drop(first);
        drop(second.await);
        assert!(turns.lock().of.is_empty() && turns.lock().all == 0);
    }
}
