//! The subresources of farm pods and farm workloads.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::kubelet::{Kubelet, node};
use crate::world::{Following, IMAGE, World};

const ROOT: &str = "/apis/farm.example.com/v1alpha/namespaces/default";

/// A Pod with two containers that run and one that waits.
pub fn start_pod(world: &World, name: &str, port: u16) -> Result<()> {
    let [created, status] = node("stable", port)?;
    world.kubectl(["apply", "-f", "-"]).input(&created.to_string()).run()?;
    let status = status.to_string();
    world.kubectl(["patch", "node", "stable", "--subresource=status", "-p", &status]).run()?;
    let containers = ["web", "proxy", "late"].map(|name| json!({"name": name, "image": IMAGE}));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "stable", "containers": containers},
    });
    world.kubectl(["create", "-f", "-"]).input(&pod.to_string()).run()?;
    let shown = format!("farm-{name}");
    world.eventually(|| world.kubectl(["get", "farmpod", &shown]).run())?;
    Ok(())
}

pub fn logs_of_all_containers_are_merged(world: &mut World) -> Result<()> {
    let kubelet = Kubelet::start(world.control_plane.folder())?;
    start_pod(world, "trio", kubelet.port)?;
    let path = |query: &str| format!("{ROOT}/farmpods/farm-trio/log?{query}");
    let all = world.kubectl(["get", "--raw", &path("tailLines=2")]).run()?;
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_unstable();
    ensure!(lines.len() == 5, "{lines:#?}");
    ensure!(lines[0].starts_with("[late] ") && lines[0].contains("is waiting to start"), "{all}");
    let of_others =
        ["[proxy] proxy line 2", "[proxy] proxy line 3", "[web] web line 2", "[web] web line 3"];
    ensure!(lines[1..] == of_others, "{lines:#?}");
    let one = world.kubectl(["get", "--raw", &path("container=web&tailLines=1")]).run()?;
    ensure!(one == "web line 3\n", "{one}");
    for (query, expected) in [
        ("container=late", "is waiting to start"),
        ("container=other", "container other is not valid for pod trio"),
        ("tailLines=x", "the parameter tailLines is \"x\", which is not an integer"),
    ] {
        let refused = world.kubectl(["get", "--raw", &path(query)]).output()?;
        ensure!(!refused.succeeded && refused.errors.contains(expected), "{query}: {refused:?}");
    }
    // The log is followed until the Pod is deleted.
    let mut followed = Following::start(world.kubectl(["get", "--raw", &path("follow=true")]))?;
    followed.wait_for(&["[web] web line 3"])?;
    world.kubectl(["delete", "pod", "trio", "--grace-period=0", "--force"]).run()?;
    followed.wait_for_end()?;
    Ok(())
}

pub fn logs_need_permission_on_logs_of_pods(world: &mut World) -> Result<()> {
    let kubelet = Kubelet::start(world.control_plane.folder())?;
    start_pod(world, "guarded", kubelet.port)?;
    let farm = "--resource=farmpods.farm.example.com/log";
    world.kubectl(["create", "role", "lou-farm", "--verb=get", farm]).run()?;
    world.kubectl(["create", "role", "lou-pods", "--verb=get", "--resource=pods"]).run()?;
    world.kubectl(["create", "role", "lou-logs", "--verb=get", "--resource=pods/log"]).run()?;
    let path = format!("{ROOT}/farmpods/farm-guarded/log?container=web");
    for (role, expected) in [
        ("lou-farm", "User \"lou\" cannot get resource \"pods\" in API group \"\""),
        ("lou-pods", "User \"lou\" cannot get resource \"pods/log\" in API group \"\""),
    ] {
        let of_role = format!("--role={role}");
        world.kubectl(["create", "rolebinding", role, &of_role, "--user=lou"]).run()?;
        world.eventually(|| {
            let refused = world.kubectl_as("lou", ["get", "--raw", &path])?.output()?;
            ensure!(!refused.succeeded && refused.errors.contains(expected), "{refused:?}");
            Ok(())
        })?;
    }
    world.kubectl(["create", "rolebinding", "lou-logs", "--role=lou-logs", "--user=lou"]).run()?;
    let shown = world.eventually(|| world.kubectl_as("lou", ["get", "--raw", &path])?.run())?;
    ensure!(shown.ends_with("web line 3\n"), "{shown}");
    world.kubectl(["delete", "pod", "guarded", "--grace-period=0", "--force"]).run()?;
    Ok(())
}

pub fn workloads_are_restarted(world: &mut World) -> Result<()> {
    world.deploy("again", 1)?;
    let path = format!("{ROOT}/farmworkloads/farm-again.deploy/restart");
    let restart = |query: &str| {
        let path = format!("{path}{query}");
        world.kubectl(["create", "--raw", &path, "-f", "-"]).input("{}").output()
    };
    let annotation =
        r"-o=jsonpath={.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}";
    let restarted_at = || world.kubectl(["get", "deployment", "again", annotation]).run();
    // farm-operator may not change workloads unless an administrator grants it.
    let refused = restart("")?;
    let expected = "grant farm-operator patch on deployments.apps to use restart";
    ensure!(!refused.succeeded && refused.errors.contains(expected), "{refused:?}");
    let role = "farm-operator-restart";
    let verb = ["create", "clusterrole", role, "--verb=patch", "--resource=deployments.apps"];
    world.kubectl(verb).run()?;
    let (of_role, account) =
        (format!("--clusterrole={role}"), "--serviceaccount=farm-operator:farm-operator");
    world.kubectl(["create", "clusterrolebinding", role, &of_role, account]).run()?;
    world.eventually(|| {
        let dry = restart("?dryRun=All")?;
        ensure!(dry.succeeded, "{dry:?}");
        Ok(())
    })?;
    ensure!(restarted_at()?.is_empty(), "a dry run changes nothing");
    let done = restart("")?;
    ensure!(done.succeeded && done.output.contains("\"status\":\"Success\""), "{done:?}");
    ensure!(restarted_at()?.ends_with('Z'), "{}", restarted_at()?);
    // The user needs the permission on the workload itself, too.
    let farm = "--resource=farmworkloads.farm.example.com/restart";
    world.kubectl(["create", "role", "lou-restart", "--verb=create", farm]).run()?;
    let read = "--resource=deployments.apps";
    world.kubectl(["create", "role", "lou-read", "--verb=get", read]).run()?;
    for role in ["lou-restart", "lou-read"] {
        let of_role = format!("--role={role}");
        world.kubectl(["create", "rolebinding", role, &of_role, "--user=lou"]).run()?;
    }
    world.eventually(|| {
        let request = world.kubectl_as("lou", ["create", "--raw", &path, "-f", "-"])?;
        let refused = request.input("{}").output()?;
        let expected = "User \"lou\" cannot patch resource \"deployments\" in API group \"apps\"";
        ensure!(!refused.succeeded && refused.errors.contains(expected), "{refused:?}");
        Ok(())
    })?;
    world.kubectl(["delete", "deployment", "again"]).run()?;
    Ok(())
}
