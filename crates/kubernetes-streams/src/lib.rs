//! Remote command of Kubernetes as a server, over WebSocket and SPDY/3.1.

mod activity;
mod error;
mod lifecycle;
mod limits;
pub mod remote_command;
pub mod spdy;
mod upgrade;
mod websocket;

pub use error::Error;
pub use limits::Limits;
pub use upgrade::{Refused, Upgrade};
