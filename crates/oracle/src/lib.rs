//! The oracle: compares our server with a real kube-apiserver that serves the same kind.
//!
//! Rows of requests (`rows/`) are sent to both servers, and their responses are compared. A difference is a bug of our
//! server, unless `docs/reference/differences.md` explains it.

#![allow(missing_docs)] // a program for tests, not a library

mod admission_webhook;
pub mod answer;
pub mod applies;
pub mod built_in_applies;
pub mod compare;
pub mod conversion_webhook;
pub mod discovery;
pub mod each;
pub mod fields;
pub mod formats;
pub mod generate;
pub mod herd;
pub mod kubectl;
pub mod metrics;

pub mod openapi;
pub mod policy;
pub mod protobuf;
pub mod pruning;
pub mod row;
pub mod rules;
pub mod run;
pub mod schemas;
pub mod server;
pub mod trees;
pub mod types;
pub mod world;
pub mod yaml;
