//! The kinds of the group apps.

pub(crate) mod deployment;
pub(crate) mod replica_set;
mod replicated;
