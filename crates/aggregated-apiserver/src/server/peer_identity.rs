//! The identity of a client, from the certificate of its connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::tls::Trust;
use crate::auth::ClientCertificate;
use crate::log_throttle::{LogThrottle, shown};
use crate::request::Presented;
use crate::user::User;

/// The longest time that the result of a verification is cached. A certificate may expire on a connection that is open
/// for days.
const JUDGEMENT: Duration = Duration::from_secs(60);

/// The limits of log lines that unauthenticated certificates can cause.
#[derive(Default)]
pub(super) struct CertificateLines {
    not_allowed: LogThrottle,
    unknown: LogThrottle,
}

/// The client certificate of a connection, verified when a request needs it.
pub(super) struct PeerIdentity {
    chain: Vec<CertificateDer<'static>>,
    trust: Arc<ArcSwap<Trust>>,
    judged: Mutex<Option<Judgement>>,
    lines: Arc<CertificateLines>,
}

struct Judgement {
    generation: u64,
    at: Instant,
    presented: Presented,
}

impl PeerIdentity {
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        trust: Arc<ArcSwap<Trust>>,
        lines: Arc<CertificateLines>,
    ) -> Self {
        Self { chain, trust, judged: Mutex::default(), lines }
    }

    /// The verified identity of the connection at present.
    pub(super) fn presented(&self) -> Presented {
        if self.chain.is_empty() {
            return Presented::default();
        }
        let trust = self.trust.load();
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judgement) = &*judged
            && judgement.generation == trust.generation
            && judgement.at.elapsed() < JUDGEMENT
        {
            return judgement.presented.clone();
        }
        let presented = judge(&trust, &self.chain, &self.lines);
        *judged = Some(Judgement {
            generation: trust.generation,
            at: Instant::now(),
            presented: presented.clone(),
        });
        presented
    }
}

fn judge(trust: &Trust, chain: &[CertificateDer<'static>], lines: &CertificateLines) -> Presented {
    let mut presented = Presented { any: true, ..Presented::default() };
    let Some(leaf) = chain.first() else { return presented };
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return presented };
    let subject = parsed.subject();
    let common_name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last();
    if trust.is_front_proxy(chain) {
        presented.is_front_proxy = trust.allows(common_name.unwrap_or_default());
        if !presented.is_front_proxy {
            lines.not_allowed.log(|suppressed| {
                tracing::warn!(
                    suppressed,
                    "x509: subject with cn={} is not in the allowed list: {:?}; is it the proxy client certificate of kube-apiserver?",
                    shown(common_name.unwrap_or_default()),
                    trust.allowed_names
                );
            });
        }
    }
    if trust.is_client(chain) {
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let mut user = User {
            name: common_name.unwrap_or_default().to_owned(),
            groups: groups.map(str::to_owned).collect(),
            ..User::default()
        };
        let digest = Sha256::digest(leaf);
        let hexadecimal: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        user.extra.insert(
            "authentication.kubernetes.io/credential-id".to_owned(),
            vec![format!("X509SHA256={hexadecimal}")],
        );
        presented.client = Some(ClientCertificate { user, der: leaf.as_ref().into() });
    }
    if !presented.is_front_proxy && presented.client.is_none() {
        lines.unknown.log(|suppressed| {
            tracing::warn!(
                suppressed,
                cn = %shown(common_name.unwrap_or_default()),
                issuer = %shown(parsed.issuer()),
                trusted = %trust.describe(),
                "client certificate is not trusted"
            );
        });
    }
    presented
}
