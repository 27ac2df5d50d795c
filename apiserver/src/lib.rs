//! Serve Kubernetes kinds of your own from Rust.

mod ambient;
mod cluster;
mod definition;
mod discovery;
mod document;
mod error;
mod kind;
mod object;
mod openapi;
mod request;
mod served_kind;
mod storage;
mod user;
mod verb;
mod watch_cache;
mod write;

pub use definition::{Computed, Kinds, Lookup, Related, Stored};
