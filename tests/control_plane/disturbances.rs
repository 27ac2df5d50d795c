//! Failures in the life of a cluster.

use anyhow::{Result, ensure};

use crate::direct::ask;
use crate::world::{API_SERVICES, Following, NAMESPACE, World, manifest_file};

const SECRET: &str = "secret/farm-operator-serving-certificate";

fn certificate(world: &World) -> Result<String> {
    world.kubectl(["get", SECRET, "-n", NAMESPACE, "-o=jsonpath={.data}"]).run()
}

/// Polls until kubectl gets the sample llama. Returns its output.
fn dolly(world: &World) -> Result<String> {
    world.eventually(|| world.kubectl(["get", "llama", "dolly", "-o", "name"]).run())
}

pub fn a_restart_adopts_the_certificate(world: &mut World) -> Result<()> {
    let before = certificate(world)?;
    world.restart_server()?;
    dolly(world)?;
    ensure!(certificate(world)? == before, "the certificate was made anew");
    Ok(())
}

pub fn another_front_proxy_authority(world: &mut World) -> Result<()> {
    let old = world.control_plane.front_proxy().copied_to(world.control_plane.folder(), "old")?;
    let forged = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    ensure!(ask(world, &forged, Some(&old))?.0 == 200, "the front proxy is believed");
    world.control_plane.exchange_front_proxy_authority()?;
    dolly(world)?;
    world.wait_available()?;
    world.eventually(|| {
        let (status, body) = ask(world, &forged, Some(&old))?;
        ensure!(status == 401, "the old front proxy is believed no more: {status} {body}");
        Ok(())
    })
}

pub fn kube_apiserver_is_killed(world: &mut World) -> Result<()> {
    world.deploy("web", 1)?;
    world.control_plane.kill_api_server();
    world.control_plane.restart_api_server()?;
    dolly(world)?;
    // The informer of Pods reconnects without a restart of the program.
    world.deploy("web", 2)
}

pub fn a_signal_drains_the_server(world: &mut World) -> Result<()> {
    let mut watch = Following::start(world.kubectl(["get", "llamas", "-w"]))?;
    watch.wait_for(&["dolly"])?;
    world.server.terminate()?;
    // kubectl exits successfully only if the watch ends properly.
    watch.wait_for_end()?;
    let status = world.server.wait()?;
    ensure!(status.success(), "{status}");
    world.restart_server()?;
    dolly(world)?;
    Ok(())
}

pub fn namespaces_are_deleted_after_us(world: &mut World) -> Result<()> {
    let manifest = std::fs::read_to_string(manifest_file())?;
    world.kubectl(["delete", "--wait=false", "-f", "-"]).input(&manifest).run()?;
    world.server.kill();
    let mut wait = vec!["wait", "--for=delete", "--timeout=60s", "apiservice"];
    wait.extend(API_SERVICES);
    world.control_plane.kubectl(wait).run()?;
    world.kubectl(["wait", "--for=delete", "namespace/farm-operator", "--timeout=60s"]).run()?;
    world.kubectl(["create", "namespace", "after"]).run()?;
    world.kubectl(["delete", "namespace", "after", "--timeout=60s"]).run()?;
    Ok(())
}
