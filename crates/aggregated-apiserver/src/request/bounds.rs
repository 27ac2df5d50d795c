//! The memory limits of requests and their responses.

use super::{Inflights, answers, encode, throttle};
use crate::codec;
use crate::kind::converted_limit;
use crate::quota::{self, MemoryScale};
use crate::write::commit_limit;

/// The memory limits of requests and their responses, for each use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The limit of trees, in bytes.
    pub(super) trees: usize,
    /// The limits of heads, bodies and selectors.
    pub(super) throttle: throttle::Bounds,
    /// The number of YAML parsers that run concurrently.
    pub(super) yaml_parsers: usize,
    /// The limit of responses, in bytes.
    pub(super) answers: usize,
    /// The limit of encoded events, in bytes.
    pub(super) forms: usize,
    /// The limit of objects in other versions than the stored one, in bytes.
    pub(super) converted: usize,
    /// The limit of objects in the commits of `system:masters`, in bytes.
    pub(super) commits: usize,
}

impl Bounds {
    /// The limits at this scale, for these numbers of concurrent requests.
    pub fn of(portion: MemoryScale, inflights: Inflights) -> Self {
        Self {
            trees: quota::trees(portion),
            throttle: throttle::Bounds::of(portion, inflights),
            yaml_parsers: codec::yaml_parsers(portion),
            answers: answers::limit(portion),
            forms: encode::shared_forms_limit(portion),
            converted: converted_limit(portion),
            commits: commit_limit(portion),
        }
    }

    /// The limit of objects in other versions than the stored one, in bytes.
    pub fn converted(&self) -> usize {
        self.converted
    }

    /// The largest number of open watches.
    pub fn watches(&self) -> usize {
        self.throttle.watches()
    }

    /// Each use, with its limit in bytes.
    pub fn memory(&self) -> [(&'static str, usize); 8] {
        [
            ("trees of requests", self.trees),
            ("heads, bodies and selectors", self.throttle.memory()),
            ("watches", self.throttle.watches_memory()),
            ("parsers of YAML", codec::yaml_memory(self.yaml_parsers)),
            ("answers", self.answers),
            ("forms of events", self.forms),
            ("objects in other versions", self.converted),
            ("commits of system:masters", self.commits),
        ]
    }
}
