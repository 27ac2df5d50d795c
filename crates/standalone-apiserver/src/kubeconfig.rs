//! The kubeconfig of the administrator.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::certificates::{Certificates, write_private};

/// The name of the cluster, which identifies a kubeconfig of this program.
const NAME: &str = "standalone";

/// Checks whether a kubeconfig may be written here. A file of this program may be overwritten, another file may not.
///
/// # Errors
/// The reason for which it may not be written.
pub(crate) fn check(file: &Path) -> Result<(), String> {
    match fs::read_to_string(file) {
        Ok(text) if is_ours(&text) => Ok(()),
        Ok(_) => Err("exists and was not written by this server; use another file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes a kubeconfig for a server at this address, unless the file is already the same. On a full disk, a file of
/// this program is overwritten in place, which needs no space.
///
/// # Errors
/// The reason for which it cannot be written.
pub(crate) fn write(
    file: &Path,
    address: SocketAddr,
    certificates: &Certificates,
) -> Result<(), String> {
    let data = |file: &Path| {
        let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok::<_, String>(STANDARD.encode(bytes))
    };
    let ca = data(&certificates.ca)?;
    let (certificate, key) = (data(&certificates.admin)?, data(&certificates.admin_key)?);
    // The order and the format are those of kubectl.
    let text = format!(
        "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {ca}
    server: https://{address}
  name: {NAME}
contexts:
- context:
    cluster: {NAME}
    user: {NAME}
  name: {NAME}
current-context: {NAME}
kind: Config
users:
- name: {NAME}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
    );
    let before = fs::read_to_string(file).unwrap_or_default();
    if before == text {
        return Ok(());
    }
    let written = write_private(file, &text).or_else(|error| match is_ours(&before) {
        true => overwrite(file, &text),
        false => Err(error),
    });
    written.map_err(|error| error.to_string())
}

fn overwrite(file: &Path, text: &str) -> io::Result<()> {
    let mut opened = fs::OpenOptions::new().write(true).open(file)?;
    opened.write_all(text.as_bytes())?;
    opened.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))
}

fn is_ours(text: &str) -> bool {
    let config: serde_json::Value = serde_saphyr::from_str(text).unwrap_or_default();
    config["kind"] == "Config"
        && config["current-context"] == NAME
        && config["clusters"][0]["name"] == NAME
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn an_unchanged_kubeconfig_is_not_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::open(&folder.path().join("data")).unwrap();
        let file = folder.path().join("kubeconfig");
        let write = |port: u16| {
            write(&file, SocketAddr::from(([127, 0, 0, 1], port)), &certificates).unwrap();
            (fs::metadata(&file).unwrap().ino(), fs::read_to_string(&file).unwrap())
        };
        let first = write(6443);
        assert_eq!(write(6443), first);
        let other = write(644);
        assert_ne!(other.0, first.0);
        overwrite(&file, &first.1).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), first.1);
        overwrite(&file, &other.1).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), other.1);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
