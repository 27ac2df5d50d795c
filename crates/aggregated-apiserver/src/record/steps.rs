//! When a request came to the end of each of its steps.

use std::time::Duration;

/// A step of a request, by what is known at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Who asks.
    Authenticated,
    /// That they may.
    Authorized,
    /// The whole body.
    Read,
    /// A place among what is in flight.
    Admitted,
    /// What is to be done.
    Decoded,
    /// That the data are as new as they have to be.
    Fresh,
    /// The answer, or its head.
    Answered,
}

impl Step {
    /// In their order.
    pub(super) const ALL: [Self; 7] = [
        Self::Authenticated,
        Self::Authorized,
        Self::Read,
        Self::Admitted,
        Self::Decoded,
        Self::Fresh,
        Self::Answered,
    ];

    /// What was done in it, for people.
    fn name(self) -> &'static str {
        match self {
            Self::Authenticated => "authentication",
            Self::Authorized => "authorization",
            Self::Read => "reading the body",
            Self::Admitted => "waiting for a place",
            Self::Decoded => "decoding",
            Self::Fresh => "waiting for newer data",
            Self::Answered => "answering",
        }
    }
}

/// When the end of each step was reached, in microseconds since the request came; 0 if it was not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps([u32; Step::ALL.len()]);

impl Steps {
    /// The end of a step is reached, so long after the request came.
    pub(super) fn reached(&mut self, step: Step, after: Duration) {
        // An hour fits, and whatever takes longer was slow.
        let after = u32::try_from(after.as_micros()).unwrap_or(u32::MAX).max(1);
        if let Some(slot) = self.0.get_mut(step as usize) {
            *slot = after;
        }
    }

    /// How long each step took that was done, in their order.
    fn each(&self) -> impl Iterator<Item = (Step, Duration)> {
        let mut last = 0;
        Step::ALL.into_iter().zip(self.0).filter(|(_, at)| *at > 0).map(move |(step, at)| {
            let took = at.saturating_sub(last);
            last = last.max(at);
            (step, Duration::from_micros(u64::from(took)))
        })
    }

    /// Each of them by its name, in their order.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.each().map(|(step, took)| (step.name(), took))
    }

    /// How long a step took.
    pub(super) fn took(&self, step: Step) -> Duration {
        self.each().find(|(one, _)| *one == step).map(|(_, took)| took).unwrap_or_default()
    }

    /// All of them, for people, and how long is left of the whole time.
    pub(super) fn describe(&self, whole: Duration) -> String {
        let mut text = String::new();
        let mut rest = whole;
        for (name, took) in self.named() {
            rest = rest.saturating_sub(took);
            text.push_str(&format!("{name} {}ms, ", took.as_millis()));
        }
        text + &format!("sending {}ms", rest.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_take_what_lies_between_their_ends() {
        let mut steps = Steps::default();
        let ms = Duration::from_millis;
        steps.reached(Step::Authenticated, ms(2));
        steps.reached(Step::Authorized, ms(302));
        steps.reached(Step::Answered, ms(310));
        assert_eq!(steps.took(Step::Authorized), ms(300));
        assert_eq!(steps.took(Step::Read), Duration::ZERO);
        let text = "authentication 2ms, authorization 300ms, answering 8ms, sending 290ms";
        assert_eq!(steps.describe(ms(600)), text);
    }
}
