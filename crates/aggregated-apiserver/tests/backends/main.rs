//! Virtual kinds: the objects live in a backend that other programs change, too, and that fails in every way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

mod admission;
mod common;
mod costs;
mod direct;
mod direct_writes;
mod dry_runs;
mod features;
mod generations;
mod history;
mod late;
mod lists;
mod metadata;
mod replicas;
mod runtime;
mod shelf;
mod streams;
mod trees;
mod unfit;
mod writes;
