//! A process that takes the place of the deployed one for a while, as with mirrord.

use anyhow::{Context, Result, ensure};

use crate::switch::Switch;
use crate::world::{API_SERVICES, NAMESPACE, World};

/// A ConfigMap that a llama owns.
fn own(world: &World, llama: &str) -> Result<String> {
    let uid = world.kubectl(["get", "llama", llama, "-o=jsonpath={.metadata.uid}"]).run()?;
    own_as(world, llama, llama, &uid)?;
    Ok(uid)
}

/// A ConfigMap `of-NAME` that the llama of this name and uid owns.
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

/// Waits until the collector has taken what a llama owned that is not known.
fn is_collected(world: &World, map: &str) -> Result<()> {
    world.eventually(|| {
        let found = world.kubectl(["get", "configmap", map, "--ignore-not-found"]).run()?;
        ensure!(found.is_empty(), "{found}");
        Ok(())
    })
}

/// What the deployed server's llamas own outlives a process that has the traffic for
/// a while; what is made meanwhile goes with that.
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
            development.printed().contains("llamas.farm.example.com: "),
            "{}",
            development.printed()
        );
        Ok(())
    })?;
    // This one is known to the deployed server alone, so that it can be seen when the
    // collector has asked the other.
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

    // Once more to and fro: the next process has what came since, and again nothing is taken for missing.
    make(world, "later")?;
    own(world, "later")?;
    let (port, again) = world.start_another("again", &["--copy-stored-objects"])?;
    world.eventually(|| {
        ensure!(again.printed().contains("objects of the deployed"), "{}", again.printed());
        Ok(())
    })?;
    for (target, marker) in [(port, "at-development"), (world.port, "at-deployed")] {
        switch.lead_to(target);
        world.wait_available()?;
        // When this is collected, the collector has asked the process that has the traffic.
        own_as(world, marker, "nobody", &format!("00000000-0000-4000-8000-{target:012}"))?;
        is_collected(world, &format!("of-{marker}")).with_context(|| again.printed())?;
        let there = world.kubectl(["get", "llama", "kept", "later", "-o", "name"]).run()?;
        ensure!(there.lines().count() == 2, "{there}");
        world.kubectl(["get", "configmap", "of-kept", "of-later"]).run()?;
    }
    drop(again);

    // A process that cannot copy says nothing of llamas, so nothing is collected.
    let nobody = world.control_plane.kubeconfig_of_token("nobody", "nobody-token")?;
    let (port, blind) = world.start_another_as(&nobody, "blind", &["--copy-stored-objects"])?;
    world.eventually(|| {
        ensure!(blind.printed().contains("cannot be copied"), "{}", blind.printed());
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
