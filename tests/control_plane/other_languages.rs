//! Clients in other languages, which most controllers and scripts use.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use test_cluster::{Missing, Programs};

use crate::llamas::llama;
use crate::world::{Following, World};

const RESOURCE: [&str; 3] = ["farm.example.com", "v1alpha", "llamas"];

/// The reason why client-go's informer cannot run here.
pub fn informer_is_missing() -> Option<&'static str> {
    Programs::informer().is_err_and(|error| error.is::<Missing>()).then_some("no go")
}

/// The reason why Python's client cannot run here.
pub fn python_is_missing() -> Option<&'static str> {
    let imported = Command::new(python()).args(["-c", "import kubernetes"]).output();
    let is_there = imported.is_ok_and(|output| output.status.success());
    (!is_there).then_some("no Python with the package kubernetes")
}

/// `$PYTHON`, for example of a virtual environment that is not active.
fn python() -> PathBuf {
    std::env::var_os("PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}

pub fn an_informer_lists_and_watches(world: &mut World) -> Result<()> {
    inform(world, false)
}

pub fn an_informer_streams(world: &mut World) -> Result<()> {
    inform(world, true)
}

fn inform(world: &mut World, streams: bool) -> Result<()> {
    let mut command = Command::new(Programs::informer()?);
    command.arg(world.control_plane.kubeconfig()).args(RESOURCE);
    command.env("KUBE_FEATURE_WatchListClient", streams.to_string());
    let mut informer = Following::run(command)?;
    // The first request shows whether the informer uses a streaming list.
    let request = informer.wait_for(&["request"])?;
    ensure!(request.contains("sendInitialEvents=true") == streams, "{request}");
    informer.wait_for(&["added", "default/dolly"])?;
    informer.wait_for(&["synced 1"])?;
    world.kubectl(["create", "-f", "-"]).input(&llama("seen")).run()?;
    informer.wait_for(&["added", "default/seen"])?;
    world.kubectl(["delete", "llama", "seen"]).run()?;
    informer.wait_for(&["deleted", "default/seen"])?;
    // If a killed server loses objects, informers receive their deletion.
    world.kubectl(["create", "-f", "-"]).input(&llama("forgotten")).run()?;
    informer.wait_for(&["added", "default/forgotten"])?;
    world.restart_server()?;
    informer.wait_for(&["deleted", "default/forgotten"])?;
    world.kubectl(["create", "-f", "-"]).input(&llama("after")).run()?;
    informer.wait_for(&["added", "default/after"])?;
    world.kubectl(["delete", "llama", "after"]).run()?;
    informer.wait_for(&["deleted", "default/after"])?;
    Ok(())
}

pub fn python_lists_and_watches(world: &mut World) -> Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/control_plane/follow.py");
    let mut command = Command::new(python());
    command.arg(script).arg(world.control_plane.kubeconfig()).args(RESOURCE);
    let mut python = Following::run(command)?;
    python.wait_for(&["listed 1"])?;
    world.kubectl(["create", "-f", "-"]).input(&llama("shaun")).run()?;
    python.wait_for(&["ADDED", "default/shaun"])?;
    world.kubectl(["delete", "llama", "shaun"]).run()?;
    python.wait_for(&["DELETED", "default/shaun"])?;
    Ok(())
}
