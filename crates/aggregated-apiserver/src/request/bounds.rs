//! What requests and their answers may take of memory.

use super::{Inflights, answers, encode, throttle};
use crate::codec;
use crate::kind::converted_limit;
use crate::quota::{self, MemoryScale};
use crate::write::commit_limit;

/// What requests and their answers may take of memory, each sort by itself.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Trees, in bytes.
    pub(super) trees: usize,
    /// Heads, bodies and selectors.
    pub(super) throttle: throttle::Bounds,
    /// Parsers of YAML that work at a time.
    pub(super) yaml_parsers: usize,
    /// Answers, in bytes.
    pub(super) answers: usize,
    /// Forms of events, in bytes.
    pub(super) forms: usize,
    /// Objects in other versions than the one they are kept in, in bytes.
    pub(super) converted: usize,
    /// Objects in the commits of members of `system:masters`, in bytes.
    pub(super) commits: usize,
}

impl Bounds {
    /// So large a portion of all of them, and room for so many requests.
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

    /// Objects in other versions than the one they are kept in, in bytes.
    pub fn converted(&self) -> usize {
        self.converted
    }

    /// How many watches may be open.
    pub fn watches(&self) -> usize {
        self.throttle.watches()
    }

    /// Each sort, and how many bytes.
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
