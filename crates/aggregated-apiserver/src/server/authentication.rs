//! The CAs and headers for the authentication of callers. They come from the files of flags, or else from the cluster.
//! Both are watched while the server runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use tokio::sync::watch;

use super::Args;
use super::tls::{CaError, FRONT_PROXY_CA, Trust};
use crate::auth::Authenticators;
use crate::cluster::{Cluster, DelegatedAuthentication, RequestHeader, Reviews};
use crate::error::StartError;
use crate::request::{Authentication, Impersonation};

/// The interval at which files are read again.
const REREAD_EVERY: Duration = Duration::from_secs(10);
/// The longest time that the first callers wait until the CAs are known. A cluster that does not respond does not delay
/// health checks and discovery for longer.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// The present configuration of authentication.
pub(super) struct Trusted {
    cluster: Cluster,
    authenticators: Authenticators,
    flags: Flags,
    delegated: Arc<ArcSwap<DelegatedAuthentication>>,
    trust: Arc<ArcSwap<Trust>>,
    ready: watch::Sender<bool>,
    /// Whether the whole present configuration is valid.
    usable: AtomicBool,
}

/// The configuration in the flags.
struct Flags {
    client_ca: Option<PathBuf>,
    request_header: Option<(PathBuf, RequestHeader)>,
    allows_anonymous: bool,
}

impl Trusted {
    /// Reads the configuration in the flags. Without it, no client is authenticated until the cluster has responded.
    pub(super) fn new(
        args: &Args,
        cluster: Cluster,
        authenticators: Authenticators,
    ) -> Result<Self, StartError> {
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
        let (trust, errors) = Trust::new(&delegated, None);
        if let Some(error) = errors.into_iter().next() {
            return Err(flags.start_error(error));
        }
        if flags.say_everything() {
            warn_of(&delegated);
        }
        Ok(Self {
            cluster,
            authenticators,
            ready: watch::Sender::new(flags.say_everything()),
            usable: AtomicBool::new(true),
            flags,
            delegated: Arc::new(ArcSwap::from_pointee(delegated)),
            trust: Arc::new(ArcSwap::from_pointee(trust)),
        })
    }

    /// Whether the CAs are known.
    pub(super) fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Returns when the CAs are known, or after five seconds. kube-apiserver requests discovery as soon as the server
    /// listens. If this request were rejected with 401, kube-apiserver would not know the kinds until its next request.
    pub(super) fn known(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ready = self.ready();
        async move {
            let known = ready.wait_for(|is_ready| *is_ready);
            let _ = tokio::time::timeout(KNOWN_WITHIN, known).await;
        }
    }

    /// The authentication of requests.
    pub(super) fn authentication(&self, impersonation: Impersonation) -> Authentication {
        let delegated = Arc::clone(&self.delegated);
        let cluster = Some(self.cluster.clone());
        Authentication {
            authenticators: self.authenticators.clone(),
            delegated,
            cluster,
            impersonation,
            allows_anonymous: self.flags.allows_anonymous,
            slots: Arc::new(Reviews::new()),
        }
    }

    /// The CAs for the verification of client certificates.
    pub(super) fn trust(&self) -> Arc<ArcSwap<Trust>> {
        Arc::clone(&self.trust)
    }

    /// Watches the files and the cluster until it is dropped.
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

    /// Applies the present configuration. For an invalid part, the last valid value stays. Returns whether all parts
    /// are valid.
    fn accept(&self, said: &DelegatedAuthentication) -> bool {
        let delegated = match self.flags.overlay(said.clone()) {
            Ok(delegated) => delegated,
            Err(error) => {
                tracing::error!(%error, "invalid CA; the last valid one stays in use");
                return false;
            }
        };
        if **self.delegated.load() == delegated {
            return self.usable.load(Ordering::Relaxed);
        }
        let (trust, errors) = Trust::new(&delegated, Some(&self.trust.load()));
        for CaError { why, .. } in &errors {
            tracing::error!(error = why, "invalid CA; the last valid one stays in use");
        }
        warn_of(&delegated);
        self.trust.store(Arc::new(trust));
        self.delegated.store(Arc::new(delegated));
        tracing::info!("reloaded the CAs of clients");
        self.usable.store(errors.is_empty(), Ordering::Relaxed);
        errors.is_empty()
    }
}

impl Flags {
    /// Whether the flags configure everything, so that the cluster is not queried.
    fn say_everything(&self) -> bool {
        self.client_ca.is_some() && self.request_header.is_some()
    }

    /// Overrides the configuration of the cluster with that of the flags.
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

    /// The error for an invalid CA, with the name of its file.
    fn start_error(&self, CaError { parameter, why }: CaError) -> StartError {
        match (&self.request_header, &self.client_ca) {
            (Some((path, _)), _) if parameter == FRONT_PROXY_CA => {
                StartError::file(parameter, path, why)
            }
            (_, Some(path)) => StartError::file(parameter, path, why),
            _ => StartError::Tls(why),
        }
    }
}

/// Warns about a configuration that authenticates no client, or that lets every client act as any user.
fn warn_of(delegated: &DelegatedAuthentication) {
    let Some(header) = &delegated.request_header else {
        tracing::warn!(
            "requestheader-client-ca-file is not set: requests that kube-apiserver proxies are rejected"
        );
        return;
    };
    // If both CAs are the same and any name is allowed, every user can act as any other user.
    let is_shared = delegated.client_ca.as_deref().map(str::trim) == Some(header.ca.trim());
    if header.allowed_names.is_empty() && is_shared {
        tracing::warn!(
            "client-ca-file and requestheader-client-ca-file are the same CA and requestheader-allowed-names is empty: any client certificate can impersonate any user"
        );
    }
}
