//! The kinds of the core group.

pub(crate) mod config_map;
mod data;
pub(crate) mod event;
pub(crate) mod secret;
pub(crate) mod service_account;
