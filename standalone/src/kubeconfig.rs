//! The kubeconfig of the administrator.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::certificates::{Certificates, write_private};

/// What the name of the cluster is in it, by which it is known to be ours.
const NAME: &str = "standalone";

/// Whether a kubeconfig may be written here: one of ours may be overwritten,
/// another may not.
///
/// # Errors
/// Why not.
pub(crate) fn check(file: &Path) -> Result<(), String> {
    match fs::read_to_string(file) {
        Ok(text) if is_ours(&text) => Ok(()),
        Ok(_) => Err("exists, and is another kubeconfig".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes a kubeconfig for a server at this address.
///
/// # Errors
/// Why not.
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
    // In the order and the form in which kubectl writes it.
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
    write_private(file, &text).map_err(|error| error.to_string())
}

fn is_ours(text: &str) -> bool {
    let config: serde_json::Value = serde_saphyr::from_str(text).unwrap_or_default();
    config["kind"] == "Config"
        && config["current-context"] == NAME
        && config["clusters"][0]["name"] == NAME
}
