//! The flag of tracing, same as kube-apiserver's.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::StartError;
use crate::record::{Traces, TracingConfiguration};

/// The flags of tracing.
#[derive(Clone, Debug, Default, clap::Args)]
#[non_exhaustive]
pub struct TracingArgs {
    /// TracingConfiguration with the endpoint and the sampling rate, as for kube-apiserver
    ///
    /// By default the server creates no spans.
    #[arg(help_heading = super::TRACES, long, value_name = "FILE", env = "TRACING_CONFIG_FILE")]
    pub tracing_config_file: Option<PathBuf>,
}

impl TracingArgs {
    /// Opens the traces of a server with this name, if the flag enables them.
    ///
    /// # Errors
    /// If the file is invalid, or this program was built without tracing.
    pub(in crate::server) fn open(
        &self,
        service: &str,
        clock: &Clock,
    ) -> Result<Option<Arc<Traces>>, StartError> {
        let Some(file) = &self.tracing_config_file else { return Ok(None) };
        let unusable = |why: String| StartError::file("tracing-config-file", file, why);
        let text = std::fs::read_to_string(file).map_err(|error| unusable(error.to_string()))?;
        let configuration = TracingConfiguration::parse(&text).map_err(unusable)?;
        // The instance id distinguishes replicas.
        let instance = clock.uid().to_string();
        let traces = Traces::open(configuration, (service, &instance), clock.clone());
        let traces = traces.map_err(unusable)?;
        tracing::info!(endpoint = %traces.endpoint(), "exporting spans");
        Ok(Some(Arc::new(traces)))
    }
}
