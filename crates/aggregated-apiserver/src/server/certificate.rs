//! Certificates that the server generates: a CA, and a serving certificate with the names of the Service.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::tls;
use crate::cluster::KeptCertificates;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const CA_DAYS: i32 = 3_650;
const SERVING_DAYS: i32 = 365;
/// The tolerated difference between the clocks of a cluster.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The renewal that stored certificates need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// No renewal.
    NotNeeded,
    /// A new serving certificate by the same CA.
    Serving,
    /// A new CA and a new serving certificate.
    All,
}

/// The names of a Service for callers within the cluster.
pub(super) fn names(service: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service.to_owned(),
        "localhost".to_owned(),
    ]
}

/// The renewal that stored certificates need. A certificate is renewed after two thirds of its lifetime.
pub(super) fn needed_renewal(kept: &KeptCertificates, names: &[String], now: Timestamp) -> Renewal {
    let (Some(ca), Some(serving)) = (Life::of(&kept.ca_bundle), Life::of(&kept.certificate)) else {
        return Renewal::All;
    };
    let ca_key = KeyPair::from_pem(&kept.ca_key);
    let is_own_key = ca_key.is_ok_and(|key| key.public_key_raw() == ca.public_key);
    if !is_own_key || ca.is_due(now) || !tls::is_bundle(&kept.ca_bundle) {
        return Renewal::All;
    }
    let has_names = names.iter().all(|name| serving.names.contains(name));
    let is_usable = tls::server_config(&kept.certificate, &kept.key).is_ok();
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let name = names.first().map(String::as_str).unwrap_or_default();
    let is_signed = tls::is_server_certificate_of(&kept.ca_bundle, &kept.certificate, name, at);
    if has_names && is_usable && is_signed && !serving.is_due(now) {
        Renewal::NotNeeded
    } else {
        Renewal::Serving
    }
}

/// The reason why callers with this server name reject a certificate, regardless of its CA.
pub(super) fn fault(certificate: &str, name: &str, now: Timestamp) -> Option<String> {
    let life = Life::of(certificate)?;
    if !tls::is_for(certificate, name) {
        return Some(format!("is not valid for {name}, only for {:?}", life.names));
    }
    let expired = Timestamp::from_second(life.to).ok().filter(|to| *to < now)?;
    Some(format!("has expired at {expired}"))
}

/// The expiration of the first certificate in PEM, in seconds since 1970.
pub(super) fn end(pem: &str) -> Option<i64> {
    Life::of(pem).map(|life| life.to)
}

