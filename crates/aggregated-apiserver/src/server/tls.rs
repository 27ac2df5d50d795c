//! TLS: the serving certificate, and the verification of client certificates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::cluster::DelegatedAuthentication;

/// Installs ring as the provider of cryptography, unless the program has installed another one.
pub(super) fn install_provider() {
    let _ = ring::default_provider().install_default();
}

/// A TLS configuration that serves this certificate and requests a client certificate.
pub(super) fn server_config(certificate: &str, key: &str) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates("certificate", certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("the key is not valid PEM: {error}"))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Ask(provider.signature_verification_algorithms));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| format!("the certificate and the key do not belong together: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates in PEM. A string without a certificate is an error.
fn certificates(what: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("{what} is not valid PEM: {error}"))?;
    if certificates.is_empty() {
        return Err(format!("{what} contains no certificate in PEM"));
    }
    Ok(certificates)
}

/// Requests a client certificate and accepts any certificate. Its CA is verified with each request, against the CAs of
/// that moment. The handshake only proves that the client has the private key.
struct Ask(WebPkiSupportedAlgorithms);

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask")
    }
}

impl ClientCertVerifier for Ask {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Sends no hints. A client that knows another CA must still present its certificate, because otherwise a change of
    /// the CA would lock it out.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// The parameter with the CA of front proxies.
pub(super) const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";

/// An invalid CA.
#[derive(Debug)]
pub(super) struct CaError {
    /// The parameter that contains the CA.
    pub parameter: &'static str,
    /// The reason, which names the parameter.
    pub why: String,
}

/// The CAs of the client certificates that are trusted.
pub(super) struct Trust {
    /// A number that increases with each change, so that connections verify their client certificates again.
    pub generation: u64,
    /// The allowed common names of the front proxy's certificate; an empty list allows any name.
    pub allowed_names: Vec<String>,
    front_proxy: Option<Arc<dyn ClientCertVerifier>>,
    client: Option<Arc<dyn ClientCertVerifier>>,
}

impl Trust {
    /// The CAs of the present configuration, and the errors in it. If one of the CAs is invalid, its last valid value
    /// stays.
    pub(super) fn new(
        delegated: &DelegatedAuthentication,
        last: Option<&Self>,
    ) -> (Self, Vec<CaError>) {
        static GENERATION: AtomicU64 = AtomicU64::new(0);
        let header = delegated.request_header.as_ref();
        let mut errors = Vec::new();
        let mut read =
            |parameter, pem: Option<&str>, last: Option<&Arc<dyn ClientCertVerifier>>| {
                pem.and_then(|pem| match verifier(parameter, pem) {
                    Ok(verifier) => Some(verifier),
                    Err(why) => {
                        errors.push(CaError { parameter, why });
                        last.cloned()
                    }
                })
            };
        let front_proxy = read(
            FRONT_PROXY_CA,
            header.map(|header| header.ca.as_str()),
            last.and_then(|last| last.front_proxy.as_ref()),
        );
        let client = read(
            "client-ca-file",
            delegated.client_ca.as_deref(),
            last.and_then(|last| last.client.as_ref()),
        );
        let trust = Self {
            generation: GENERATION.fetch_add(1, Ordering::Relaxed) + 1,
            allowed_names: header.map(|header| header.allowed_names.clone()).unwrap_or_default(),
            front_proxy,
            client,
        };
        (trust, errors)
    }

    /// Whether the front proxy's CA signed this chain.
    pub(super) fn is_front_proxy(&self, chain: &[CertificateDer<'_>]) -> bool {
        verifies(self.front_proxy.as_ref(), chain)
    }

    /// Whether a front proxy may have this name.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|allowed| allowed == name)
    }

    /// Whether the clients' CA signed this chain.
    pub(super) fn is_client(&self, chain: &[CertificateDer<'_>]) -> bool {
        verifies(self.client.as_ref(), chain)
    }

    /// The part of a log message that says which CAs are known.
    pub(super) fn describe(&self) -> &'static str {
        match (&self.front_proxy, &self.client) {
            (Some(_), Some(_)) => "neither the front proxy's CA signed it nor the clients'",
            (None, Some(_)) => "the clients' CA did not sign it, and no front proxy's CA is known",
            (Some(_), None) => "the front proxy's CA did not sign it, and no clients' CA is known",
            (None, None) => "no CA is known",
        }
    }
}

/// Whether a string consists of certificates, at least one.
pub(super) fn is_bundle(pem: &str) -> bool {
    certificates("bundle", pem).is_ok()
}

/// Whether a certificate is valid for a server with this name.
pub(super) fn is_for(certificate: &str, name: &str) -> bool {
    let Ok(chain) = certificates("certificate", certificate) else { return false };
    let parsed = chain.first().and_then(|leaf| ParsedCertificate::try_from(leaf).ok());
    let name = ServerName::try_from(name).ok();
    parsed.zip(name).is_some_and(|(leaf, name)| verify_server_name(&leaf, &name).is_ok())
}

/// Whether one of these CAs has signed a server's certificate chain for this name.
pub(super) fn is_server_certificate_of(
    cas: &str,
    certificate: &str,
    name: &str,
    at: UnixTime,
) -> bool {
    distrust(cas, certificate, name, at).is_none()
}

/// The reason why a client rejects a certificate.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// None of the client's CAs has signed it.
    UnknownIssuer,
    /// Another reason, as the end of a sentence about the certificate.
    Other(String),
}

impl From<String> for Rejection {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIssuer => f.write_str("is signed by none of these CAs"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// The reason why these CAs do not verify a server's certificate chain for this name; `None` if they do.
pub(super) fn distrust(
    cas: &str,
    certificate: &str,
    name: &str,
    at: UnixTime,
) -> Option<Rejection> {
    let check = || -> Result<(), Rejection> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates("CA", cas)?);
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let chain = certificates("certificate", certificate)?;
        let (leaf, rest) = chain.split_first().ok_or_else(|| "has no certificate".to_owned())?;
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let verifier = verifier.build().map_err(|error| format!("cannot be verified: {error}"))?;
        let verified = verifier.verify_server_cert(leaf, rest, &name, &[], at);
        verified.map(drop).map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => Rejection::UnknownIssuer,
            other => format!("cannot be verified: {other}").into(),
        })
    };
    check().err()
}

fn verifier(what: &str, pem: &str) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    // One invalid CA must not lead to the rejection of clients with certificates of the other CAs.
    let (added, left_out) = roots.add_parsable_certificates(certificates(what, pem)?);
    if left_out > 0 {
        tracing::warn!(
            source = %what,
            omitted = left_out,
            "omitted certificates that cannot be parsed"
        );
    }
    if added == 0 {
        return Err(format!("{what} contains no certificate that can be used as a CA"));
    }
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| format!("{what}: {error}"))
}

fn verifies(verifier: Option<&Arc<dyn ClientCertVerifier>>, chain: &[CertificateDer<'_>]) -> bool {
    match (verifier, chain) {
        (Some(verifier), [leaf, rest @ ..]) => {
            verifier.verify_client_cert(leaf, rest, UnixTime::now()).is_ok()
        }
        _ => false,
    }
}
