//! The certificates in the CA bundle of a webhook.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The certificates of a bundle, as DER. Invalid certificates are omitted, same as in Go.
///
/// # Errors
/// The reason, if the bundle has no valid certificate.
pub fn certificates(bundle: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let unreadable = || "unable to parse bytes as PEM block".to_owned();
    let text = String::from_utf8_lossy(bundle);
    let certificates = text.split(BEGIN).skip(1).filter_map(|rest| {
        let (body, _) = rest.split_once(END)?;
        let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        STANDARD.decode(body).ok()
    });
    let certificates: Vec<Vec<u8>> = certificates.collect();
    if certificates.is_empty() { Err(unreadable()) } else { Ok(certificates) }
}