/// Generates a CA and a serving certificate. The CA of `previous` stays in the bundle, so callers that know it can
/// continue.
pub(super) fn make(
    names: &[String],
    previous: Option<&KeptCertificates>,
    now: Timestamp,
) -> Result<KeptCertificates, rcgen::Error> {
    let mut params = CertificateParams::default();
    let name = names.first().map(String::as_str).unwrap_or_default();
    params.distinguished_name.push(DnType::CommonName, format!("{name} CA {}", now.as_second()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_life(&mut params, now, CA_DAYS);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let mut ca_bundle = ca.pem();
    let before = previous.and_then(|previous| first_certificate(&previous.ca_bundle));
    if let Some(before) = before.filter(|before| Life::of(before).is_some()) {
        ca_bundle.push_str(before);
    }
    let (certificate, key) = sign(names, &ca, now)?;
    Ok(KeptCertificates { ca_bundle, ca_key: ca.key().serialize_pem(), certificate, key })
}

/// Generates a new serving certificate, signed by the stored CA.
pub(super) fn renew_serving(
    kept: &KeptCertificates,
    names: &[String],
    now: Timestamp,
) -> Result<KeptCertificates, rcgen::Error> {
    let ca_key = KeyPair::from_pem(&kept.ca_key)?;
    let first = first_certificate(&kept.ca_bundle).unwrap_or_default();
    let ca = Issuer::from_ca_cert_pem(first, ca_key)?;
    let (certificate, key) = sign(names, &ca, now)?;
    Ok(KeptCertificates { certificate, key, ..kept.clone() })
}

fn sign<K: rcgen::SigningKey>(
    names: &[String],
    ca: &Issuer<'_, K>,
    now: Timestamp,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    let name = names.first().map(String::as_str).unwrap_or_default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_life(&mut params, now, SERVING_DAYS);
    let certificate = params.signed_by(&key, ca)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn set_life(params: &mut CertificateParams, now: Timestamp, days: i32) {
    let date = |time: Timestamp| {
        let date = time.to_zoned(jiff::tz::TimeZone::UTC).date();
        let month = u8::try_from(date.month()).unwrap_or(1);
        let day = u8::try_from(date.day()).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), month, day)
    };
    params.not_before = date(now - SKEW);
    // One more day, because the time of day is cut off.
    params.not_after = date(now + DAY * (days + 1));
}

/// The first certificate of a PEM bundle.
fn first_certificate(bundle: &str) -> Option<&str> {
    const END: &str = "-----END CERTIFICATE-----";
    let end = bundle.find(END)? + END.len();
    let end = bundle[end..].find('\n').map_or(bundle.len(), |newline| end + newline + 1);
    Some(&bundle[..end])
}

/// The validity, the names and the public key of a certificate.
struct Life {
    from: i64,
    to: i64,
    names: Vec<String>,
    public_key: Vec<u8>,
}

impl Life {
    /// Reads the first certificate in PEM.
    fn of(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let names = alternatives.into_iter().flat_map(|names| &names.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
        Some(Self {
            from: parsed.validity().not_before.timestamp(),
            to: parsed.validity().not_after.timestamp(),
            names: names.collect(),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
        })
    }

    fn is_due(&self, now: Timestamp) -> bool {
        now.as_second() >= self.from + (self.to - self.from) / 3 * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i32) -> Timestamp {
        "2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap() + DAY * days
    }

    fn service() -> Vec<String> {
        names("farm-operator", "farm-operator")
    }

    #[test]
    fn generated_certificates_are_renewed_after_two_thirds_of_their_lifetime() {
        let made = make(&service(), None, at(0)).unwrap();
        assert_eq!(needed_renewal(&made, &service(), at(0)), Renewal::NotNeeded);
        assert_eq!(needed_renewal(&made, &service(), at(240)), Renewal::NotNeeded);
        assert_eq!(needed_renewal(&made, &service(), at(250)), Renewal::Serving);
        assert_eq!(needed_renewal(&made, &service(), at(3_000)), Renewal::All);
        assert_eq!(needed_renewal(&made, &names("other", "n"), at(0)), Renewal::Serving);
    }

    #[test]
    fn renewing_the_serving_certificate_preserves_the_ca() {
        let made = make(&service(), None, at(0)).unwrap();
        let renewed = renew_serving(&made, &service(), at(250)).unwrap();
        assert_eq!(renewed.ca_bundle, made.ca_bundle);
        assert_ne!(renewed.certificate, made.certificate);
        assert_eq!(needed_renewal(&renewed, &service(), at(250)), Renewal::NotNeeded);
    }

    #[test]
    fn a_new_ca_precedes_the_previous_one_in_the_bundle() {
        let made = make(&service(), None, at(0)).unwrap();
        let second = make(&service(), Some(&made), at(3_000)).unwrap();
        assert!(second.ca_bundle.ends_with(&made.ca_bundle));
        let third = make(&service(), Some(&second), at(6_000)).unwrap();
        assert_eq!(third.ca_bundle.matches("BEGIN CERTIFICATE").count(), 2);
        assert_eq!(needed_renewal(&third, &service(), at(6_000)), Renewal::NotNeeded);
    }

    #[test]
    fn certificates_that_clients_would_reject_are_reported() {
        let name = "farm-operator.farm-operator.svc";
        let made = make(&service(), None, at(0)).unwrap().certificate;
        assert_eq!(fault(&made, name, at(0)), None);
        let expired = fault(&made, name, at(400)).unwrap();
        assert_eq!(expired, "has expired at 2027-01-02T00:00:00Z");
        let other = make(&["*.other.svc".to_owned()], None, at(0)).unwrap().certificate;
        let wrong = fault(&other, name, at(0)).unwrap();
        assert_eq!(wrong, format!("is not valid for {name}, only for [\"*.other.svc\"]"));
        assert_eq!(fault(&other, "any.other.svc", at(0)), None);
    }

    #[test]
    fn invalid_stored_certificates_are_regenerated() {
        let made = make(&service(), None, at(0)).unwrap();
        let other = make(&service(), None, at(0)).unwrap();
        let damaged = made.ca_bundle.replace("MII", "!!!");
        for ca_bundle in ["x", &damaged, &(made.ca_bundle.clone() + &damaged)] {
            let broken = KeptCertificates { ca_bundle: ca_bundle.to_owned(), ..made.clone() };
            assert_eq!(needed_renewal(&broken, &service(), at(0)), Renewal::All);
            let healed = make(&service(), Some(&broken), at(0)).unwrap();
            assert_eq!(needed_renewal(&healed, &service(), at(0)), Renewal::NotNeeded);
        }
        let mismatch = KeptCertificates { key: other.key.clone(), ..made.clone() };
        assert_eq!(needed_renewal(&mismatch, &service(), at(0)), Renewal::Serving);
        let half =
            KeptCertificates { certificate: other.certificate, key: other.key, ..made.clone() };
        assert_eq!(needed_renewal(&half, &service(), at(0)), Renewal::Serving);
        let foreign = KeptCertificates { ca_key: other.ca_key, ..made };
        assert_eq!(needed_renewal(&foreign, &service(), at(0)), Renewal::All);
    }
}
