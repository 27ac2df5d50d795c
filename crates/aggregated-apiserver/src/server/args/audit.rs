//! Flags of the audit log, same as kube-apiserver's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::StartError;
use crate::record::{Audit, Destination, Policy, Rotation};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The flags of the audit log.
#[derive(Clone, Debug, clap::Args)]
#[non_exhaustive]
pub struct AuditArgs {
    /// Audit policy: a Policy of audit.k8s.io/v1, as for kube-apiserver
    #[arg(help_heading = super::AUDIT, long, value_name = "FILE", env = "AUDIT_POLICY_FILE", requires = "audit_log_path")]
    pub audit_policy_file: Option<PathBuf>,

    /// File of the audit log, with one event in JSON in each line; - is standard output
    #[arg(help_heading = super::AUDIT, long, value_name = "FILE", env = "AUDIT_LOG_PATH", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,

    /// Largest size of the audit log before its rotation, in MB; 0 turns rotation off
    #[arg(help_heading = super::AUDIT, long, value_name = "MB", default_value_t = 100)]
    pub audit_log_maxsize: u32,

    /// Number of days after which rotated files are deleted; 0 keeps them
    #[arg(help_heading = super::AUDIT, long, value_name = "DAYS", default_value_t = 366)]
    pub audit_log_maxage: u32,

    /// Largest number of rotated files; 0 keeps all
    #[arg(help_heading = super::AUDIT, long, value_name = "FILES", default_value_t = 100)]
    pub audit_log_maxbackup: u32,
}

impl Default for AuditArgs {
    fn default() -> Self {
        super::Args::default().audit
    }
}

impl AuditArgs {
    /// Opens the audit log, if the flags enable it.
    ///
    /// # Errors
    /// If the policy is invalid, or the file cannot be opened.
    pub(in crate::server) fn open(&self, clock: &Clock) -> Result<Option<Arc<Audit>>, StartError> {
        let (Some(policy_file), Some(path)) = (&self.audit_policy_file, &self.audit_log_path)
        else {
            return Ok(None);
        };
        let unusable = |why: String| StartError::file("audit-policy-file", policy_file, why);
        let text =
            std::fs::read_to_string(policy_file).map_err(|error| unusable(error.to_string()))?;
        let policy = Policy::parse(&text).map_err(unusable)?;
        let destination = match path.as_os_str() == "-" {
            true => Destination::StandardOutput,
            false => Destination::File(path.clone(), self.rotation()),
        };
        tracing::info!(path = %path.display(), %policy, "writing audit events");
        let audit = Audit::open(policy, destination, clock.clone());
        let audit = audit.map_err(|why| StartError::file("audit-log-path", path, why))?;
        Ok(Some(Arc::new(audit)))
    }

    fn rotation(&self) -> Rotation {
        let some = |number: u32| Some(number).filter(|&number| number > 0);
        let size = some(self.audit_log_maxsize).map(|size| u64::from(size) << 20);
        Rotation {
            size: size.unwrap_or(u64::MAX),
            age: some(self.audit_log_maxage).map(|days| DAY * days),
            count: some(self.audit_log_maxbackup).and_then(|count| usize::try_from(count).ok()),
        }
    }
}
