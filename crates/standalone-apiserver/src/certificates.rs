//! The certificates of a standalone server: its CA, its serving certificate, and the client certificate of its
//! administrator. They are stored in a directory.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use uuid::Uuid;

/// The validity in years; the certificates are for local use.
const YEARS: i32 = 10;
const ADMIN: &str = "kubernetes-admin";
/// The prefix of the directory in which certificates are created, followed by a random name, because process ids are
/// the same in several containers.
const UNFINISHED: &str = "pki.new.";
/// The prefixes of the files of a store in the same directory.
const OF_STORE: [&str; 3] = ["objects.db", "lock", "ballast"];
const MASTERS: &str = "system:masters";

/// The files of the certificates and keys, PEM.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub ca: PathBuf,
    /// A CA that has not signed anything, because no front proxy is trusted here.
    pub front_proxy_ca: PathBuf,
    pub serving: PathBuf,
    pub serving_key: PathBuf,
    pub admin: PathBuf,
    pub admin_key: PathBuf,
    /// The key that signs tokens of ServiceAccounts.
    pub account_key: PathBuf,
}

impl Certificates {
    /// Opens the certificates in a directory of the server. They are created if the directory is new or empty.
    ///
    /// # Errors
    /// The reason, if the directory cannot be read or written, or contains other files.
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let said = |error: io::Error| error.to_string();
        let kept = folder.join("pki");
        let files = Self::at(&kept);
        if files.are_there() {
            return Ok(files);
        }
        fs::create_dir_all(folder).map_err(said)?;
        for found in fs::read_dir(folder).map_err(said)? {
            let name = found.map_err(said)?.file_name();
            let name = name.to_string_lossy();
            // Another process may be creating certificates, or was killed while it did. Objects may have been imported
            // before the first start.
            if name.starts_with(UNFINISHED) || OF_STORE.iter().any(|file| name.starts_with(file)) {
                continue;
            }
            if files.are_there() {
                return Ok(files);
            }
            return Err("is not empty and does not contain the certificates of this server; use an empty directory".to_owned());
        }
        // The files are renamed together, so that no process sees only some of them.
        let unfinished = folder.join(format!("{UNFINISHED}{}", Uuid::new_v4()));
        fs::create_dir(&unfinished).map_err(said)?;
        let made = Self::at(&unfinished)
            .make()
            .and_then(|()| fs::rename(&unfinished, &kept).map_err(Into::into));
        if made.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        match made {
            Ok(()) => Ok(files),
            // Another process with the same directory was faster.
            Err(_) if files.are_there() => Ok(files),
            Err(error) => Err(error.to_string()),
        }
    }

    fn at(folder: &Path) -> Self {
        let file = |name: &str| folder.join(name);
        Self {
            ca: file("ca.crt"),
            front_proxy_ca: file("front-proxy-ca.crt"),
            serving: file("serving.crt"),
            serving_key: file("serving.key"),
            admin: file("admin.crt"),
            admin_key: file("admin.key"),
            account_key: file("service-account.key"),
        }
    }

    fn are_there(&self) -> bool {
        self.all().iter().all(|file| file.is_file())
    }

    fn all(&self) -> [&PathBuf; 6] {
        let Self { ca, front_proxy_ca, serving, serving_key, admin, admin_key, .. } = self;
        [ca, front_proxy_ca, serving, serving_key, admin, admin_key]
    }

    /// The key that signs tokens of ServiceAccounts. Directories of older versions lack it, so it is created.
    ///
    /// # Errors
    /// The reason, if the file cannot be read or written, or does not contain a key.
    pub(crate) fn service_account_key(&self) -> Result<KeyPair, String> {
        let file = &self.account_key;
        let said = |why: String| format!("{}: {why}", file.display());
        match fs::read_to_string(file) {
            Ok(pem) => KeyPair::from_pem(&pem).map_err(|error| said(error.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = KeyPair::generate().map_err(|error| said(error.to_string()))?;
                write_private(file, &key.serialize_pem())
                    .map_err(|error| said(error.to_string()))?;
                Ok(key)
            }
            Err(error) => Err(said(error.to_string())),
        }
    }

    fn make(&self) -> Result<(), Box<dyn std::error::Error>> {
        write_private(&self.account_key, &KeyPair::generate()?.serialize_pem())?;
        let authority = authority("standalone-ca")?;
        let mut serving = params("kube-apiserver", None);
        let names = ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default.svc"];
        let names: Vec<String> = names.map(str::to_owned).to_vec();
        serving.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut admin = params(ADMIN, Some(MASTERS));
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        for (params, certificate, key_file) in
            [(serving, &self.serving, &self.serving_key), (admin, &self.admin, &self.admin_key)]
        {
            let key = KeyPair::generate()?;
            let signed = params.signed_by(&key, &authority)?;
            write_private(key_file, &key.serialize_pem())?;
            fs::write(certificate, signed.pem())?;
        }
        fs::write(&self.front_proxy_ca, self::authority("standalone-front-proxy-ca")?.pem())?;
        fs::write(&self.ca, authority.pem())?;
        Ok(())
    }
}

