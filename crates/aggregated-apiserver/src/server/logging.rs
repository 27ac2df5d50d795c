//! The log: lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::{Args, LoggingFormat};
use crate::log_throttle::DETAILS;
use crate::record::ACCESS_LOG;

/// Starts logging as the flags say. Does nothing if the program logs already.
pub fn start_logging(args: &Args) {
    let directives = directives(args.v);
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

/// The log filter of a verbosity: details from 2 on, and a line for each request from 3 on, same as kube-apiserver.
fn directives(verbosity: u8) -> String {
    let level = match verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    };
    let from = |least: u8| if verbosity >= least { "debug" } else { "off" };
    format!("{level},{DETAILS}={},{ACCESS_LOG}={}", from(2), from(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_levels_map_to_log_directives() {
        assert_eq!(directives(0), format!("info,{DETAILS}=off,{ACCESS_LOG}=off"));
        assert_eq!(directives(2), format!("info,{DETAILS}=debug,{ACCESS_LOG}=off"));
        assert_eq!(directives(3), format!("info,{DETAILS}=debug,{ACCESS_LOG}=debug"));
        assert_eq!(directives(6), format!("trace,{DETAILS}=debug,{ACCESS_LOG}=debug"));
    }
}
