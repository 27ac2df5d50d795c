//! The capacity of a node for one resource, and the part that is requested and used.

use aggregated_apiserver::computed::Aggregate;
use aggregated_apiserver::types::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::farm_pod::amounts::{self, Written};
use crate::farm_pod::resources;
use crate::farm_pod::view::PodView;

/// The smallest change of the usage, in percent of the allocatable amount, that is published at once. A smaller change
/// is published later.
const WORTH_PERCENT: i64 = 5;

/// The capacity of a node for one resource, and the part that is requested and used.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// The amount that Pods can use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<String>,
    /// The sum of the requests of the Pods, with the rules of the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// The amount that can still be requested; 0 if more is requested than allocatable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<String>,
    /// The last measured usage of everything on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
    /// The requested amount in percent of the allocatable amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_requested: Option<i64>,
    /// The usage in percent of the allocatable amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_used: Option<i64>,
}

/// The sum of the requests of the Pods of a node. Each change of a Pod updates it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requested {
    /// The number of Pods that have not ended.
    pub pods: i64,
    /// Processors, in billionths.
    cpu: i128,
    /// Memory, in billionths of a byte.
    memory: i128,
}

impl Aggregate for Requested {
    fn add(&mut self, other: &Self) {
        self.pods.add(&other.pods);
        self.cpu.add(&other.cpu);
        self.memory.add(&other.memory);
    }

    fn subtract(&mut self, other: &Self) {
        self.pods.subtract(&other.pods);
        self.cpu.subtract(&other.cpu);
        self.memory.subtract(&other.memory);
    }
}

impl Requested {
    /// The requests of a Pod. A Pod that has ended requests nothing.
    pub fn of(pod: &PodView) -> Self {
        if matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return Self::default();
        }
        let requests = resources::requests(pod);
        let nanos = |resource| requests.get(resource).map_or(0, |amount| amount.nanos());
        Self { pods: 1, cpu: nanos("cpu"), memory: nanos("memory") }
    }

    /// The requested processors.
    pub fn cpu(&self) -> Quantity {
        amounts::processors(self.cpu)
    }

    /// The requested memory, in bytes.
    pub fn memory(&self) -> Quantity {
        amounts::bytes(self.memory)
    }
}

impl Capacity {
    /// Computes the capacity of a node for a resource of which its Pods request `requested`.
    pub fn of(
        resource: &str,
        allocatable: &Written,
        requested: Quantity,
        used: Option<Quantity>,
    ) -> Self {
        let all = allocatable.get(resource);
        let used = used.map(Quantity::in_thousandths);
        let percent = |part: Quantity| {
            let percent = part.nanos().saturating_mul(100).checked_div(all?.nanos())?;
            i64::try_from(percent).ok()
        };
        Self {
            allocatable: all.map(|all| all.to_string()),
            requested: Some(requested.to_string()),
            free: all.map(|all| all.less(requested).to_string()),
            used: used.map(|used| used.to_string()),
            percent_requested: percent(requested),
            percent_used: used.and_then(percent),
        }
    }

    /// Whether the usage changed enough to publish the object.
    pub fn has_moved(&self, shown: &Self) -> bool {
        match (self.percent_used, shown.percent_used) {
            (Some(now), Some(before)) => now.abs_diff(before) >= WORTH_PERCENT.unsigned_abs(),
            (now, before) => now != before || self.used.is_some() != shown.used.is_some(),
        }
    }

    /// Formats the allocatable amount, the percentage requested and, if measured, the percentage used, for example `4
    /// (75%, 30%)`.
    pub fn cell(&self, text: fn(&str) -> Option<String>) -> Option<String> {
        let all = text(self.allocatable.as_deref()?)?;
        let requested = self.percent_requested?;
        Some(match self.percent_used {
            Some(used) => format!("{all} ({requested}%, {used}%)"),
            None => format!("{all} ({requested}%)"),
        })
    }
}
