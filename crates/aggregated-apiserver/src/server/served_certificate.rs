//! Reads the certificate of a server, and checks whether a client with certain CAs trusts it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::tls::Rejection;
use super::{certificate, tls};

/// The time limit of connecting, and of the TLS handshake. A server nearby responds sooner.
const PATIENCE: Duration = Duration::from_secs(3);

/// The certificates that a server presents for this name, as PEM, leaf first. No request is sent to the server.
///
/// # Errors
/// If the server does not respond within three seconds, or does not use TLS.
pub(crate) async fn presented(address: &str, name: &str) -> Result<String, String> {
    let provider = Arc::new(ring::default_provider());
    let shown = Arc::new(Shown(provider.signature_verification_algorithms));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(shown)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let late = |_| format!("no answer within {} s", PATIENCE.as_secs());
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await.map_err(late)?;
    let stream = stream.map_err(|error| error.to_string())?;
    let greeting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = timeout(PATIENCE, greeting).await.map_err(late)?;
    let stream = stream.map_err(|error| format!("it does not speak TLS: {error}"))?;
    let (_, connection) = stream.get_ref();
    Ok(connection.peer_certificates().unwrap_or_default().iter().map(pem).collect())
}

/// The reason why a client with these CAs rejects a certificate for this name; `None` if it does not.
pub(crate) fn refusal(cas: &str, chain: &str, name: &str, now: Timestamp) -> Option<Rejection> {
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let by_itself = certificate::fault(chain, name, now);
    by_itself.map(Rejection::Other).or_else(|| tls::distrust(cas, chain, name, at))
}

/// Whether a string consists of certificates, at least one.
pub(crate) fn is_bundle(pem: &str) -> bool {
    tls::is_bundle(pem)
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(64) {
        let _ = writeln!(pem, "{}", String::from_utf8_lossy(line));
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// Accepts any certificate. The certificate is only displayed, and no request is sent.
#[derive(Debug)]
struct Shown(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
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
