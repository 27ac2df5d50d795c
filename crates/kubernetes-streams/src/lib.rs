//! Streams of Kubernetes clients over one connection.

mod error;
mod limits;
pub mod spdy;

pub use error::Error;
pub use limits::Limits;
