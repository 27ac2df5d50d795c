//! The memory limits of requests and responses.

use super::{Inflights, answers, encode, throttle};
use crate::codec;
use crate::kind::converted_limit;
use crate::quota::{self, MemoryScale};
use crate::write::commit_limit;

/// The memory limits of requests and responses, one for each purpose.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Parsed objects, in bytes.
    pub(super) trees: usize,
    /// Heads, bodies and selectors.
    pub(super) throttle: throttle::Bounds,
    /// The number of concurrent YAML parsers.
    pub(super) yaml_parsers: usize,
    /// Responses, in bytes.
    pub(super) answers: usize,
    /// Encoded watch events that are shared, in bytes.
    pub(super) forms: usize,
    /// Objects in versions other than the storage version, in bytes.
    pub(super) converted: usize,
    /// Objects in the commits of members of `system:masters`, in bytes.
    pub(super) commits: usize,
}

impl Bounds {
    /// Returns the limits for this portion of the full memory budget, and for this number of concurrent requests.
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

    /// Objects in versions other than the storage version, in bytes.
    pub fn converted(&self) -> usize {
        self.converted
    }

    /// The limit of open watches.
    pub fn watches(&self) -> usize {
        self.throttle.watches()
    }

    /// The memory of each purpose, in bytes.
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
