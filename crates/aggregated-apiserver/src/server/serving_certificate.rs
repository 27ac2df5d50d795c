//! The serving certificate: read from two files, or generated and stored in a Secret.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::timeout;

use super::certificate::{self, Renewal};
use super::{Args, tls};
use crate::cluster::{Cluster, KeptCertificates, Registration, SecretError};
use crate::error::StartError;
use crate::record::CertificateEnds;

/// The interval at which files are read again.
const REREAD_EVERY: Duration = Duration::from_secs(10);
/// The interval at which the Secret and the APIServices are read while there is no error. An APIService that was
/// created again lacks the CA bundle, and until it has one no namespace of the cluster can be deleted.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The interval while an APIService of the server does not exist yet.
const LOOK_FOR_REGISTRATION_EVERY: Duration = Duration::from_secs(5);
/// The longest time for reading and updating the Secret and the APIServices, including `SPREAD`.
const ADOPTION: Duration = Duration::from_secs(90);
/// The longest time until every kube-apiserver uses a new CA.
const SPREAD: Duration = Duration::from_secs(30);
/// The shortest and the longest pause after an error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The identity of the server in the cluster.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The name of the Service.
    pub service: String,
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The names of the APIServices.
    pub api_services: Vec<String>,
}

#[derive(Clone)]
enum Source {
    Files { certificate: PathBuf, key: PathBuf, name: Option<String> },
    Secret(Identity),
}

/// The serving certificate, which can change while the server runs.
#[derive(Clone)]
pub(super) struct Opened {
    source: Source,
    tls: RustlsConfig,
    ready: Arc<watch::Sender<bool>>,
    ends: Ends,
}

/// The expiration of the serving certificate, and of its CA if the server generated it, in seconds since 1970; 0 if
/// unknown.
#[derive(Clone, Default)]
struct Ends(Arc<[AtomicI64; 2]>);

impl Ends {
    fn set(&self, certificate: &str, ca_bundle: Option<&str>) {
        let [serving, ca] = &*self.0;
        let end = |pem: &str| certificate::end(pem).unwrap_or_default();
        serving.store(end(certificate), Ordering::Relaxed);
        ca.store(ca_bundle.map_or(0, end), Ordering::Relaxed);
    }
}

/// Reads the files that the flags name. Without them, generates a certificate that is used until the Secret has been
/// read.
pub(super) fn open(args: &Args, identity: Identity) -> Result<Opened, StartError> {
    let files = args.tls_cert_file.clone().zip(args.tls_private_key_file.clone());
    let ends = Ends::default();
    let (source, config) = match files {
        Some((certificate, key)) => {
            let read = read(&certificate, &key)?;
            ends.set(&read.pems.0, None);
            let config = read.config;
            let names = certificate::names(&identity.service, &identity.namespace);
            let is_called = !identity.api_services.is_empty();
            let name = names.into_iter().next().filter(|_| is_called);
            (Source::Files { certificate, key, name }, config)
        }
        None => {
            let names = certificate::names(&identity.service, &identity.namespace);
            let made = certificate::make(&names, None, Timestamp::now())
                .map_err(|error| StartError::Tls(error.to_string()))?;
            ends.set(&made.certificate, Some(&made.ca_bundle));
            let config =
                tls::server_config(&made.certificate, &made.key).map_err(StartError::Tls)?;
            (Source::Secret(identity), config)
        }
    };
    let is_final = matches!(source, Source::Files { .. });
    Ok(Opened {
        source,
        tls: RustlsConfig::from_config(config),
        ready: Arc::new(watch::Sender::new(is_final)),
        ends,
    })
}

struct Read {
    pems: (String, String),
    config: Arc<ServerConfig>,
}

fn read(certificate: &PathBuf, key: &PathBuf) -> Result<Read, StartError> {
    const FLAG: &str = "tls-cert-file";
    let text = |flag, path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| StartError::file(flag, path, error))
    };
    let pems = (text(FLAG, certificate)?, text("tls-private-key-file", key)?);
    let config = tls::server_config(&pems.0, &pems.1)
        .map_err(|why| StartError::file(FLAG, certificate, why))?;
    Ok(Read { pems, config })
}

impl Opened {
    /// The TLS configuration.
    pub(super) fn tls(&self) -> RustlsConfig {
        self.tls.clone()
    }

    /// The expiration of the certificates, for metrics.
    pub(super) fn ends(&self) -> CertificateEnds {
        let ends = self.ends.clone();
        Arc::new(move || {
            let [serving, ca] = &*ends.0;
            let ends = [("serving", serving), ("ca", ca)];
            let ends = ends.map(|(what, end)| (what, end.load(Ordering::Relaxed)));
            ends.into_iter().filter(|(_, end)| *end > 0).collect()
        })
    }

    /// Whether the certificate is the one that callers expect.
    pub(super) fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Watches the files or the Secret until it is dropped.
    pub(super) async fn keep(self, cluster: Cluster) {
        match &self.source {
            Source::Files { certificate, key, name } => {
                self.keep_files(certificate, key, name.as_deref()).await;
            }
            Source::Secret(identity) => self.keep_secret(identity, &cluster).await,
        }
    }

