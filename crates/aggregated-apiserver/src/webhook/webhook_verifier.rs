//! Verifies the certificates of webhooks. A certificate is trusted if a CA of the bundle has signed it, or if the
//! bundle contains the certificate itself. `openssl req -x509` creates the latter: a self-signed certificate that is
//! marked as a CA, and that the webhook also uses as its server certificate. A strict verifier does not accept a CA as
//! a server certificate; Go accepts it if it is in the bundle.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// Verifies the certificate of a webhook against its bundle.
#[derive(Debug)]
pub(super) struct WebhookVerifier {
    by_signatures: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl WebhookVerifier {
    /// Creates a verifier for a bundle. `roots` are the certificates of the bundle that can be CAs.
    ///
    /// # Errors
    /// The reason, if `roots` is empty.
    pub(super) fn new(
        roots: RootCertStore,
        bundle: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let by_signatures = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|why| why.to_string())?;
        Ok(Self { by_signatures, bundle })
    }
}

impl ServerCertVerifier for WebhookVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.by_signatures.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        if verified.is_ok() {
            return verified;
        }
        if !self.bundle.iter().any(|one| one == end_entity) {
            // A CA that is not in the bundle is unknown. The strict verifier reports instead that it is a CA.
            return verified.map_err(|why| match why {
                Error::InvalidCertificate(CertificateError::Other(_)) if is_ca(end_entity) => {
                    Error::InvalidCertificate(CertificateError::UnknownIssuer)
                }
                why => why,
            });
        }
        // The certificate needs no signature of another CA. All other checks apply.
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        check_time_and_usage(end_entity, now).map_err(Error::InvalidCertificate)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_signatures.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_signatures.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_signatures.supported_verify_schemes()
    }
}

fn is_ca(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| parsed.is_ca())
}

fn check_time_and_usage(
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), CertificateError> {
    let bad = CertificateError::BadEncoding;
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| bad.clone())?;
    let seconds = i64::try_from(now.as_secs()).map_err(|_| bad.clone())?;
    let now = ASN1Time::from_timestamp(seconds).map_err(|_| bad.clone())?;
    if now < parsed.validity().not_before {
        return Err(CertificateError::NotValidYet);
    }
    if now > parsed.validity().not_after {
        return Err(CertificateError::Expired);
    }
    // A certificate without purposes is valid for all purposes.
    match parsed.extended_key_usage().map_err(|_| bad)? {
        Some(usage) if !usage.value.any && !usage.value.server_auth => {
            Err(CertificateError::InvalidPurpose)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use rcgen::{
        BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
        KeyPair,
    };

    const NAME: &str = "localhost";

    /// A certificate in the format of `openssl req -x509`.
    fn its_own_ca() -> CertificateParams {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn signed_by_itself(params: &CertificateParams) -> Certificate {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn verify(bundle: &[&Certificate], shown: &Certificate, name: &str) -> Result<(), Error> {
        let bundle: Vec<_> = bundle.iter().map(|one| one.der().clone()).collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(bundle.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let vouched = WebhookVerifier::new(roots, bundle, provider).unwrap();
        let name = ServerName::try_from(name).unwrap();
        vouched.verify_server_cert(shown.der(), &[], &name, &[], UnixTime::now()).map(drop)
    }

    #[test]
    fn a_self_signed_ca_certificate_in_the_bundle_is_trusted() {
        let own = signed_by_itself(&its_own_ca());
        verify(&[&own], &own, NAME).unwrap();
        let another = signed_by_itself(&its_own_ca());
        verify(&[&another, &own], &own, NAME).unwrap();
        // Another certificate with the same names, but another key.
        verify(&[&another], &own, NAME).unwrap_err();
    }

    #[test]
    fn a_self_signed_certificate_with_wrong_name_date_or_usage_is_rejected() {
        let own = signed_by_itself(&its_own_ca());
        verify(&[&own], &own, "elsewhere").unwrap_err();
        let day = Duration::from_secs(24 * 60 * 60);
        let refused = |change: &dyn Fn(&mut CertificateParams)| {
            let mut params = its_own_ca();
            change(&mut params);
            let own = signed_by_itself(&params);
            verify(&[&own], &own, NAME).unwrap_err()
        };
        let now = SystemTime::now();
        let expired = refused(&|params| params.not_after = (now - day).into());
        assert_eq!(expired, Error::InvalidCertificate(CertificateError::Expired));
        let early = refused(&|params| params.not_before = (now + day).into());
        assert_eq!(early, Error::InvalidCertificate(CertificateError::NotValidYet));
        let purpose = refused(&|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert_eq!(purpose, Error::InvalidCertificate(CertificateError::InvalidPurpose));
    }

    #[test]
    fn an_intermediate_ca_is_rejected_as_a_server_certificate() {
        let key = KeyPair::generate().unwrap();
        let root = its_own_ca().self_signed(&key).unwrap();
        let issuer = Issuer::new(its_own_ca(), key);
        let below = its_own_ca().signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        verify(&[&root], &below, NAME).unwrap_err();
        let server = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let server = server.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        verify(&[&root], &server, NAME).unwrap();
    }
}
