//! Authorization, through kube-apiserver and with direct requests.

use anyhow::{Result, ensure};
use serde_json::json;
use test_cluster::Authority;

use crate::direct::ask;
use crate::world::{LLAMAS, World};

pub fn are_needed(world: &mut World) -> Result<()> {
    let through = world.kubectl_as("jane", ["get", "llamas"])?.output()?;
    // A direct request, so that the server itself rejects it, with the same message.
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
    // kube-apiserver forwards ann's request; the server reports the missing permission.
    world.eventually(|| {
        let refused = world.kubectl_as("ann", ["get", "farmpods"])?.output()?;
        let expected = "Error from server (Forbidden): farmpods.farm.example.com is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"\n";
        ensure!(refused.errors == expected, "{}", refused.errors);
        Ok(())
    })?;
    world.eventually(|| world.kubectl_as("eve", ["get", "farmpods"])?.run())?;
    // A watch requires the same permission.
    let watch = format!("{FARM_PODS}?watch=true&timeoutSeconds=1");
    let refused = world.kubectl_as("eve", ["get", "--raw", &watch])?.output()?;
    let expected = "User \"eve\" cannot watch resource \"pods\"";
    ensure!(!refused.succeeded && refused.errors.contains(expected), "{refused:?}");
    Ok(())
}

/// Two users may read Pods; one of them may also read Services and budgets.
pub fn on_what_is_looked_up_are_needed(world: &mut World) -> Result<()> {
    world.deploy("web", 1)?;
    let read = "--verb=get,list,watch";
    let (farm_pods, workloads) = ("farmpods.farm.example.com", "farmworkloads.farm.example.com");
    let pods = "--resource=pods,deployments.apps,statefulsets.apps,daemonsets.apps,jobs.batch";
    let farm = format!("--resource={farm_pods},{workloads}");
    let around = "--resource=services,poddisruptionbudgets.policy,persistentvolumeclaims";
    world.kubectl(["create", "role", "joe", read, pods]).run()?;
    world.kubectl(["create", "role", "joe-farm", read, &farm]).run()?;
    world.kubectl(["create", "role", "mia", read, around]).run()?;
    for (name, role, user) in [
        ("joe", "--role=joe", "--user=joe"),
        ("joe-farm", "--role=joe-farm", "--user=joe"),
        ("mia", "--role=joe", "--user=mia"),
        ("mia-farm", "--role=joe-farm", "--user=mia"),
        ("mia-around", "--role=mia", "--user=mia"),
    ] {
        world.kubectl(["create", "rolebinding", name, role, user]).run()?;
    }
    world.kubectl(["create", "service", "clusterip", "web", "--tcp=80"]).run()?;
    let disrupted = ["create", "pdb", "web", "--selector=app=web", "--min-available=1"];
    world.kubectl(disrupted).run()?;
    let paths = "jsonpath={.items[0].status.services[0]} {.items[0].status.budgets[0].name}";
    let get = ["get", "farmpods", "-l", "app=web", "-o", paths];
    let of_mia = world.eventually(|| {
        let shown = world.kubectl_as("mia", get)?.output()?;
        ensure!(shown.succeeded && shown.output == "web web", "{shown:?}");
        Ok(shown.errors)
    })?;
    // Neither may read measurements, but this cluster has none.
    ensure!(of_mia.is_empty(), "{of_mia}");
    let of_joe = world.kubectl_as("joe", get)?.output()?;
    ensure!(of_joe.succeeded && of_joe.output == " ", "{of_joe:?}");
    let missing = "Warning: User \"joe\" cannot list resource \"services\" in API group \"\" in the namespace \"default\": what that would add is left out";
    ensure!(of_joe.errors.contains(missing), "{of_joe:?}");
    ensure!(of_joe.errors.matches("Warning:").count() == 3, "{of_joe:?}");
    // The columns are empty for joe, and selectors do not match hidden fields.
    for (user, expected) in [("mia", ["web", "web"]), ("joe", ["   ", "   "])] {
        let table = world.kubectl_as(user, ["get", "farmpods", "-l", "app=web", "-o", "wide"])?;
        let table = table.run()?;
        let mut lines = table.lines();
        let (headings, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        for (heading, expected) in ["SERVICES", "BUDGETS"].into_iter().zip(expected) {
            let at = headings.find(heading).unwrap_or(0);
            let cell = row.get(at..).unwrap_or_default();
            ensure!(cell.starts_with(expected), "{user} {heading}: {table}");
        }
    }
    let name = ["get", "farmworkload/farm-web.deploy", "-o", "jsonpath={.status.pods}"];
    let pods = world.kubectl_as("joe", name)?.run()?;
    ensure!(pods == "1", "{pods}");
    // Permission to read Deployments, without Pods, is enough for the fields that come from the Deployment.
    let resources = "--resource=deployments.apps,statefulsets.apps,daemonsets.apps,jobs.batch";
    world.kubectl(["create", "role", "kim", read, resources]).run()?;
    for (binding, role) in [("kim", "--role=kim"), ("kim-farm", "--role=joe-farm")] {
        world.kubectl(["create", "rolebinding", binding, role, "--user=kim"]).run()?;
    }
    let status = ["get", "farmworkload/farm-web.deploy", "-o", "jsonpath={.status}"];
    world.eventually(|| {
        let shown = world.kubectl_as("kim", status)?.run()?;
        let shown: serde_json::Value = serde_json::from_str(&shown)?;
        ensure!(shown["wanted"] == 1 && shown["paused"] == false, "{shown}");
        let hidden = ["pods", "restarts", "resources", "why", "lastRestartTime"];
        ensure!(hidden.iter().all(|field| shown.get(field).is_none()), "{shown}");
        Ok(())
    })?;
    // A new permission takes effect once the cached result has expired.
    world.kubectl(["create", "rolebinding", "joe-around", "--role=mia", "--user=joe"]).run()?;
    world.eventually(|| {
        let shown = world.kubectl_as("joe", get)?.output()?;
        ensure!(shown.output == "web web", "{shown:?}");
        Ok(())
    })?;
    for kind in ["service/web", "pdb/web", "deployment/web"] {
        world.kubectl(["delete", kind]).run()?;
    }
    Ok(())
}

pub fn forged_headers_are_not_believed(world: &mut World) -> Result<()> {
    let forged = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    let (status, body) = ask(world, &forged, None)?;
    ensure!(status == 403 && body.contains("User \\\"system:anonymous\\\" cannot list"), "{body}");
    // A certificate of another CA, and one of the users' CA with the name of the front proxy.
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
    // The certificate of the front proxy is accepted.
    let proxy = world.control_plane.front_proxy();
    let (status, body) = ask(world, &forged, Some(proxy))?;
    ensure!(status == 200, "{body}");
    // Impersonation is not possible in direct requests.
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