    async fn keep_files(&self, file: &PathBuf, key: &PathBuf, name: Option<&str>) {
        let mut served = None;
        let mut refused = None;
        loop {
            match read(file, key) {
                Ok(now) if served.as_ref() != Some(&now.pems) => {
                    if served.is_some() {
                        tracing::info!(file = %file.display(), "reloaded the serving certificate");
                    }
                    self.tls.reload_from_config(now.config);
                    self.ends.set(&now.pems.0, None);
                    if let Some(why) = name
                        .and_then(|name| certificate::fault(&now.pems.0, name, Timestamp::now()))
                    {
                        tracing::warn!(
                            file = %file.display(),
                            "kube-apiserver rejects the serving certificate: it {why}"
                        );
                    }
                    (served, refused) = (Some(now.pems), None);
                }
                Ok(_) => refused = None,
                Err(error) => {
                    let error = error.to_string();
                    if refused.as_ref() != Some(&error) {
                        tracing::error!(
                            %error,
                            "cannot reload the serving certificate; the last valid one stays in \
                             use"
                        );
                        refused = Some(error);
                    }
                }
            }
            tokio::time::sleep(REREAD_EVERY).await;
        }
    }

    async fn keep_secret(&self, identity: &Identity, cluster: &Cluster) {
        let mut state = State::default();
        let mut pause = PAUSE.0;
        loop {
            let adopted = timeout(ADOPTION, self.adopt(identity, cluster, &mut state)).await;
            let late = "the cluster does not answer";
            match adopted.unwrap_or_else(|_| Err(late.to_owned())) {
                Ok(()) => {
                    pause = PAUSE.0;
                    let absent = state.registrations.contains(&Registration::Absent);
                    let next = if absent { LOOK_FOR_REGISTRATION_EVERY } else { LOOK_EVERY };
                    tokio::time::sleep(next).await;
                }
                Err(error) => {
                    let Identity { namespace, secret, .. } = identity;
                    tracing::warn!(
                        secret = %format_args!("{namespace}/{secret}"),
                        %error,
                        "cannot read or write the Secret of the serving certificate"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    /// Updates the Secret, the APIServices and the served certificate, in this order, so that callers have the CA
    /// before the server uses a certificate of this CA.
    async fn adopt(
        &self,
        identity: &Identity,
        cluster: &Cluster,
        state: &mut State,
    ) -> Result<(), String> {
        let names = certificate::names(&identity.service, &identity.namespace);
        let kept = kept(identity, cluster, &names, state.served.as_ref()).await?;
        // Before the first certificate from the Secret no caller can trust the server, so there is no reason to wait.
        if state.served.is_none() {
            self.serve(&kept, state)?;
        }
        let mut registrations = Vec::new();
        let service = (identity.namespace.as_str(), identity.service.as_str());
        for api_service in &identity.api_services {
            let registration = cluster.set_ca_bundle(api_service, service, &kept.ca_bundle).await;
            let registration = registration
                .map_err(|error| format!("caBundle of APIService {api_service}: {error}"))?;
            report(api_service, registration, state.registrations.get(registrations.len()));
            registrations.push(registration);
        }
        state.registrations = registrations;
        let is_new_ca = state.served.as_ref().is_some_and(|served| served.ca_key != kept.ca_key);
        if is_new_ca {
            // Each kube-apiserver reads the new CA at its own time.
            tokio::time::sleep(SPREAD).await;
        }
        self.serve(&kept, state)
    }

    fn serve(&self, kept: &KeptCertificates, state: &mut State) -> Result<(), String> {
        if state.served.as_ref() != Some(kept) {
            self.tls.reload_from_config(tls::server_config(&kept.certificate, &kept.key)?);
            self.ends.set(&kept.certificate, Some(&kept.ca_bundle));
            state.served = Some(kept.clone());
        }
        self.ready.send_replace(true);
        Ok(())
    }
}

/// The state after the last update.
#[derive(Default)]
struct State {
    served: Option<KeptCertificates>,
    registrations: Vec<Registration>,
}

/// Logs a registration that prevents requests, once.
fn report(api_service: &str, now: Registration, before: Option<&Registration>) {
    if before == Some(&now) {
        return;
    }
    match now {
        Registration::Done => {}
        Registration::Absent => {
            tracing::warn!(
                api_service,
                "APIService not found: kube-apiserver does not send requests here"
            );
        }
        Registration::OfAnother => {
            tracing::warn!(api_service, "APIService refers to another Service; it is not changed");
        }
        Registration::Unverified => tracing::warn!(
            api_service,
            "APIService has insecureSkipTLSVerify; it is not changed, and its connections are not protected"
        ),
    }
}

/// The certificates in the Secret, generated or renewed if necessary. If the Secret has lost its certificates, the CA
/// of the served certificate stays in the bundle until callers know the new CA.
async fn kept(
    identity: &Identity,
    cluster: &Cluster,
    names: &[String],
    served: Option<&KeptCertificates>,
) -> Result<KeptCertificates, String> {
    let Identity { namespace, secret, .. } = identity;
    let read = cluster.read_serving_secret(namespace, secret).await;
    let (found, kept) = read.map_err(|error| format!("cannot be read: {error}"))?;
    let was_missing = found.is_none();
    let now = Timestamp::now();
    let renewal = kept.as_ref().map(|kept| certificate::needed_renewal(kept, names, now));
    let made = match (kept, renewal) {
        (Some(kept), Some(Renewal::NotNeeded)) => return Ok(kept),
        (Some(kept), Some(Renewal::Serving)) => certificate::renew_serving(&kept, names, now),
        (kept, _) => certificate::make(names, kept.as_ref().or(served), now),
    };
    let made = made.map_err(|error| format!("cannot create a certificate: {error}"))?;
    match cluster.write_serving_secret(namespace, secret, found, &made).await {
        Ok(()) => {
            let secret = format!("{namespace}/{secret}");
            tracing::info!(secret, was_missing, "stored a new serving certificate");
            Ok(made)
        }
        Err(error @ SecretError::Lost) => Err(error.to_string()),
        Err(error) => Err(format!(
            "cannot be written: {error}; kubectl -n {namespace} create secret generic {secret} creates an empty Secret that the server can write"
        )),
    }
}
