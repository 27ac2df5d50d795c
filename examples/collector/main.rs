//! Records objects of a cluster: writes them as YAML files into a directory, from which a server without a cluster can
//! serve them.
//!
//! `cargo run --example collector -- --namespace default --kind pods,deploy --directory recording`, then `cargo run --
//! --standalone --load recording`.

#[path = "../shared/definition.rs"]
mod definition;
mod folder;
mod kinds;
#[path = "../shared/program.rs"]
mod program;
mod record;
mod recording;
mod typed;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use folder::Folder;
use kinds::Kinds;
use record::{Record, SecretValues};

/// Write objects of a cluster into a directory of YAML files
///
/// A server without a cluster serves them again: `farm-operator --standalone --load DIR`.
#[derive(Parser)]
struct Flags {
    /// Write objects of this namespace; without it, of the kubeconfig's
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<String>,

    /// A kind to write, as kubectl names it: pods, deploy, foos.example.com; may be given
    /// several times, and several with commas. Of kinds without a namespace all objects are
    /// written
    #[arg(long, value_name = "KIND", value_delimiter = ',', required_unless_present = "recording")]
    kind: Vec<String>,

    /// Write what this Recording of the namespace says, too. The kind is defined in the cluster if
    /// it is not there
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    recording: Option<String>,

    /// Directory to write into; it is created, or must be empty
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,

    /// Treatment of the values of Secrets
    #[arg(long, value_enum, default_value_t)]
    secret: SecretValues,

    /// Note in this ConfigMap of the namespace what was written; it is made if it is missing
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    note: Option<String>,
}

/// Parses the name of a namespace. It becomes part of a request path, so anything else than a name is rejected.
fn namespace(text: &str) -> Result<String> {
    ensure!(text.len() <= 63 && !text.contains('.'), "a namespace has no such name");
    object_name(text)
}

fn object_name(text: &str) -> Result<String> {
    let is_inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = |part: &str| {
        !part.is_empty()
            && part.bytes().all(is_inside)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    ensure!(text.len() <= 253 && text.split('.').all(is_name), "no object has such a name");
    Ok(text.to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    program::end(tokio::select! {
        ended = run(&flags) => ended,
        signal = program::interrupted() => signal.map_err(Into::into).and_then(|()| bail!("interrupted")),
    })
}

async fn run(flags: &Flags) -> Result<()> {
    program::start_logging()?;
    let named = || format!("--directory {}", flags.directory.display());
    let folder = Folder::open(&flags.directory).with_context(named)?;
    let client = program::connect().await?;
    let default = client.default_namespace().to_owned();
    let namespace = flags.namespace.as_ref().unwrap_or(&default);
    let (mut asked, mut secret) = (flags.kind.clone(), flags.secret);
    if let Some(name) = &flags.recording {
        let recording = recording::read(&client, namespace, name).await;
        let recording = recording.with_context(|| format!("--recording {name}"))?;
        asked.extend(recording.kinds);
        if recording.secret_values == SecretValues::Keep {
            secret = SecretValues::Keep;
        }
    }
    let known = Kinds::discover(&client).await.context("asking the cluster for its kinds")?;
    let mut kinds = Vec::new();
    for asked in &asked {
        let found = known.find(asked).with_context(|| format!("--kind {asked}"))?;
        if !kinds.contains(&found) {
            kinds.push(found);
        }
    }

    // All objects are read before a file is written.
    let mut record = Record::new(client.clone(), namespace, secret);
    if kinds.iter().any(|kind| kind.is_namespaced) {
        record.take_namespace().await.with_context(|| format!("--namespace {namespace}"))?;
    }
    for kind in &kinds {
        let count = record.take(kind).await.with_context(|| format!("--kind {}", kind.name()))?;
        writeln!(io::stdout(), "{count} {}", kind.name())?;
    }
    let certificates = typed::root_certificates(client.clone(), namespace).await;
    let certificates = certificates.context("reading the CA of the cluster")?;

    let files = folder.write(&record.into_objects(), certificates.as_deref());
    writeln!(
        io::stdout(),
        "{} files are in {}",
        files.with_context(named)?,
        flags.directory.display()
    )?;
    if let Some(name) = &flags.note {
        let names: Vec<String> = kinds.iter().map(kinds::Found::name).collect();
        let noted = typed::note(client, namespace, name, &names).await;
        noted.with_context(|| format!("--note {name}"))?;
    }
    Ok(())
}
