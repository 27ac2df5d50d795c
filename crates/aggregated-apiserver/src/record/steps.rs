//! The times at which a request completed each of its steps.

use std::time::Duration;

/// A step of a request, named after its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The user is authenticated.
    Authenticated,
    /// The request is authorized.
    Authorized,
    /// The whole body has been read.
    Read,
    /// The request has a slot among the concurrent requests.
    Admitted,
    /// The request is decoded.
    Decoded,
    /// The data are as new as the request demands.
    Fresh,
    /// The response, or its head, is ready.
    Answered,
}

impl Step {
    /// All steps in their order.
    pub(super) const ALL: [Self; 7] = [
        Self::Authenticated,
        Self::Authorized,
        Self::Read,
        Self::Admitted,
        Self::Decoded,
        Self::Fresh,
        Self::Answered,
    ];

    /// The name of the step in log lines.
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

/// The end of each step, in microseconds since the request arrived; 0 for a step that was not reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps([u32; Step::ALL.len()]);

impl Steps {
    /// Records the end of a step. `after` is the time since the request arrived.
    pub(super) fn reached(&mut self, step: Step, after: Duration) {
        // A `u32` holds the microseconds of more than an hour. Longer times are truncated.
        let after = u32::try_from(after.as_micros()).unwrap_or(u32::MAX).max(1);
        if let Some(slot) = self.0.get_mut(step as usize) {
            *slot = after;
        }
    }

    /// The duration of each completed step, in order.
    fn each(&self) -> impl Iterator<Item = (Step, Duration)> {
        let mut last = 0;
        Step::ALL.into_iter().zip(self.0).filter(|(_, at)| *at > 0).map(move |(step, at)| {
            let took = at.saturating_sub(last);
            last = last.max(at);
            (step, Duration::from_micros(u64::from(took)))
        })
    }

    /// The name and the duration of each completed step, in order.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.each().map(|(step, took)| (step.name(), took))
    }

    /// The duration of a step.
    pub(super) fn took(&self, step: Step) -> Duration {
        self.each().find(|(one, _)| *one == step).map(|(_, took)| took).unwrap_or_default()
    }

    /// A description of all completed steps for log lines, with the remaining part of the whole duration.
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
    fn step_durations_are_the_times_between_step_ends() {
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
