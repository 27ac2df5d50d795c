#![doc = include_str!("../README.md")]

mod activity;
mod error;
mod lifecycle;
mod limits;
pub mod port_forward;
pub mod remote_command;
pub mod spdy;
mod tunnel;
mod upgrade;
mod websocket;

pub use error::Error;
pub use limits::Limits;
pub use upgrade::{Refused, Upgrade};
