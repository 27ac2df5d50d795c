//! What kube-apiserver tells of us to everybody: discovery and OpenAPI.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::rest;
use crate::stage::{REGISTRATIONS, Stage};

const NEXT: &str = "v1beta.farm.example.com";

/// The documents of the whole cluster hold ours, and of ours only our own paths.
pub fn documents_are_merged(stage: &mut Stage) -> Result<()> {
    // kube-apiserver asks again after a minute, if it found us away at first.
    let merged = stage.world.eventually(|| {
        let merged = stage.kubectl(["get", "--raw", "/openapi/v2"]).run()?;
        let merged: Value = serde_json::from_str(&merged)?;
        ensure!(merged["paths"]["/apis/farm.example.com/v1alpha/llamas"].is_object());
        Ok(merged)
    })?;
    ensure!(merged["paths"]["/apis/apps/v1/deployments"].is_object(), "no Deployments");
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let merged = stage.ask("/openapi/v2", protobuf)?;
    let path = b"/apis/farm.example.com/v1alpha/llamas";
    let holds_ours = merged.body().windows(path.len()).any(|window| window == path);
    ensure!(merged.status().is_success() && holds_ours, "in protobuf: {}", merged.status());
    let version = "/openapi/v3/apis/farm.example.com/v1alpha";
    let ours: Value = serde_json::from_str(&stage.kubectl(["get", "--raw", version]).run()?)?;
    let paths = ours["paths"].as_object().context("no paths")?;
    let is_ours = |path: &String| path.starts_with("/apis/farm.example.com/v1alpha/");
    ensure!(!paths.is_empty() && paths.keys().all(is_ours), "{:?}", paths.keys());
    stage.kubectl(["explain", "llama.spec.weight"]).run()?;
    Ok(())
}

/// A version is registered before the server knows it: that version alone is missing, and nobody
/// waits for it.
pub fn a_version_that_nobody_serves(stage: &mut Stage) -> Result<()> {
    let mut spec = stage.api_service()?["spec"].take();
    spec["version"] = "v1beta".into();
    stage.create(&json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": NEXT}, "spec": spec,
    }))?;
    stage.world.eventually(|| {
        let next = stage.get(&format!("{REGISTRATIONS}/{NEXT}"))?;
        let message = next["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("/apis/farm.example.com/v1beta: 404"), "{next}");
        Ok(())
    })?;
    let undisturbed = rest::is_undisturbed(stage, "next").context("while a version is missing");
    ensure!(stage.condition()?["status"] == "True");
    stage.kubectl(["delete", "apiservice", NEXT]).run()?;
    undisturbed?;
    rest::is_silent(stage)
}
