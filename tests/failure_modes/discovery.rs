//! Discovery and OpenAPI of the server, as kube-apiserver publishes them.

use std::path::Path;

use aggregated_apiserver::{ApiServer, Kinds, ServeArgs};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::rest;
use crate::stage::{self, REGISTRATIONS, Stage};
use crate::world::NAMESPACE;

const NEXT: &str = "v1beta.farm.example.com";

/// The merged documents of the cluster contain those of the server, with only its own paths.
pub fn documents_are_merged(stage: &mut Stage) -> Result<()> {
    // If the server was unavailable at first, kube-apiserver retries after a minute.
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

/// A version is registered before the server supports it. Only that version is missing, and no operation waits for it.
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

/// A release adds a version, which is registered at once. A request for it may still reach a replica of the previous
/// release. That replica responds that it is unavailable, so no controller treats llamas as deleted. Two processes are
/// behind one address; the one of the stage does not know the version.
pub fn a_version_that_one_of_two_replicas_serves(stage: &mut Stage) -> Result<()> {
    let replica = NextRelease::start(&stage.world.server_kubeconfig, &[llamas(&["v1beta"])])?;
    stage.switch.lead_to(replica.port);
    let mut spec = stage.api_service()?["spec"].take();
    spec["version"] = "v1beta".into();
    // kube-controller-manager prefers this version, like the version of a new release.
    spec["versionPriority"] = 200.into();
    stage.create(&json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": NEXT}, "spec": spec,
    }))?;
    let new = New { version: "v1beta", kind: "Llama", plural: "llamas" };
    nothing_of_it_is_taken_for_gone(stage, &replica, &new)?;
    stage.kubectl(["delete", "apiservice", NEXT]).run()?;
    stage.switch.lead_to(stage.world.port);
    stage.wait_available()?;
    rest::is_silent(stage)
}

/// Same for a kind that a release adds to an existing version.
pub fn a_kind_that_one_of_two_replicas_serves(stage: &mut Stage) -> Result<()> {
    let sheep = definition("Sheep", "sheep", &["v1"]);
    let replica = NextRelease::start(&stage.world.server_kubeconfig, &[llamas(&[]), sheep])?;
    stage.switch.lead_to(replica.port);
    // This makes kube-apiserver repeat the discovery at once, not after a minute.
    let is_changed = json!({"metadata": {"annotations": {"example.com/release": "next"}}});
    stage.patch_api_services(&is_changed)?;
    let new = New { version: "v1", kind: "Sheep", plural: "sheep" };
    nothing_of_it_is_taken_for_gone(stage, &replica, &new)?;
    stage.switch.lead_to(stage.world.port);
    let is_as_before = json!({"metadata": {"annotations": {"example.com/release": null}}});
    stage.patch_api_services(&is_as_before)?;
    stage.wait_available()?;
    rest::is_silent(stage)
}

/// A kind or version that only the new release serves.
struct New {
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

impl New {
    fn object(&self, namespace: &str, name: &str) -> Value {
        let mut object = stage::llama_of(self.version, namespace, name);
        object["kind"] = self.kind.into();
        object
    }

    fn resource(&self) -> String {
        format!("{}.{}.farm.example.com", self.plural, self.version)
    }

    fn path(&self, place: &str) -> String {
        format!("/apis/farm.example.com/{}/{place}{}", self.version, self.plural)
    }
}

/// Creates objects of a new kind or version through the new replica. Then the garbage collector and the namespace
/// controller query the replica of the previous release. The objects must still exist.
fn nothing_of_it_is_taken_for_gone(
    stage: &mut Stage,
    replica: &NextRelease,
    new: &New,
) -> Result<()> {
    let in_default = new.path("namespaces/default/");
    stage.world.eventually(|| stage.create(&new.object("default", "known")))?;
    // kube-controller-manager knows the kind once it has deleted the dependent of such an object.
    let parent = stage.get(&format!("{in_default}/known"))?;
    stage.create(&rest::owned_by(&parent, "default", "of-known"))?;
    stage.kubectl(["delete", &new.resource(), "known"]).run()?;
    stage.world.eventually(|| {
        let secrets = rest::secrets(stage, "default")?;
        ensure!(secrets.is_empty(), "not collected: {secrets:?}");
        Ok(())
    })?;
    // One object is in a namespace that will be deleted, and another one owns a Secret.
    let there = new.object("between", "shaun");
    let parent = new.object("default", "parent");
    stage.create(&json!([stage::namespace("between"), there, parent]))?;
    let parent = stage.get(&format!("{in_default}/parent"))?;
    // From now on, requests reach the replica of the previous release.
    stage.switch.lead_to(stage.world.port);
    stage.create(&rest::owned_by(&parent, "default", "of-parent"))?;
    rest::delete_namespace(stage, "between")?;
    let failure = "NamespaceDeletionContentFailure";
    let is_held = rest::is_held_or_gone(stage, "between", failure, new.version)?;
    let secrets = rest::secrets(stage, "default")?;
    ensure!(secrets == ["of-parent"], "its owner was taken for gone: {secrets:?}");
    // Now requests reach only the replica of this release.
    stage.switch.lead_to(replica.port);
    rest::is_gone(stage, "between")?;
    // Without discovery of the kind, the controller has deleted the namespace without its objects.
    if !is_held {
        let remains = ["delete", &new.resource(), "-n", "between", "shaun"];
        stage.world.eventually(|| stage.kubectl(remains).run())?;
    }
    stage.world.eventually(|| {
        let left = stage.get(&new.path(""))?;
        let items = left["items"].as_array().context("no list")?;
        let is_between = |object: &&Value| object["metadata"]["namespace"] == "between";
        ensure!(items.iter().find(is_between).is_none(), "it was left behind: {left}");
        Ok(())
    })?;
    let secrets = rest::secrets(stage, "default")?;
    ensure!(secrets == ["of-parent"], "its owner was taken for gone: {secrets:?}");
    stage.kubectl(["delete", "secret", "of-parent"]).run()?;
    Ok(())
}

/// The definition of a kind of the server's group. Its first version is the storage version.
fn definition(kind: &str, plural: &str, versions: &[&str]) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |(place, name): (usize, &&str)| {
        json!({"name": name, "served": true, "storage": place == 0,
            "schema": {"openAPIV3Schema": schema}})
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.farm.example.com")},
        "spec": {
            "group": "farm.example.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": versions,
        },
    })
}

fn llamas(new_versions: &[&str]) -> Value {
    definition("Llama", "llamas", &[new_versions, &["v1", "v1alpha"]].concat())
}

/// A replica of a release that adds something.
struct NextRelease {
    port: u16,
    // Stops the server when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

impl NextRelease {
    fn start(kubeconfig: &Path, definitions: &[Value]) -> Result<Self> {
        let mut kinds = Kinds::new();
        for definition in definitions {
            kinds = kinds.crds_from_yaml(&definition.to_string())?;
        }
        let mut args = ServeArgs::default();
        args.bind_address = [127, 0, 0, 1].into();
        args.secure_port = 0;
        args.kubeconfig = Some(kubeconfig.to_owned());
        args.namespace = Some(NAMESPACE.to_owned());
        let runtime = tokio::runtime::Runtime::new()?;
        let port = runtime.block_on(async {
            let server = ApiServer::new(farm_operator::NAME, kinds);
            let running = server.bind(&args).await?.start().await?;
            let port = running.address().port();
            tokio::spawn(async move {
                let _running = running;
                std::future::pending::<()>().await;
            });
            anyhow::Ok(port)
        })?;
        Ok(Self { port, _runtime: runtime })
    }
}
