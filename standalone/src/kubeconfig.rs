//! The kubeconfig of the administrator.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::json;

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
        Ok::<_, String>(serde_json::to_value(ByteString(bytes)).unwrap_or_default())
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": data(&certificates.ca)?,
        }}],
        "users": [{"name": NAME, "user": {
            "client-certificate-data": data(&certificates.admin)?,
            "client-key-data": data(&certificates.admin_key)?,
        }}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
    });
    let text = serde_saphyr::to_string(&config).map_err(|error| error.to_string())?;
    write_private(file, &text).map_err(|error| error.to_string())
}

fn is_ours(text: &str) -> bool {
    let config: serde_json::Value = serde_saphyr::from_str(text).unwrap_or_default();
    config["kind"] == "Config"
        && config["current-context"] == NAME
        && config["clusters"][0]["name"] == NAME
}
