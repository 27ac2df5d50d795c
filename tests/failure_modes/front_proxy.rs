//! Authentication failures of kube-apiserver, and changes of its certificates.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_cluster::Authority;

use crate::direct::ask;
use crate::rest;
use crate::stage::Stage;
use crate::traffic::Traffic;

const CONFIG_MAP: &str = "extension-apiserver-authentication";
const MASTER: [(&str, &str); 2] =
    [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];

/// The authentication ConfigMap is damaged, then deleted. The last valid configuration stays in use.
pub fn the_config_map_is_lost(stage: &mut Stage) -> Result<()> {
    let traffic = Traffic::start(stage);
    let damage = json!({"data": {"requestheader-allowed-names": "everybody"}}).to_string();
    stage.kubectl(["patch", "configmap", CONFIG_MAP, "-n", "kube-system", "-p", &damage]).run()?;
    stage.world.eventually(|| {
        let log = stage.world.server.printed();
        ensure!(log.contains("its last valid value stays in use"), "{log}");
        Ok(())
    })?;
    stage.kubectl(["delete", "configmap", CONFIG_MAP, "-n", "kube-system"]).run()?;
    stage.world.eventually(|| {
        let log = stage.world.server.printed();
        ensure!(log.contains("ConfigMap deleted; its last value stays in use"), "{log}");
        Ok(())
    })?;
    let proxy = stage.world.control_plane.front_proxy();
    let (status, body) = ask(&stage.world, &MASTER, Some(proxy))?;
    ensure!(status == 200, "{body}");
    // kube-apiserver creates the ConfigMap again.
    let config_map = format!("configmap/{CONFIG_MAP}");
    let wait = ["wait", "--for=create", &config_map, "-n", "kube-system", "--timeout=120s"];
    stage.kubectl(wait).run()?;
    rest::is_silent(stage)?;
    traffic.end().context("while the ConfigMap was away")
}

/// Another CA of users is trusted as soon as the cluster names it, and only as long.
pub fn another_client_authority(stage: &mut Stage) -> Result<()> {
    let folder = stage.world.control_plane.folder();
    let authority = Authority::new("other-ca", &folder.join("other-ca.crt"))?;
    let user = authority.client(folder, "other-user", "root", Some("system:masters"))?;
    let (status, body) = ask(&stage.world, &[], Some(&user))?;
    ensure!(status == 401, "a stranger: {status} {body}");
    let traffic = Traffic::start(stage);
    let get = ["get", "configmap", CONFIG_MAP, "-n", "kube-system", "-o", "json"];
    let found: Value = serde_json::from_str(&stage.kubectl(get).run()?)?;
    let before = found["data"]["client-ca-file"].as_str().context("no CA of users")?;
    let both = format!("{before}{}", fs::read_to_string(&authority.file)?);
    for (bundle, expected) in [(both.as_str(), 200), (before, 401)] {
        let patch = json!({"data": {"client-ca-file": bundle}}).to_string();
        let patch = ["patch", "configmap", CONFIG_MAP, "-n", "kube-system", "-p", &patch];
        stage.kubectl(patch).run()?;
        stage.world.eventually(|| {
            let (status, body) = ask(&stage.world, &[], Some(&user))?;
            ensure!(status == expected, "{status} {body}");
            Ok(())
        })?;
    }
    traffic.end().context("while CAs of users changed")
}

/// The certificate of the front proxy has a name that is not allowed.
pub fn a_name_is_not_allowed(stage: &mut Stage) -> Result<()> {
    let ca = stage.world.control_plane.folder().join("front-proxy-ca.crt");
    let ca = format!("--requestheader-client-ca-file={}", ca.display());
    let arguments = [ca.as_str(), "--requestheader-allowed-names=somebody"];
    let (port, mut process) = stage.world.start_another("not-allowed", &arguments)?;
    stage.switch.lead_to(port);
    stage.wait_unavailable("bad status from https://localhost:")?;
    let log = process.printed();
    let expected =
        r#"x509: subject with cn="front-proxy-client" is not in the allowed list: ["somebody"]"#;
    ensure!(log.contains(expected), "{log}");
    process.ensure_running()?;
    stage.switch.lead_to(stage.world.port);
    stage.wait_available()?;
    rest::is_silent(stage)
}

/// The CA of the front proxy is exchanged, and the old one is no longer trusted.
pub fn another_authority(stage: &mut Stage) -> Result<()> {
    let folder = stage.world.control_plane.folder();
    let old = stage.world.control_plane.front_proxy().copied_to(folder, "old-front-proxy")?;
    stage.world.control_plane.exchange_front_proxy_authority()?;
    stage.wait_available()?;
    stage.world.eventually(|| {
        let (status, body) = ask(&stage.world, &MASTER, Some(&old))?;
        ensure!(status == 401, "the old front proxy is believed: {status} {body}");
        Ok(())
    })?;
    rest::is_undisturbed(stage, "front-proxy")
}
