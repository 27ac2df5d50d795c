//! Certificate authorities and certificates in files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

/// A certificate authority, with its certificate in a file.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The path of its certificate.
    pub file: PathBuf,
}

/// A certificate and its private key in files.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The path of the certificate in PEM.
    pub certificate: PathBuf,
    /// The path of the private key in PEM.
    pub key: PathBuf,
}

impl Certificate {
    /// Copies the certificate and its key to other files, before these are overwritten.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn copied_to(&self, folder: &Path, file: &str) -> Result<Self> {
        let copy = Self {
            certificate: folder.join(format!("{file}.crt")),
            key: folder.join(format!("{file}.key")),
        };
        fs::copy(&self.certificate, &copy.certificate)?;
        fs::copy(&self.key, &copy.key)?;
        Ok(copy)
    }
}

impl Authority {
    /// Creates an authority. The file is overwritten.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(name: &str, file: &Path) -> Result<Self> {
        let mut params = params(name, None)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(file, issuer.pem())?;
        Ok(Self { issuer, file: file.to_owned() })
    }

    /// Creates a certificate for a server with these names and addresses.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn server(&self, folder: &Path, file: &str, names: &[&str]) -> Result<Certificate> {
        self.sign_server(params(file, None)?, folder, file, names)
    }

    /// Creates a server certificate that expired in 2002.
    ///
    /// # Errors
    /// Same as [`Authority::server`].
    pub fn expired_server(&self, folder: &Path, file: &str, names: &[&str]) -> Result<Certificate> {
        let mut params = params(file, None)?;
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.sign_server(params, folder, file, names)
    }

    fn sign_server(
        &self,
        mut params: CertificateParams,
        folder: &Path,
        file: &str,
        names: &[&str],
    ) -> Result<Certificate> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params, folder, file)
    }

    /// Creates a client certificate for a user in at most one group.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn client(
        &self,
        folder: &Path,
        file: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<Certificate> {
        let mut params = params(user, group)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params, folder, file)
    }

    /// Creates a client certificate whose only identity is a URI, such as `spiffe://example.com/jane`.
    ///
    /// # Errors
    /// Same as [`Authority::client`].
    pub fn client_of_uri(&self, folder: &Path, file: &str, uri: &str) -> Result<Certificate> {
        let mut params = params("", None)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params, folder, file)
    }

    fn sign(&self, params: &CertificateParams, folder: &Path, file: &str) -> Result<Certificate> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let files = Certificate {
            certificate: folder.join(format!("{file}.crt")),
            key: folder.join(format!("{file}.key")),
        };
        fs::write(&files.certificate, certificate.pem())?;
        fs::write(&files.key, key.serialize_pem())?;
        Ok(files)
    }
}

fn params(common_name: &str, organization: Option<&str>) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    let day = SignedDuration::from_hours(24);
    let ymd = |time: Timestamp| {
        let date = time.to_zoned(jiff::tz::TimeZone::UTC).date();
        let (month, day) = (u8::try_from(date.month()), u8::try_from(date.day()));
        (i32::from(date.year()), month.unwrap_or(1), day.unwrap_or(1))
    };
    let (year, month, date) = ymd(Timestamp::now() - day);
    params.not_before = rcgen::date_time_ymd(year, month, date);
    let (year, month, date) = ymd(Timestamp::now() + day * 30);
    params.not_after = rcgen::date_time_ymd(year, month, date);
    Ok(params)
}
