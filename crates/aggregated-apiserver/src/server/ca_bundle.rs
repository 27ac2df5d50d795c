//! Validation of a bundle of CA certificates, with the error messages of clients written in Go.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::webhook::certificates;

/// The error of a bundle without a valid certificate. `None` if the bundle has a valid certificate or is empty.
pub(super) fn fault(bundle: &[u8]) -> Option<String> {
    if bundle.is_empty() {
        return None;
    }
    let why = match certificates(bundle) {
        Ok(found) if found.iter().any(|one| X509Certificate::from_der(one).is_ok()) => return None,
        Ok(_) => "failed to parse certificate: x509: malformed certificate".to_owned(),
        Err(why) => why,
    };
    Some(format!("unable to load root certificates: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_bundle_needs_only_one_readable_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        let good = made.self_signed(&key).unwrap().pem();
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(fault(b""), None);
        assert_eq!(fault(good.as_bytes()), None);
        assert_eq!(fault(format!("{bad}{good}").as_bytes()), None);
        let why = |bundle: &str| fault(bundle.as_bytes()).unwrap();
        let prefix = "unable to load root certificates: ";
        assert_eq!(why("\n"), format!("{prefix}unable to parse bytes as PEM block"));
        assert!(why(bad).starts_with(&format!("{prefix}failed to parse certificate: x509: ")));
    }
}
