//! The log: lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::{Args, LoggingFormat};
use crate::record::ACCESS_LOG;

/// Starts logging as the flags say. Does nothing if the program logs already.
pub fn start_logging(args: &Args) {
    let level = match args.v {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    };
    // As kube-apiserver, a line for each request from 3 on.
    let access = if args.v >= 3 { "debug" } else { "off" };
    let directives = format!("{level},{ACCESS_LOG}={access}");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directives));
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter);
    let _ = match args.logging_format {
        LoggingFormat::Text => builder.try_init(),
        LoggingFormat::Json => builder.json().try_init(),
    };
}
