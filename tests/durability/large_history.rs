//! The history of large objects: its size on the disk, and the memory of a process that starts with it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::installation::{Installation, Program};
use crate::llama;

const SIZE: usize = 250_000;
const PATCHES: usize = 600;
const MIB: u64 = 1 << 20;

/// The peak memory of the process, in bytes.
fn most_memory(program: &Program) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", program.process.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kibibytes: u64 = line.split_whitespace().next().context("a number")?.parse()?;
    Ok(kibibytes << 10)
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_patches_of_a_large_object_use_limited_disk_and_memory() -> Result<()> {
    let installation = Installation::new()?;
    let start = || installation.start_with("--store-memory-mib", Path::new("32"));
    let mut program = start().await?;
    let idle = most_memory(&program)?;
    program.llamas.create(&PostParams::default(), &llama("large", 1.0)).await?;
    let mut written = String::new();
    for number in 0..PATCHES {
        written = format!("{number:06}{}", "x".repeat(SIZE));
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"text": written}}}));
        program.llamas.patch("large", &PatchParams::default(), &patch).await?;
    }
    let file = fs::metadata(installation.path().join("data/objects.db"))?.len();
    ensure!(file < 40 * MIB, "{file} bytes for one object");
    program.process.kill();
    let mut program = start().await?;
    let most = most_memory(&program)?;
    ensure!(most < idle + 64 * MIB, "a start took {most} bytes, and {idle} without any objects");
    let kept = program.llamas.get("large").await?;
    ensure!(kept.annotations().get("text") == Some(&written));
    program.process.kill();
    Ok(())
}
