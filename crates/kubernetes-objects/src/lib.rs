//! Kubernetes objects as JSON: metadata, names, selectors, patches, and the errors that an API server returns.

pub mod error;
pub mod object;
pub mod quota;

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
