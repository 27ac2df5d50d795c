//! A folder of YAML files, one for each object.

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

/// The name of a file is at most this long, without its end; most file systems take 255 bytes.
const NAME_LIMIT: usize = 200;
/// What is left of a name that is longer.
const PREFIX: usize = 150;
/// The CA of the cluster. A server that loads the folder does not look at it.
const CERTIFICATES: &str = "ca.crt";

/// A folder in which nothing was.
pub struct Folder(PathBuf);

impl Folder {
    /// Looks at a folder that is missing or empty. Files that are there would be
    /// loaded with the new ones, so another one is refused.
    pub fn open(path: &Path) -> Result<Self> {
        match fs::read_dir(path) {
            Ok(mut entries) => ensure!(entries.next().is_none(), "is not empty"),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self(path.to_owned()))
    }

    /// Writes a file for each object; answers with the number of files.
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

/// Makes a file that only its owner reads; one that is there is left alone.
fn create(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

/// What is written must be read as what it was.
fn yaml(object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object)?;
    if serde_saphyr::from_str::<Value>(&text).ok().as_ref() == Some(object) {
        return Ok(text);
    }
    // JSON is YAML too.
    let text = serde_json::to_string_pretty(object)? + "\n";
    match serde_saphyr::from_str::<Value>(&text) {
        Ok(read) if read == *object => Ok(text),
        _ => bail!("an object cannot be written as YAML: {}", object["metadata"]["name"]),
    }
}

/// The name of the file of an object, another one for each object. Nothing in
/// it leads out of the folder, whatever the object is called.
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

/// Letters that file systems may hold for the same are escaped too.
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
