//! Kubernetes objects as JSON: metadata, names, selectors, patches, and the errors that an API server answers.

pub mod error;
pub mod object;
pub mod quota;

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
