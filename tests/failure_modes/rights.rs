//! Permissions that are missing in an installation.

use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use http::StatusCode;
use serde_json::{Value, json};

use crate::rest::{self, Work};
use crate::stage::{Stage, llama};
use crate::world::manifest_file;

const FARM_PODS: &str = "/apis/farm.example.com/v1alpha/namespaces/default/farmpods";
const READER: &str = "farm-operator:extension-apiserver-authentication-reader";
const DELEGATOR: &str = "farm-operator:system:auth-delegator";

/// Creates the object of the manifests with this name again.
fn restore(stage: &Stage, kind: &str, name: &str) -> Result<()> {
    let manifest = std::fs::read_to_string(manifest_file())?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest)?;
    let named = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let object = objects.iter().find(named).context("it is not in the manifests")?;
    stage.create(object)
}

/// The server may not read the authentication ConfigMap. It reports which permission is missing, is not ready, and
/// keeps running.
pub fn the_role_binding_is_missing(stage: &mut Stage) -> Result<()> {
    stage.kubectl(["delete", "rolebinding", READER, "-n", "kube-system"]).run()?;
    stage.world.restart_server()?;
    stage.wait_unavailable("bad status from https://localhost:")?;
    stage.world.eventually(|| {
        let log = stage.world.server.printed();
        let hint = "a RoleBinding to the Role extension-apiserver-authentication-reader in its namespace permits it";
        ensure!(log.contains(hint), "{log}");
        Ok(())
    })?;
    let work = Work::give(stage, "unbound")?;
    work.is_collected_and_counted(stage)?;
    stage.world.server.ensure_running()?;
    restore(stage, "RoleBinding", READER)?;
    stage.wait_available()?;
    work.delete_namespace(stage)?;
    work.finish(stage)?;
    rest::is_silent(stage)
}

/// The server may not create access reviews. It rejects its callers, so the deletion of every namespace waits, but
/// discovery works.
pub fn nobody_can_be_authorized(stage: &mut Stage) -> Result<()> {
    let herd = rest::herd(stage, "unasked")?;
    stage.kubectl(["delete", "clusterrolebinding", DELEGATOR]).run()?;
    stage.world.restart_server()?;
    stage.wait_available()?;
    let work = Work::give(stage, "unasked")?;
    rest::is_silent(stage)?;
    let path = "/apis/farm.example.com/v1alpha/namespaces/default/llamas";
    let refused = stage.world.kubectl_as("jane", ["get", "--raw", path])?.output()?;
    ensure!(refused.errors.contains("Forbidden"), "{refused:?}");
    rest::delete_namespace(stage, &herd)?;
    work.is_collected_and_counted(stage)?;
    work.delete_namespace(stage)?;
    let failure = "NamespaceDeletionContentFailure";
    rest::is_held(stage, &herd, failure, "the cluster did not respond to a SubjectAccessReview")?;
    work.waits(stage, failure, "the cluster did not respond to a SubjectAccessReview")?;
    restore(stage, "ClusterRoleBinding", DELEGATOR)?;
    rest::is_gone(stage, &herd)?;
    work.finish(stage)
}

/// The server may not read its sources. It reports which sources are missing, and serves the kinds that need none of
/// them.
pub fn nothing_is_in_view(stage: &mut Stage) -> Result<()> {
    stage.kubectl(["delete", "clusterrolebinding", "farm-operator"]).run()?;
    stage.world.restart_server()?;
    stage.wait_available()?;
    let refused = stage.ask(FARM_PODS, "application/json")?;
    let said = String::from_utf8_lossy(refused.body());
    let missing = "waiting for a list of pods, replicasets.apps, jobs.batch";
    ensure!(refused.status() == StatusCode::TOO_MANY_REQUESTS && said.contains(missing), "{said}");
    stage.kubectl(["get", "llama", "dolly"]).run()?;
    // The server waits until it knows whether the namespace exists, and does not guess.
    let create = stage.kubectl(["create", "-f", "-"]);
    let create = create.input(&llama("default", "blind").to_string());
    let create = thread::spawn(move || create.output());
    let work = Work::give(stage, "blind")?;
    work.delete_namespace(stage)?;
    rest::is_silent(stage)?;
    work.finish(stage)?;
    let refused = create.join().map_err(|_| anyhow!("kubectl panicked"))??;
    ensure!(refused.errors.contains("not yet ready to handle request"), "{refused:?}");
    let direct = stage.world.directly("blind", &json!({"token": "jane-token"}))?;
    let ready = stage.world.control_plane.kubectl_as(&direct, ["get", "--raw", "/readyz?verbose"]);
    let ready = ready.run()?;
    ensure!(ready.contains("[-]source-pods failed"), "{ready}");
    restore(stage, "ClusterRoleBinding", "farm-operator")?;
    stage.world.eventually(|| stage.get(FARM_PODS))?;
    stage.world.deploy("seen-again", 1)?;
    stage.kubectl(["delete", "deployment", "seen-again"]).run()?;
    Ok(())
}

/// The server may not read the configurations of webhooks: it refuses writes, and names the reason. The last known
/// configurations stay in force if the permission is removed later.
pub fn webhooks_are_unknown(stage: &mut Stage) -> Result<()> {
    let role = ["get", "clusterrole", "farm-operator", "-o", "json"];
    let whole: Value = serde_json::from_str(&stage.kubectl(role).run()?)?;
    let mut role = whole.clone();
    let rules = role["rules"].as_array_mut().context("the role has no rules")?;
    rules.retain(|rule| rule["apiGroups"] != json!(["admissionregistration.k8s.io"]));
    let replace = |stage: &Stage, role: &Value| {
        let mut role = role.clone();
        role["metadata"]["resourceVersion"] = Value::Null;
        stage.kubectl(["replace", "-f", "-"]).input(&role.to_string()).run()
    };
    replace(stage, &role)?;
    stage.create(&llama("default", "known"))?;
    stage.world.restart_server()?;
    stage.wait_available()?;
    let refused =
        stage.kubectl(["create", "-f", "-"]).input(&llama("default", "unknown").to_string());
    let refused = refused.output()?;
    let expected = "the webhooks of the cluster are unknown: mutatingwebhookconfigurations.admissionregistration.k8s.io cannot be listed";
    ensure!(refused.errors.contains(expected), "{refused:?}");
    let direct = stage.world.directly("unknown", &json!({"token": "jane-token"}))?;
    let ready = stage.world.control_plane.kubectl_as(&direct, ["get", "--raw", "/readyz?verbose"]);
    let ready = ready.run()?;
    let source = "source-validatingwebhookconfigurations.admissionregistration.k8s.io";
    ensure!(ready.contains(&format!("[-]{source} failed")), "{ready}");
    stage.world.restart_server_with(&["--webhook-configurations-failure-policy=Ignore"])?;
    stage.wait_available()?;
    stage.create(&llama("default", "admitted"))?;
    replace(stage, &whole)?;
    stage.world.restart_server()?;
    stage.wait_available()?;
    stage.create(&llama("default", "known-again"))
}
