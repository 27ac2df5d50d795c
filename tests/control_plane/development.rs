//! A development process that replaces the deployed one temporarily, as with mirrord.

use anyhow::{Context, Result, ensure};

use crate::switch::Switch;
use crate::world::{API_SERVICES, NAMESPACE, World};

/// Creates a ConfigMap that a llama owns. Returns the uid of the llama.
fn own(world: &World, llama: &str) -> Result<String> {
    let uid = world.kubectl(["get", "llama", llama, "-o=jsonpath={.metadata.uid}"]).run()?;
    own_as(world, llama, llama, &uid)?;
    Ok(uid)
}

/// Creates a ConfigMap `of-NAME` that the llama of this name and uid owns.
fn own_as(world: &World, name: &str, llama: &str, uid: &str) -> Result<()> {
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("of-{name}"), "ownerReferences": [{
            "apiVersion": "farm.example.com/v1alpha", "kind": "Llama", "name": llama, "uid": uid,
        }]},
    });
    world.kubectl(["create", "-f", "-"]).input(&map.to_string()).run()?;
    Ok(())
}

fn make(world: &World, llama: &str) -> Result<()> {
    let llama = serde_json::json!({
        "apiVersion": "farm.example.com/v1alpha", "kind": "Llama",
        "metadata": {"name": llama}, "spec": {"weight": 30, "height": 1},
    });
    world.eventually(|| world.kubectl(["create", "-f", "-"]).input(&llama.to_string()).run())?;
    Ok(())
}

/// Waits until the garbage collector has deleted the ConfigMap of an unknown llama.
fn is_collected(world: &World, map: &str) -> Result<()> {
    world.eventually(|| {
        let found = world.kubectl(["get", "configmap", map, "--ignore-not-found"]).run()?;
        ensure!(found.is_empty(), "{found}");
        Ok(())
    })
}

/// Dependents of the deployed server's llamas survive a process that receives the traffic temporarily. Dependents of
/// llamas created there are deleted when that process ends.
pub fn nothing_owned_is_lost(world: &mut World) -> Result<()> {
    let switch = Switch::to(world.port)?;
    let service = (NAMESPACE, farm_operator::NAME);
    world.control_plane.lead_to_localhost(&API_SERVICES, service, switch.port)?;
    world.wait_available()?;
    make(world, "kept")?;
    let uid = own(world, "kept")?;

    let (port, development) = world.start_another("development", &["--copy-stored-objects"])?;
    world.eventually(|| {
        ensure!(
            development.printed().contains("copied the objects of the deployed server"),
            "{}",
            development.printed()
        );
        Ok(())
    })?;
    // Only the deployed server stores this llama. When its dependent is deleted, the garbage collector has queried the
    // process for development.
    make(world, "late")?;
    own(world, "late")?;
    switch.lead_to(port);
    is_collected(world, "of-late").with_context(|| development.printed())?;
    let copied = world.kubectl(["get", "llama", "kept", "-o=jsonpath={.metadata.uid}"]).run()?;
    ensure!(copied == uid, "{copied} is not {uid}");
    make(world, "passing")?;
    own(world, "passing")?;

    switch.lead_to(world.port);
    drop(development);
    is_collected(world, "of-passing")?;
    let there = world.kubectl(["get", "llama", "kept", "late", "-o", "name"]).run()?;
    ensure!(there.lines().count() == 2, "{there}");
    world.kubectl(["get", "configmap", "of-kept"]).run()?;

    // A second replacement: the next process has the llamas created since then, and again nothing is deleted by
    // mistake.
    make(world, "later")?;
    own(world, "later")?;
    let (port, again) = world.start_another("again", &["--copy-stored-objects"])?;
    world.eventually(|| {
        ensure!(
            again.printed().contains("copied the objects of the deployed server"),
            "{}",
            again.printed()
        );
        Ok(())
    })?;
    for (target, marker) in [(port, "at-development"), (world.port, "at-deployed")] {
        switch.lead_to(target);
        world.wait_available()?;
        // Once this ConfigMap is deleted, the garbage collector has queried the process that receives the traffic.
        own_as(world, marker, "nobody", &format!("00000000-0000-4000-8000-{target:012}"))?;
        is_collected(world, &format!("of-{marker}")).with_context(|| again.printed())?;
        let there = world.kubectl(["get", "llama", "kept", "later", "-o", "name"]).run()?;
        ensure!(there.lines().count() == 2, "{there}");
        world.kubectl(["get", "configmap", "of-kept", "of-later"]).run()?;
    }
    drop(again);

    // A process that cannot copy does not serve llamas, so nothing is garbage-collected.
    let nobody = world.control_plane.kubeconfig_of_token("nobody", "nobody-token")?;
    let (port, blind) = world.start_another_as(&nobody, "blind", &["--copy-stored-objects"])?;
    world.eventually(|| {
        ensure!(
            blind.printed().contains("cannot copy the objects of the deployed server"),
            "{}",
            blind.printed()
        );
        Ok(())
    })?;
    switch.lead_to(port);
    world.eventually(|| {
        let refused = world.kubectl(["get", "llamas"]).output()?;
        ensure!(!refused.succeeded, "{refused:?}");
        Ok(())
    })?;
    switch.lead_to(world.port);
    drop(blind);
    world.control_plane.lead_to_localhost(&API_SERVICES, service, world.port)?;
    world.wait_available()?;
    world.kubectl(["get", "configmap", "of-kept"]).run()?;
    world.eventually(|| world.kubectl(["delete", "llama", "kept", "late", "later"]).run())?;
    Ok(())
}
