//! Computed objects that are not published yet: measurements change all the time, and an event of each object every few
//! seconds is of no use to watchers.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::object::Key;

/// When the object of a source was last published because of a measurement, and since when its current measurements are
/// held back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold {
    told: Option<Instant>,
    since: Option<Instant>,
    until: Option<Instant>,
}

impl Hold {
    /// Whether the measurements are published now; the error is the time of the next check.
    pub fn is_over(
        &mut self,
        now: Instant,
        is_worth_publishing: bool,
        (at_most_every, at_latest): (Duration, Duration),
    ) -> Result<(), Instant> {
        let since = *self.since.get_or_insert(now);
        let earliest = self.told.map_or(now, |told| told + at_most_every);
        let due = if is_worth_publishing { now } else { since + at_latest };
        let time = earliest.max(due);
        if now < time {
            return Err(time);
        }
        Ok(())
    }

    /// Records that the published object has the current measurements. `told` is the time of the event if a measurement
    /// caused it.
    pub fn end(&mut self, told: Option<Instant>) {
        self.told = told.or(self.told);
        self.since = None;
    }
}

/// The times at which held-back objects must be checked again.
#[derive(Default)]
pub(super) struct Unpublished(BTreeSet<(Instant, Key)>);

impl Unpublished {
    /// Records until when the object of a source is held back, if it is. Replaces the time that was recorded before.
    pub fn note(&mut self, source: &Key, hold: &mut Hold, until: Option<Instant>) {
        if let Some(before) = hold.until.take() {
            self.0.remove(&(before, source.clone()));
        }
        if let Some(until) = until {
            hold.until = Some(until);
            self.0.insert((until, source.clone()));
        }
    }

    /// Takes the sources that are due.
    pub fn take_due(&mut self, now: Instant) -> impl Iterator<Item = Key> {
        let mut due = Vec::new();
        while self.0.first().is_some_and(|(until, _)| *until <= now) {
            due.extend(self.0.pop_first().map(|(_, source)| source));
        }
        due.into_iter()
    }

    /// When the next source is due.
    pub fn next(&self) -> Option<Instant> {
        self.0.first().map(|(until, _)| *until)
    }
}
