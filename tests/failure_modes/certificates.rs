//! Serving certificates that are lost, wrong, or exchanged.

use std::fs;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use test_cluster::Authority;

use crate::rest;
use crate::stage::Stage;
use crate::traffic::Traffic;
use crate::world::NAMESPACE;

const SECRET: &str = "farm-operator-serving-certificate";

/// The Secret is deleted by hand, and the server creates it again with another CA. No request fails, because clients
/// trust the CA before it is used. Without permission to create the Secret, the server continues to serve, and reports
/// the missing permission.
pub fn the_secret_is_lost(stage: &mut Stage) -> Result<()> {
    let before = ca_bundle(stage)?;
    let traffic = Traffic::start(stage);
    let patch =
        |rules| ["patch", "role/farm-operator", "-n", NAMESPACE, "--type=json", "-p", rules];
    let rules = r#"[{"op": "remove", "path": "/rules/1"}]"#;
    stage.kubectl(patch(rules)).run()?;
    stage.kubectl(["delete", "secret", SECRET, "-n", NAMESPACE]).run()?;
    stage.world.eventually(|| {
        let log = stage.world.server.printed();
        let refused = "cannot create resource \"secrets\" in API group \"\" in the namespace \"farm-operator\"; kubectl -n farm-operator create secret generic";
        ensure!(log.replace("\\\"", "\"").contains(refused), "{log}");
        Ok(())
    })?;
    rest::is_silent(stage)?;
    ensure!(ca_bundle(stage)? == before, "the APIService was changed");
    let rules = r#"[{"op": "add", "path": "/rules/1", "value": {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}}]"#;
    stage.kubectl(patch(rules)).run()?;
    let after = stage.world.eventually(|| {
        let after = ca_bundle(stage)?;
        ensure!(after != before, "there is no other CA");
        Ok(after)
    })?;
    stage.kubectl(["get", "secret", SECRET, "-n", NAMESPACE]).run()?;
    let known = after.strip_suffix(&before).context("the CA that is served is not known")?;
    rest::is_undisturbed(stage, "secret")?;
    // Finally, clients that trust only the new CA can connect.
    stage.world.eventually(|| is_served(stage, known))?;
    rest::is_silent(stage)?;
    traffic.end().context("while the CA was exchanged")?;
    // A process that starts without the Secret creates it too.
    stage.world.server.kill();
    stage.kubectl(["delete", "secret", SECRET, "-n", NAMESPACE]).run()?;
    stage.world.restart_server()?;
    stage.wait_available()?;
    stage.kubectl(["get", "secret", SECRET, "-n", NAMESPACE]).run()?;
    stage.lead_through_the_switch()?;
    rest::is_silent(stage)
}

/// The CAs that kube-apiserver trusts for this server.
fn ca_bundle(stage: &Stage) -> Result<String> {
    let api_service = stage.api_service()?;
    let bundle = api_service["spec"]["caBundle"].as_str().context("no caBundle")?;
    Ok(String::from_utf8(STANDARD.decode(bundle)?)?)
}

fn is_served(stage: &Stage, ca: &str) -> Result<()> {
    let kubeconfig =
        stage.world.directly_by(&STANDARD.encode(ca), "one-ca", &json!({"token": "jane-token"}))?;
    stage.world.control_plane.kubectl_as(&kubeconfig, ["get", "--raw", "/livez"]).run()?;
    Ok(())
}

/// The files have no certificate for the name of the Service, then an expired one, then a valid one, then an incomplete
/// one.
pub fn files_are_wrong_and_mended(stage: &mut Stage) -> Result<()> {
    let folder = stage.fresh_folder("serving-files");
    fs::create_dir(&folder)?;
    let authority = Authority::new("serving-ca", &folder.join("ca.crt"))?;
    let files = authority.server(&folder, "serving", &["other.example.com"])?;
    // The running server would set its own CA.
    stage.world.server.kill();
    let flag = |name: &str, file: &std::path::Path| format!("--{name}={}", file.display());
    let arguments =
        [flag("tls-cert-file", &files.certificate), flag("tls-private-key-file", &files.key)];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (port, process) = stage.world.start_another("serving-files", &arguments)?;
    let ca = STANDARD.encode(fs::read(&authority.file)?);
    stage.patch_api_services(&json!({"spec": {"caBundle": ca}}))?;
    stage.switch.lead_to(port);
    stage.wait_unavailable(
        "x509: certificate is valid for other.example.com, not farm-operator.farm-operator.svc",
    )?;
    let log = process.printed();
    ensure!(log.contains("it is not valid for farm-operator.farm-operator.svc"), "{log}");
    authority.expired_server(&folder, "serving", &["farm-operator.farm-operator.svc"])?;
    stage.wait_unavailable("x509: certificate has expired or is not yet valid")?;
    let log = process.printed();
    ensure!(log.contains("has expired at"), "{log}");
    // A certificate manager renews certificates in the same way.
    authority.server(&folder, "serving", &["farm-operator.farm-operator.svc"])?;
    stage.wait_available().with_context(|| process.printed())?;
    rest::is_silent(stage)?;
    let traffic = Traffic::start(stage);
    let key = fs::read(&files.key)?;
    fs::write(&files.key, &key[..key.len() / 2])?;
    stage.world.eventually(|| {
        let log = process.printed();
        ensure!(log.contains("the last valid one stays in use"), "{log}");
        Ok(())
    })?;
    authority.server(&folder, "serving", &["farm-operator.farm-operator.svc"])?;
    stage.world.eventually(|| {
        let log = process.printed();
        ensure!(log.matches("reloaded the serving certificate").count() == 3, "{log}");
        Ok(())
    })?;
    rest::is_silent(stage)?;
    traffic.end().context("while files were exchanged")?;
    drop(process);
    stage.switch.lead_to(stage.world.port);
    stage.world.restart_server()?;
    stage.wait_available()?;
    rest::is_undisturbed(stage, "files")
}
