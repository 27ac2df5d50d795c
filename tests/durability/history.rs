//! What was asked for, what was acknowledged, and what a watch has shown.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use farm_operator::v1alpha::Llama;
use kube::ResourceExt;

/// What a write makes of a llama.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It weighs so much.
    Weighs(f64),
    /// It is gone.
    Gone,
}

/// What is known of one llama, whom one writer writes alone.
#[derive(Clone, Debug)]
pub struct Known {
    /// What was acknowledged last, and the number of that, if it has one.
    pub acknowledged: (State, Option<u64>),
    /// What was asked for since, and may have happened.
    pub asked: Option<State>,
}

impl Default for Known {
    fn default() -> Self {
        Self { acknowledged: (State::Gone, None), asked: None }
    }
}

/// All that is known.
#[derive(Default)]
pub struct History {
    pub known: BTreeMap<String, Known>,
    /// Every number that a write was acknowledged with.
    numbers: BTreeSet<u64>,
    /// What the watch has shown: where it is, what there is, and all its numbers.
    pub seen: u64,
    shown: BTreeMap<String, (f64, u64)>,
    shown_numbers: BTreeSet<u64>,
}

impl History {
    pub fn ask(&mut self, name: &str, state: State) {
        self.known.entry(name.to_owned()).or_default().asked = Some(state);
    }

    /// Notes an answer, with the number of the write, if it tells one.
    pub fn acknowledge(&mut self, name: &str, number: Option<u64>) -> Result<()> {
        let known = self.known.get_mut(name).context("nobody has asked for it")?;
        let state = known.asked.take().context("nobody has asked for it")?;
        known.acknowledged = (state, number);
        let is_new = number.is_none_or(|number| self.numbers.insert(number));
        ensure!(is_new, "{name}: {number:?} was given before");
        Ok(())
    }

    /// Takes an event of the watch: the llama as it is since, or that it is gone.
    pub fn show(&mut self, llama: &Llama, is_gone: bool) -> Result<()> {
        let (name, number) = (llama.name_any(), number(llama)?);
        ensure!(number > self.seen, "{name} at {number}, after {}", self.seen);
        self.seen = number;
        self.shown_numbers.insert(number);
        let before = match is_gone {
            true => self.shown.remove(&name),
            false => self.shown.insert(name.clone(), (llama.spec.weight, number)),
        };
        ensure!(!is_gone || before.is_some(), "{name} is gone twice");
        Ok(())
    }

    /// Begins a watch with what is there.
    pub fn begin(&mut self, listed: &[Llama], revision: u64) -> Result<()> {
        self.seen = revision;
        for llama in listed {
            self.shown.insert(llama.name_any(), (llama.spec.weight, number(llama)?));
        }
        Ok(())
    }

    /// Holds what there is now, at the moment that the watch has reached, against all that is known.
    pub fn check(&mut self, listed: &[Llama]) -> Result<()> {
        let mut there = BTreeMap::new();
        for llama in listed {
            there.insert(llama.name_any(), (llama.spec.weight, number(llama)?));
        }
        ensure!(there == self.shown, "the watch has shown {:?}, there is {there:?}", self.shown);
        for (name, known) in &mut self.known {
            let found = there.get(name).map_or((State::Gone, None), |(weight, number)| {
                (State::Weighs(*weight), Some(*number))
            });
            let is_acknowledged = found.0 == known.acknowledged.0
                && (found.0 == State::Gone || found.1 == known.acknowledged.1);
            let is_asked = known.asked.as_ref() == Some(&found.0);
            ensure!(is_acknowledged || is_asked, "{name} is {found:?}, known is {known:?}");
            // What was not acknowledged has happened now, or never will.
            known.asked = None;
            known.acknowledged = found;
        }
        // Whatever was acknowledged was shown, whoever was killed in between.
        let missed: Vec<_> = self.numbers.difference(&self.shown_numbers).collect();
        ensure!(missed.is_empty(), "the watch has not shown {missed:?}");
        Ok(())
    }

    /// How many writes were acknowledged with a number.
    pub fn acknowledged(&self) -> usize {
        self.numbers.len()
    }
}

fn number(llama: &Llama) -> Result<u64> {
    Ok(llama.resource_version().context("no version")?.parse()?)
}
