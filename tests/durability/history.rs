//! The requested writes, the acknowledged writes, and the events of a watch.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use farm_operator::v1alpha::Llama;
use kube::ResourceExt;

/// The state of a llama after a write.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The llama has this weight.
    Weighs(f64),
    /// The llama is deleted.
    Gone,
}

/// The history of one llama, which has a single writer.
#[derive(Clone, Debug)]
pub struct Known {
    /// The last acknowledged state, and the revision of that write, if it has one.
    pub acknowledged: (State, Option<u64>),
    /// A later state that was requested and may have been written.
    pub asked: Option<State>,
}

impl Default for Known {
    fn default() -> Self {
        Self { acknowledged: (State::Gone, None), asked: None }
    }
}

/// The history of all llamas.
#[derive(Default)]
pub struct History {
    pub known: BTreeMap<String, Known>,
    /// The revision of every acknowledged write.
    numbers: BTreeSet<u64>,
    /// The revision of the watch, the objects according to it, and all revisions of its events.
    pub seen: u64,
    shown: BTreeMap<String, (f64, u64)>,
    shown_numbers: BTreeSet<u64>,
}

impl History {
    pub fn ask(&mut self, name: &str, state: State) {
        self.known.entry(name.to_owned()).or_default().asked = Some(state);
    }

    /// Records an acknowledgement, with the revision of the write if the response contains one.
    pub fn acknowledge(&mut self, name: &str, number: Option<u64>) -> Result<()> {
        let known = self.known.get_mut(name).context("nobody has asked for it")?;
        let state = known.asked.take().context("nobody has asked for it")?;
        known.acknowledged = (state, number);
        let is_new = number.is_none_or(|number| self.numbers.insert(number));
        ensure!(is_new, "{name}: {number:?} was given before");
        Ok(())
    }

    /// Records an event of the watch: the new state of a llama, or its deletion.
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

    /// Starts a watch with the listed objects.
    pub fn begin(&mut self, listed: &[Llama], revision: u64) -> Result<()> {
        self.seen = revision;
        for llama in listed {
            self.shown.insert(llama.name_any(), (llama.spec.weight, number(llama)?));
        }
        Ok(())
    }

    /// Compares a list, at the revision that the watch has reached, with the history.
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
            // A write that was not acknowledged has happened by now, or never will.
            known.asked = None;
            known.acknowledged = found;
        }
        // The watch has reported every acknowledged write, although processes were killed in between.
        let missed: Vec<_> = self.numbers.difference(&self.shown_numbers).collect();
        ensure!(missed.is_empty(), "the watch has not shown {missed:?}");
        Ok(())
    }

    /// The number of writes that were acknowledged with a revision.
    pub fn acknowledged(&self) -> usize {
        self.numbers.len()
    }
}

fn number(llama: &Llama) -> Result<u64> {
    Ok(llama.resource_version().context("no version")?.parse()?)
}
