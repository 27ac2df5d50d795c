//! Encryption of objects on the disk: a key is added, it is replaced by another one, and a key is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use farm_operator::v1alpha::Llama;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};

use crate::installation::Installation;
use crate::llama;

const SECRET: &str = "what nobody may read on the disk";
const FLAG: &str = "--encryption-provider-config";

/// A configuration that encrypts with the first of these providers.
fn configuration(installation: &Installation, name: &str, providers: &[&str]) -> Result<PathBuf> {
    let file = installation.path().join(name);
    let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [\"*.farm.example.com\"]\n  providers:\n".to_owned();
    for provider in providers {
        text += &format!("  - {provider}\n");
    }
    fs::write(&file, text)?;
    Ok(file)
}

fn run(installation: &Installation, command: &str, configuration: Option<&Path>) -> Result<Output> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    program.arg(command).arg("--data-dir").arg(installation.path().join("data"));
    if let Some(configuration) = configuration {
        program.arg(FLAG).arg(configuration);
    }
    Ok(program.env("RUST_BACKTRACE", "0").output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The error message of a program that does not start.
fn refused(mut command: Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    Ok(said(&output))
}

fn is_shown(installation: &Installation) -> Result<bool> {
    for file in fs::read_dir(installation.path().join("data"))? {
        let content = fs::read(file?.path())?;
        if content.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_objects_can_be_read_only_with_their_key() -> Result<()> {
    const FIRST: &str =
        "aesgcm: {keys: [{name: first, secret: lx9E5wQKYA21UFhcEb6lSbyJB3RcnKXuzIWx6VHXtZM=}]}";
    const SECOND: &str =
        "secretbox: {keys: [{name: second, secret: JvhWfyVpGCKUw/pbn5yyJwtVTu9ii0wUnPgqQoiP9K4=}]}";
    let installation = Installation::new()?;
    let secret = |name: &str| {
        let mut llama = llama(name, 1.0);
        llama.annotations_mut().insert("text".to_owned(), SECRET.to_owned());
        llama
    };
    // The store contains the sample llama from the start.
    let mut program = installation.start().await?;
    program.llamas.create(&PostParams::default(), &secret("plain")).await?;
    program.process.terminate()?;
    ensure!(program.process.wait()?.success());
    ensure!(is_shown(&installation)?);

    // Encryption is enabled; unencrypted objects remain so until they are rewritten.
    let first = configuration(&installation, "first.yaml", &[FIRST, "identity: {}"])?;
    let mut program = installation.start_with(FLAG, &first).await?;
    let before = program.llamas.create(&PostParams::default(), &secret("encrypted")).await?;
    let in_use = run(&installation, "migrate", Some(&first))?;
    ensure!(said(&in_use).contains("is in use by another process"), "{in_use:?}");
    program.process.kill();
    let migrated = run(&installation, "migrate", Some(&first))?;
    ensure!(said(&migrated) == "written again: 2 of 3\n", "{migrated:?}");
    ensure!(!is_shown(&installation)?);

    // Another key replaces the first.
    let second = configuration(&installation, "second.yaml", &[SECOND, FIRST])?;
    let migrated = run(&installation, "migrate", Some(&second))?;
    ensure!(said(&migrated) == "written again: 3 of 3\n", "{migrated:?}");
    let last = configuration(&installation, "last.yaml", &[SECOND])?;
    let mut program = installation.start_with(FLAG, &last).await?;
    let llamas = program.llamas.list(&ListParams::default()).await?.items;
    let has_text =
        |llama: &&Llama| llama.annotations().get("text").is_some_and(|text| text == SECRET);
    ensure!(llamas.len() == 3 && llamas.iter().filter(has_text).count() == 2);
    let kept = program.llamas.get("encrypted").await?;
    ensure!(kept.resource_version() == before.resource_version(), "it is what it was");
    program.process.terminate()?;
    ensure!(program.process.wait()?.success());

    // A missing key or a wrong file is reported.
    let locked = "cannot be decrypted (--encryption-provider-config): it is encrypted with the key \"second\" of secretbox, which is not configured for it";
    let without = refused(installation.command())?;
    ensure!(without.contains(locked) && without.contains("--data-dir"), "{without}");
    let mut with_first = installation.command();
    with_first.arg(FLAG).arg(&first);
    let with_first = refused(with_first)?;
    ensure!(with_first.contains(locked), "{with_first}");
    for command in ["export", "migrate"] {
        let output = run(&installation, command, None)?;
        ensure!(output.status.code() == Some(1) && said(&output).contains(locked), "{output:?}");
        let output = run(&installation, command, Some(Path::new("/nowhere")))?;
        ensure!(
            said(&output).contains("--encryption-provider-config /nowhere: No such file"),
            "{output:?}"
        );
    }
    let exported = run(&installation, "export", Some(&last))?;
    ensure!(exported.status.success() && said(&exported) == "exported 3 objects\n", "{exported:?}");
    let mut in_memory = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    in_memory.args(["--standalone", "--secure-port", "0", FLAG]).arg(&last);
    in_memory.env("RUST_BACKTRACE", "0").env_remove("DATA_DIR");
    let in_memory = refused(in_memory)?;
    ensure!(in_memory.contains("objects are kept in memory alone"), "{in_memory}");
    // A backup needs no key and contains no plain text.
    let copy = installation.path().join("copy");
    let output = Command::new(env!("CARGO_BIN_EXE_farm-operator"))
        .arg("backup")
        .arg(&copy)
        .arg("--data-dir")
        .arg(installation.path().join("data"))
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(!fs::read(&copy)?.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
    Ok(())
}
