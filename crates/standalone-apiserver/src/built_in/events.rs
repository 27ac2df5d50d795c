//! The kinds of the group events.k8s.io.

mod conversion;
pub(crate) mod event;
