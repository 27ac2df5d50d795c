//! The CAs and headers that authenticate callers: from the files of flags, else from the cluster;
//! both are followed while the server runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use tokio::sync::watch;

use super::Args;
use super::tls::Trust;
use crate::cluster::{Cluster, DelegatedAuthentication, RequestHeader};
use crate::error::StartError;
use crate::request::{Authentication, Impersonation};

/// How often files are looked at again.
const REREAD_EVERY: Duration = Duration::from_secs(10);
/// How long the first callers wait until it is known whom to believe. A cluster that does not answer
/// keeps nobody from health and discovery for longer.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// Whom to believe, now.
pub(super) struct Trusted {
    cluster: Cluster,
    flags: Flags,
    delegated: Arc<ArcSwap<DelegatedAuthentication>>,
    trust: Arc<ArcSwap<Trust>>,
    ready: watch::Sender<bool>,
    /// Whether all that is said now could be used.
    usable: AtomicBool,
}

/// What flags say.
struct Flags {
    client_ca: Option<PathBuf>,
    request_header: Option<(PathBuf, RequestHeader)>,
    allows_anonymous: bool,
}

impl Trusted {
    /// What flags say. Without them nobody is authenticated until the cluster has answered.
    pub(super) fn new(args: &Args, cluster: Cluster) -> Result<Self, StartError> {
        let header = |path: &PathBuf| {
            let header = RequestHeader {
                ca: String::new(),
                allowed_names: args.requestheader_allowed_names.clone(),
                username_headers: args.requestheader_username_headers.clone(),
                uid_headers: args.requestheader_uid_headers.clone(),
                group_headers: args.requestheader_group_headers.clone(),
                extra_header_prefixes: args.requestheader_extra_headers_prefix.clone(),
            };
            (path.clone(), header)
        };
        let flags = Flags {
            client_ca: args.client_ca_file.clone(),
            request_header: args.requestheader_client_ca_file.as_ref().map(header),
            allows_anonymous: args.anonymous_auth,
        };
        let delegated = flags.overlay(DelegatedAuthentication::default())?;
        let (trust, faults) = Trust::new(&delegated, None);
        if let Some(why) = faults.first() {
            return Err(flags.blame(why));
        }
        if flags.say_everything() {
            warn_of(&delegated);
        }
        Ok(Self {
            cluster,
            ready: watch::Sender::new(flags.say_everything()),
            usable: AtomicBool::new(true),
            flags,
            delegated: Arc::new(ArcSwap::from_pointee(delegated)),
            trust: Arc::new(ArcSwap::from_pointee(trust)),
        })
    }

    /// Whether it is known whom to believe.
    pub(super) fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Returns when it is known whom to believe, or after a while. kube-apiserver asks as soon as
    /// somebody listens; refused with 401, it would know nothing of our kinds until it asks again.
    pub(super) fn known(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ready = self.ready();
        async move {
            let known = ready.wait_for(|is_ready| *is_ready);
            let _ = tokio::time::timeout(KNOWN_WITHIN, known).await;
        }
    }

    /// What requests are authenticated with.
    pub(super) fn authentication(&self, impersonation: Impersonation) -> Authentication {
        let delegated = Arc::clone(&self.delegated);
        let cluster = Some(self.cluster.clone());
        Authentication {
            delegated,
            cluster,
            impersonation,
            allows_anonymous: self.flags.allows_anonymous,
        }
    }

    /// What client certificates are held against.
    pub(super) fn trust(&self) -> Arc<ArcSwap<Trust>> {
        Arc::clone(&self.trust)
    }

    /// Follows files and cluster, for ever.
    pub(super) async fn keep(self) {
        let mut said = DelegatedAuthentication::default();
        let mut cluster = if self.flags.say_everything() {
            futures::stream::pending().boxed()
        } else {
            self.cluster.delegated_authentication().boxed()
        };
        let mut heard = false;
        loop {
            tokio::select! {
                Some(now) = cluster.next() => {
                    said = now;
                    heard = true;
                }
                () = tokio::time::sleep(REREAD_EVERY) => {}
            }
            if self.accept(&said) && heard {
                self.ready.send_replace(true);
            }
        }
    }

    /// Takes what is said now; of what cannot be used the last good state
    /// stays. Answers whether all could be used.
    fn accept(&self, said: &DelegatedAuthentication) -> bool {
        let delegated = match self.flags.overlay(said.clone()) {
            Ok(delegated) => delegated,
            Err(error) => {
                tracing::error!("{error}; the last good value stays");
                return false;
            }
        };
        if **self.delegated.load() == delegated {
            return self.usable.load(Ordering::Relaxed);
        }
        let (trust, faults) = Trust::new(&delegated, Some(&self.trust.load()));
        for fault in &faults {
            tracing::error!("{fault}; the last good value stays");
        }
        warn_of(&delegated);
        self.trust.store(Arc::new(trust));
        self.delegated.store(Arc::new(delegated));
        tracing::info!("the CAs of callers have changed");
        self.usable.store(faults.is_empty(), Ordering::Relaxed);
        faults.is_empty()
    }
}

impl Flags {
    /// Whether the cluster need not be asked.
    fn say_everything(&self) -> bool {
        self.client_ca.is_some() && self.request_header.is_some()
    }

    /// Puts what flags say over what the cluster says.
    fn overlay(
        &self,
        mut said: DelegatedAuthentication,
    ) -> Result<DelegatedAuthentication, StartError> {
        let read = |flag, path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| StartError::file(flag, path, error))
        };
        if let Some(path) = &self.client_ca {
            said.client_ca = Some(read("client-ca-file", path)?);
        }
        if let Some((path, header)) = &self.request_header {
            let ca = read("requestheader-client-ca-file", path)?;
            said.request_header = Some(RequestHeader { ca, ..header.clone() });
        }
        Ok(said)
    }

    /// Names the file behind a CA that cannot be used.
    fn blame(&self, why: &str) -> StartError {
        match (&self.request_header, &self.client_ca) {
            (Some((path, _)), _) if why.starts_with("requestheader") => {
                StartError::file("requestheader-client-ca-file", path, why)
            }
            (_, Some(path)) => StartError::file("client-ca-file", path, why),
            _ => StartError::Tls(why.to_owned()),
        }
    }
}

/// Warns of what lets nobody in, and of what lets everybody in.
fn warn_of(delegated: &DelegatedAuthentication) {
    let Some(header) = &delegated.request_header else {
        tracing::warn!(
            "there is no requestheader-client-ca-file: what kube-apiserver sends on is refused"
        );
        return;
    };
    // One CA for both, and any name allowed: then every user may speak for anybody.
    let is_shared = delegated.client_ca.as_deref().map(str::trim) == Some(header.ca.trim());
    if header.allowed_names.is_empty() && is_shared {
        tracing::warn!(
            "client-ca-file and requestheader-client-ca-file are one CA and requestheader-allowed-names is empty: every holder of a client certificate may impersonate anybody"
        );
    }
}
