//! Who may what, through kube-apiserver and past it.

use anyhow::{Result, ensure};
use serde_json::json;
use test_cluster::Authority;

use crate::direct::{LLAMAS, ask};
use crate::world::World;

pub fn are_needed(world: &mut World) -> Result<()> {
    let through = world.kubectl_as("jane", ["get", "llamas"])?.output()?;
    // Past kube-apiserver, so that it is us who refuse; with its very words.
    let direct = world.directly("jane", &json!({"token": "jane-token"}))?;
    let past = world.control_plane.kubectl_as(&direct, ["get", "--raw", LLAMAS]).output()?;
    let expected = "Error from server (Forbidden): llamas.farm.example.com is forbidden: User \"jane\" cannot list resource \"llamas\" in API group \"farm.example.com\" in the namespace \"default\"\n";
    ensure!(through.errors == expected, "{}", through.errors);
    ensure!(past.errors == expected, "{}", past.errors);
    Ok(())
}

const FARM_PODS: &str = "/apis/farm.example.com/v1alpha/namespaces/default/farmpods";

pub fn on_pods_are_needed(world: &mut World) -> Result<()> {
    let resource = "--resource=farmpods.farm.example.com";
    world.kubectl(["create", "role", "farm-pods", "--verb=list,watch", resource]).run()?;
    world.kubectl(["create", "role", "pods", "--verb=list", "--resource=pods"]).run()?;
    for (name, role, user) in [
        ("ann-farm-pods", "--role=farm-pods", "--user=ann"),
        ("eve-farm-pods", "--role=farm-pods", "--user=eve"),
        ("eve-pods", "--role=pods", "--user=eve"),
    ] {
        world.kubectl(["create", "rolebinding", name, role, user]).run()?;
    }
    // kube-apiserver lets her through; we say which right is missing.
    world.eventually(|| {
        let refused = world.kubectl_as("ann", ["get", "farmpods"])?.output()?;
        let expected = "Error from server (Forbidden): farmpods.farm.example.com is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"\n";
        ensure!(refused.errors == expected, "{}", refused.errors);
        Ok(())
    })?;
    world.eventually(|| world.kubectl_as("eve", ["get", "farmpods"])?.run())?;
    // Nor is there a way around it by watching.
    let watch = format!("{FARM_PODS}?watch=true&timeoutSeconds=1");
    let refused = world.kubectl_as("eve", ["get", "--raw", &watch])?.output()?;
    let expected = "User \"eve\" cannot watch resource \"pods\"";
    ensure!(!refused.succeeded && refused.errors.contains(expected), "{refused:?}");
    Ok(())
}

pub fn forged_headers_are_not_believed(world: &mut World) -> Result<()> {
    let forged = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    let (status, body) = ask(world, &forged, None)?;
    ensure!(status == 403 && body.contains("User \\\"system:anonymous\\\" cannot list"), "{body}");
    // A certificate of another CA, and one of the users' CA, with the front proxy's name.
    let folder = world.control_plane.folder();
    let rogue = Authority::new("front-proxy-ca", &folder.join("rogue.crt"))?;
    let rogue = rogue.client(folder, "rogue", "front-proxy-client", None)?;
    let (status, body) = ask(world, &forged, Some(&rogue))?;
    ensure!(status == 401, "a rogue certificate: {status} {body}");
    let user =
        world.control_plane.authority().client(folder, "user", "front-proxy-client", None)?;
    let (status, body) = ask(world, &forged, Some(&user))?;
    let expected = "User \\\"front-proxy-client\\\" cannot list";
    ensure!(status == 403 && body.contains(expected), "a user of that name: {status} {body}");
    // With the certificate of the front proxy they are.
    let proxy = world.control_plane.front_proxy();
    let (status, body) = ask(world, &forged, Some(proxy))?;
    ensure!(status == 200, "{body}");
    // Nobody may speak for another past kube-apiserver.
    let impersonated = [forged[0], forged[1], ("Impersonate-User", "jane")];
    let (status, body) = ask(world, &impersonated, Some(proxy))?;
    ensure!(status == 403 && body.contains("impersonation"), "{body}");
    Ok(())
}

pub fn tokens_and_certificates_are_believed(world: &mut World) -> Result<()> {
    let folder = world.control_plane.folder();
    let authority = world.control_plane.authority();
    let master = authority.client(folder, "master", "root", Some("system:masters"))?;
    let (status, body) = ask(world, &[], Some(&master))?;
    ensure!(status == 200, "{body}");
    let (status, _) = ask(world, &[("Authorization", "Bearer wrong")], None)?;
    ensure!(status == 401, "a wrong token is not no token: {status}");
    let (status, body) = ask(world, &[("Authorization", "Bearer eve-token")], None)?;
    ensure!(status == 403 && body.contains("User \\\"eve\\\""), "{body}");
    Ok(())
}