/// Writes a file that only its owner may read. The file appears only when it is complete.
pub(crate) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", Uuid::new_v4()));
    let unfinished = file.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    let mut opened = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = opened.write_all(text.as_bytes()).and_then(|()| fs::rename(&unfinished, file));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = params(name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn params(common_name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let (year, month) = (i32::from(today.year()), u8::try_from(today.month()).unwrap_or(1));
    params.not_before = rcgen::date_time_ymd(year - 1, month, 1);
    params.not_after = rcgen::date_time_ymd(year + YEARS, month, 1);
    params
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// The number of servers that start concurrently.
    const SERVERS: usize = 4;

    #[test]
    fn existing_or_incomplete_certificates_are_not_regenerated() {
        let folder = tempfile::tempdir().unwrap();
        let files = Certificates::open(folder.path()).unwrap();
        let ca = fs::read(&files.ca).unwrap();
        assert_eq!(fs::read(Certificates::open(folder.path()).unwrap().ca).unwrap(), ca);
        fs::remove_file(&files.admin).unwrap();
        let error = Certificates::open(folder.path()).unwrap_err();
        assert_eq!(
            error,
            "is not empty and does not contain the certificates of this server; use an empty directory"
        );
    }

    #[test]
    fn certificates_are_generated_in_a_directory_with_imported_objects() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["objects.db", "objects.db-wal", "objects.db-shm", "lock", "ballast"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(Certificates::open(folder.path()).unwrap().are_there());
    }

    /// Servers in different containers may have the same process id, same as these threads.
    #[test]
    fn concurrent_servers_with_one_process_id_generate_one_authority() {
        let folder = tempfile::tempdir().unwrap();
        // A server was killed while it created certificates.
        let left = folder.path().join(format!("{UNFINISHED}{}", std::process::id()));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("ca.crt"), "half").unwrap();
        let together = Barrier::new(SERVERS);
        let authorities: Vec<String> = thread::scope(|scope| {
            let open = || {
                together.wait();
                let files = Certificates::open(folder.path()).unwrap();
                files.service_account_key().unwrap();
                fs::read_to_string(files.ca).unwrap()
            };
            let servers = [(); SERVERS].map(|()| scope.spawn(open));
            servers.map(|server| server.join().unwrap()).into()
        });
        assert!(authorities.iter().all(|authority| *authority == authorities[0]));
        assert!(left.is_dir(), "what another process made is not ours to remove");
        let there = fs::read_dir(folder.path()).unwrap();
        assert_eq!(there.count(), 2);
    }

    #[test]
    fn a_file_is_written_whole_by_servers_of_the_same_process_id() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let left = folder.path().join(format!("kubeconfig.{}.new", std::process::id()));
        fs::write(left, "half").unwrap();
        let together = Barrier::new(SERVERS);
        thread::scope(|scope| {
            for server in 0..SERVERS {
                let (file, together) = (&file, &together);
                scope.spawn(move || {
                    together.wait();
                    write_private(file, &format!("{server}").repeat(100_000)).unwrap();
                });
            }
        });
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, text[..1].repeat(100_000));
    }
}
