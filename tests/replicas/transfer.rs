//! Moves objects from a directory to etcd and back, and checks that they are equal.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use test_cluster::Etcd;

use crate::installation::Installation;
use crate::llama;

/// Runs the program with this standard input.
fn run(arguments: &[&str], input: &str) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
    command.args(arguments).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("an input")?;
    // The program may have ended without reading the input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Ok(child.wait_with_output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_move_between_stores() -> Result<()> {
    let Some(etcd) = Etcd::start_unless_missing(1)? else { return Ok(()) };
    let installation = Installation::new(etcd.urls())?;
    let replica = installation.start(&[]).await?;
    for (name, weight) in [("a", 1.0), ("b", 2.0)] {
        replica.llamas.create(&PostParams::default(), &llama(name, weight)).await?;
    }
    let before = replica.llamas.list(&ListParams::default()).await?.items;
    let servers = etcd.urls().join(",");
    let exported = run(&["export", "--etcd-servers", &servers], "")?;
    ensure!(exported.status.success(), "{}", said(&exported));
    ensure!(said(&exported) == "exported 3 objects\n", "{}", said(&exported));
    let lines = String::from_utf8(exported.stdout)?;

    let folder = installation.path().join("data");
    let folder = folder.to_str().context("a name")?;
    let imported = run(&["import", "--data-dir", folder], &lines)?;
    let expected = "imported 3 objects; 0 with the same names existed already\n";
    ensure!(said(&imported) == expected, "{}", said(&imported));
    let again = run(&["import", "--data-dir", folder], &lines)?;
    let expected = "imported 0 objects; 3 with the same names existed already\n";
    ensure!(said(&again) == expected, "{}", said(&again));
    let from_folder = run(&["export", "--data-dir", folder], "")?;
    ensure!(from_folder.stdout == lines.as_bytes(), "{}", said(&from_folder));

    // Another replica with another prefix has the objects, with their uids and managed fields.
    let prefix = "/moved";
    let import = ["import", "--etcd-servers", &servers, "--etcd-prefix", prefix];
    let moved = run(&import, &lines)?;
    ensure!(moved.status.success(), "{}", said(&moved));
    let other = installation.start(&["--etcd-prefix", prefix]).await?;
    let after = other.llamas.list(&ListParams::default()).await?.items;
    ensure!(after.len() == before.len(), "{after:?}");
    for (before, after) in before.iter().zip(&after) {
        ensure!(before.uid() == after.uid() && before.spec == after.spec, "{before:?} {after:?}");
        ensure!(before.managed_fields() == after.managed_fields(), "{after:?}");
    }

    // Invalid lines change nothing, and the error contains their position.
    let first: Value = serde_json::from_str(lines.lines().next().context("a line")?)?;
    let nameless = json!({"collection": "llamas.farm.example.com", "object": {}}).to_string();
    for wrong in ["nonsense", "{}", &nameless] {
        let text = format!("{first}\n{wrong}\n");
        let refused = run(&import, &text)?;
        ensure!(refused.status.code() == Some(1), "{wrong}");
        ensure!(said(&refused).contains("line 2 cannot be imported"), "{}", said(&refused));
    }
    let nowhere = run(&["export"], "")?;
    ensure!(said(&nowhere).contains("--data-dir"), "{}", said(&nowhere));
    Ok(())
}
