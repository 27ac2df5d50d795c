//! The kinds of the group apps.

pub(crate) mod controller_revision;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod replica_set;
mod replicated;
pub(crate) mod stateful_set;

pub(crate) use replicated::check_runs_forever;
