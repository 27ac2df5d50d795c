//! A directory of YAML files, one for each object.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;
use serde_json::Value;
use tracing::instrument;
use uuid::Uuid;

use crate::kinds::qualified;
use crate::record::Recorded;

/// The maximum length of a file name without its extension, in bytes. Most file systems allow 255 bytes.
const NAME_LIMIT: usize = 200;
/// The number of bytes that remain of a longer name.
const PREFIX: usize = 150;
/// The file with the CA of the cluster. A server that loads the directory ignores this file.
const CERTIFICATES: &str = "ca.crt";

/// A directory that was empty.
pub struct Folder(PathBuf);

impl Folder {
    /// Checks that a directory is missing or empty. Existing files would be loaded together with the new ones, so a
    /// directory with files is rejected.
    pub fn open(path: &Path) -> Result<Self> {
        match fs::read_dir(path) {
            Ok(mut entries) => ensure!(entries.next().is_none(), "is not empty"),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self(path.to_owned()))
    }

    /// Writes a file for each object. Returns the number of files.
    #[instrument(skip_all, fields(folder = %self.0.display()), err(level = "debug"))]
    pub fn write(&self, objects: &[Recorded], certificates: Option<&str>) -> Result<usize> {
        let mut files = BTreeMap::new();
        for (resource, object) in objects {
            let kind = qualified(&resource.plural, &resource.group);
            let name = file_name(&kind, object.namespace().as_deref(), &object.name_any());
            files.insert(name, yaml(&serde_json::to_value(object)?)?);
        }
        if let Some(certificates) = certificates {
            files.insert(CERTIFICATES.to_owned(), certificates.to_owned());
        }
        fs::create_dir_all(&self.0)?;
        for (name, text) in &files {
            create(&self.0.join(name), text).with_context(|| name.clone())?;
        }
        Ok(files.len())
    }
}

/// Creates a file that only its owner can read. An existing file is left unchanged.
fn create(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

/// Formats an object as YAML, and checks that the YAML parses as the same object.
fn yaml(object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object)?;
    if serde_saphyr::from_str::<Value>(&text).ok().as_ref() == Some(object) {
        return Ok(text);
    }
    // JSON is valid YAML.
    let text = serde_json::to_string_pretty(object)? + "\n";
    match serde_saphyr::from_str::<Value>(&text) {
        Ok(read) if read == *object => Ok(text),
        _ => bail!("an object cannot be written as YAML: {}", object["metadata"]["name"]),
    }
}

/// The file name of an object, unique for each object. The name cannot refer to a file outside of the directory,
/// whatever the name of the object.
fn file_name(kind: &str, namespace: Option<&str>, name: &str) -> String {
    let parts = [Some(kind), namespace, Some(name)];
    let parts: Vec<String> = parts.into_iter().flatten().map(escape).collect();
    let mut name = parts.join("_");
    if name.len() > NAME_LIMIT {
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
        name.truncate(PREFIX);
        // Writing to a String does not fail.
        let _ = write!(name, "_{id}");
    }
    name + ".yaml"
}

/// Escapes a part of a name. Letters that a file system may treat as equal, for example upper-case ones, are escaped
/// too.
fn escape(part: &str) -> String {
    let mut escaped = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => escaped.push(char::from(byte)),
            _ => {
                // Writing to a String does not fail.
                let _ = write!(escaped, "%{byte:02x}");
            }
        }
    }
    escaped
}
