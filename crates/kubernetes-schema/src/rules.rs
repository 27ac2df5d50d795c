//! Rules: `x-kubernetes-validations`, CEL expressions that validate values and compare them with old values.

mod check;
mod compile;
mod declared;
mod field_path;
mod messages;
mod run;

pub use check::check as check_rules;
pub(super) use check::{check_shape, rule_as_go_shows};
pub use compile::{NodeRules, Reach};
pub use run::{judge, judge_at_once, judge_default};

/// The keyword for rules.
pub const RULES: &str = "x-kubernetes-validations";

/// The cost limit of one call, as in kube-apiserver: about a tenth of a second there.
const PER_CALL: u64 = 1_000_000;
/// The cost limit of all rules for one object, as in kube-apiserver: about a second there.
const PER_OBJECT: u64 = 10_000_000;

#[cfg(test)]
mod tests;
