//! Changes of llamas, and deletions of llamas that finalizers or owners hold.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use farm_operator::v1alpha::{Llama, LlamaSpec};
use kube::api::entry::Entry;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use test_server::client;

use crate::llamas::llama;
use crate::world::{PATIENCE, World};

/// A field of a llama, as kubectl prints it.
fn field(world: &World, name: &str, path: &str) -> Result<String> {
    world.kubectl(["get", "llama", name, &format!("-o=jsonpath={{{path}}}")]).run()
}

fn weighing(name: &str, weight: u32) -> String {
    llama(name).replace("\"weight\":20", &format!("\"weight\":{weight}"))
}

pub fn are_applied(world: &mut World) -> Result<()> {
    let apply = |llama: &str| world.kubectl(["apply", "-f", "-"]).input(llama);
    ensure!(apply(&weighing("shaun", 20)).run()? == "llama.farm.example.com/shaun created\n");
    ensure!(apply(&weighing("shaun", 20)).run()? == "llama.farm.example.com/shaun unchanged\n");
    ensure!(apply(&weighing("shaun", 21)).run()? == "llama.farm.example.com/shaun configured\n");
    ensure!(field(world, "shaun", ".spec.weight")? == "21");
    ensure!(field(world, "shaun", ".metadata.generation")? == "2");

    let differs = world.kubectl(["diff", "-f", "-"]).input(&weighing("shaun", 22)).output()?;
    ensure!(differs.output.contains("-  weight: 21\n+  weight: 22"), "{differs:?}");
    let same = world.kubectl(["diff", "-f", "-"]).input(&weighing("shaun", 21)).output()?;
    ensure!(same.succeeded && same.output.is_empty(), "{same:?}");
    let rehearsal = ["apply", "--dry-run=server", "-f", "-"];
    let rehearsed = world.kubectl(rehearsal).input(&weighing("shaun", 22)).run()?;
    ensure!(rehearsed == "llama.farm.example.com/shaun configured (server dry run)\n");
    ensure!(field(world, "shaun", ".spec.weight")? == "21");

    // The server reports the error.
    let odd = weighing("shaun", 20).replace("\"height\"", "\"colour\":1,\"height\"");
    let refused = apply(&odd).output()?;
    ensure!(refused.errors.contains("unknown field \"spec.colour\""), "{refused:?}");
    let wrong = weighing("shaun", 20).replace("1.5", "\"tall\"");
    let refused = apply(&wrong).output()?;
    let expected = "spec.height: Invalid value: \"string\": spec.height in body must be of type number: \"string\"";
    ensure!(refused.errors.contains(expected), "{refused:?}");
    applied_by_the_server(world)?;

    let both = format!("{}\n---\n{}", weighing("shaun", 21), weighing("timmy", 5));
    apply(&both).run()?;
    let prune = [
        "apply",
        "--prune",
        "-l=app=web",
        "--prune-allowlist=farm.example.com/v1alpha/Llama",
        "-f",
        "-",
    ];
    let pruned = world.kubectl(prune).input(&weighing("timmy", 5)).run()?;
    ensure!(pruned.contains("llama.farm.example.com/shaun pruned"), "{pruned}");
    world.kubectl(["delete", "llama", "timmy"]).run()?;
    Ok(())
}

/// The owner of a field can change it; other managers need `force`.
fn applied_by_the_server(world: &World) -> Result<()> {
    let apply = |manager: &str, force: bool, weight: u32| {
        let manager = format!("--field-manager={manager}");
        let force = format!("--force-conflicts={force}");
        let arguments = ["apply", "--server-side", &manager, &force, "-f", "-"];
        world.kubectl(arguments).input(&weighing("shaun", weight)).output()
    };
    let applied = apply("kubectl", false, 20)?;
    ensure!(applied.output == "llama.farm.example.com/shaun serverside-applied\n", "{applied:?}");
    let refused = apply("shearer", false, 19)?;
    let expected = "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.weight";
    ensure!(!refused.succeeded && refused.errors.contains(expected), "{refused:?}");
    let forced = apply("shearer", true, 19)?;
    ensure!(forced.succeeded, "{forced:?}");
    ensure!(field(world, "shaun", ".spec.weight")? == "19");
    let owners = field(world, "shaun", ".metadata.managedFields[*].manager")?;
    ensure!(owners.contains("shearer"), "{owners}");
    let diff = ["diff", "--server-side", "--field-manager=shearer", "-f", "-"];
    let same = world.kubectl(diff).input(&weighing("shaun", 19)).output()?;
    ensure!(same.succeeded && same.output.is_empty(), "{same:?}");
    let other = world.kubectl(diff).input(&weighing("shaun", 18)).output()?;
    ensure!(other.output.contains("+  weight: 18"), "{other:?}");
    Ok(())
}

pub fn are_changed(world: &mut World) -> Result<()> {
    world.kubectl(["create", "-f", "-"]).input(&llama("shaun")).run()?;
    let patch = |kind: &str, patch: &str| {
        world.kubectl(["patch", "llama", "shaun", "--type", kind, "-p", patch]).output()
    };
    let patched = patch("merge", r#"{"spec":{"weight":23}}"#)?;
    ensure!(patched.output == "llama.farm.example.com/shaun patched\n", "{patched:?}");
    let operations = r#"[{"op":"test","path":"/spec/weight","value":"23"},{"op":"replace","path":"/spec/weight","value":24}]"#;
    ensure!(patch("json", operations)?.succeeded);
    let refused = patch("json", operations)?;
    ensure!(
        refused.errors
            == "The request is invalid: the server rejected our request due to an error in our request\n",
        "{refused:?}"
    );
    ensure!(patch("strategic", "{}")?.errors.contains("application/merge-patch+json"));
    ensure!(patch("merge", "{}")?.output.ends_with("patched (no change)\n"));
    let labelled = world.kubectl(["label", "llama", "shaun", "colour=black"]).run()?;
    ensure!(labelled == "llama.farm.example.com/shaun labeled\n", "{labelled}");
    world.kubectl(["label", "llama", "shaun", "colour-"]).run()?;
    world.kubectl(["annotate", "llama", "shaun", "note=\"much loved\""]).run()?;
    ensure!(field(world, "shaun", ".metadata.annotations.note")? == "\"much loved\"");
    ensure!(field(world, "shaun", ".metadata.labels")? == r#"{"app":"web"}"#);
    ensure!(field(world, "shaun", ".metadata.generation")? == "3");

    let edited = world
        .kubectl(["edit", "llama", "shaun"])
        .into_command()
        .env("KUBE_EDITOR", "sed -i /weight/s/24/25/")
        .output()?;
    ensure!(edited.stdout == b"llama.farm.example.com/shaun edited\n", "{edited:?}");
    ensure!(field(world, "shaun", ".spec.weight")? == "25");
    let wait = ["wait", "llama/shaun", "--for=jsonpath={.spec.weight}=25", "--timeout=20s"];
    world.kubectl(wait).run()?;

    let stale = world.kubectl(["get", "llama", "shaun", "-o", "json"]).run()?;
    let replaced = world.kubectl(["replace", "-f", "-"]).input(&weighing("shaun", 26)).run()?;
    ensure!(replaced == "llama.farm.example.com/shaun replaced\n", "{replaced}");
    let conflict = world.kubectl(["replace", "-f", "-"]).input(&stale).output()?;
    ensure!(conflict.errors.contains("the object has been modified"), "{conflict:?}");
    let uid = field(world, "shaun", ".metadata.uid")?;
    world.kubectl(["replace", "--force", "-f", "-"]).input(&weighing("shaun", 27)).run()?;
    ensure!(field(world, "shaun", ".metadata.uid")? != uid);
    let all = world.kubectl(["delete", "llamas", "-l", "app=web", "--dry-run=server"]).run()?;
    ensure!(all.contains("shaun\" deleted"), "{all}");
    world.kubectl(["delete", "llama", "shaun"]).run()?;
    Ok(())
}

/// A ConfigMap that depends on an object.
fn config_map(name: &str, owner: &Value) -> String {
    let metadata = json!({"name": name, "ownerReferences": [owner]});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string()
}

fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
        "blockOwnerDeletion": true,
    })
}

/// Creates a llama that owns a ConfigMap.
fn owner(world: &World, name: &str, owned: &str) -> Result<()> {
    world.kubectl(["create", "-f", "-"]).input(&llama(name)).run()?;
    let uid = field(world, name, ".metadata.uid")?;
    let owner = reference("farm.example.com/v1alpha", "Llama", name, &uid);
    world.kubectl(["create", "-f", "-"]).input(&config_map(owned, &owner)).run()?;
    Ok(())
}

/// Creates a ConfigMap that owns a llama.
fn dependant(world: &World, name: &str, dependant: &str) -> Result<()> {
    world.kubectl(["create", "configmap", name]).run()?;
    let path = "-o=jsonpath={.metadata.uid}";
    let uid = world.kubectl(["get", "configmap", name, path]).run()?;
    let mut object: Value = serde_json::from_str(&llama(dependant))?;
    object["metadata"]["ownerReferences"] = json!([reference("v1", "ConfigMap", name, &uid)]);
    world.kubectl(["create", "-f", "-"]).input(&object.to_string()).run()?;
    Ok(())
}

pub fn own_and_are_owned(world: &mut World) -> Result<()> {
    // With foreground deletion, the dependent is deleted first.
    owner(world, "owner", "owned")?;
    let delete = |what: &str, name: &str, cascade: &str| {
        let cascade = format!("--cascade={cascade}");
        world.kubectl(["delete", what, name, &cascade, "--timeout=120s"]).run()
    };
    delete("llama", "owner", "foreground")?;
    let left = world.kubectl(["get", "configmap", "owned", "--ignore-not-found"]).run()?;
    ensure!(left.is_empty(), "{left}");
    // With background deletion, the dependent is deleted afterwards.
    owner(world, "owner", "owned")?;
    delete("llama", "owner", "background")?;
    world.kubectl(["wait", "--for=delete", "configmap/owned", "--timeout=120s"]).run()?;
    // With orphaning, the dependent remains.
    owner(world, "owner", "owned")?;
    delete("llama", "owner", "orphan")?;
    let owners = "-o=jsonpath={.metadata.ownerReferences}";
    let left = world.kubectl(["get", "configmap", "owned", owners]).run()?;
    ensure!(left.is_empty(), "{left}");
    world.kubectl(["delete", "configmap", "owned"]).run()?;

    // The same with a ConfigMap as the owner.
    dependant(world, "herd", "member")?;
    delete("configmap", "herd", "foreground")?;
    let left = world.kubectl(["get", "llama", "member", "--ignore-not-found"]).run()?;
    ensure!(left.is_empty(), "{left}");
    dependant(world, "herd", "member")?;
    delete("configmap", "herd", "background")?;
    world.kubectl(["wait", "--for=delete", "llama/member", "--timeout=120s"]).run()?;
    dependant(world, "herd", "member")?;
    delete("configmap", "herd", "orphan")?;
    ensure!(field(world, "member", ".metadata.ownerReferences")?.is_empty());
    world.kubectl(["delete", "llama", "member"]).run()?;
    Ok(())
}

pub fn change_in_programs(world: &mut World) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = client(&world.control_plane.kubeconfig()).await?;
        tokio::time::timeout(PATIENCE, change(client)).await.context("it takes too long")?
    })
}

async fn change(client: Client) -> Result<()> {
    let llamas: Api<Llama> = Api::default_namespaced(client);
    let spec = |weight| LlamaSpec { weight, height: 1.5 };
    let posting = PostParams::default();
    let created = llamas.create(&posting, &Llama::new("shaun", spec(20.0))).await?;

    let mut changed = created.clone();
    changed.spec.weight = 21.0;
    let replaced = llamas.replace("shaun", &posting, &changed).await?;
    ensure!(replaced.spec.weight > 20.5 && replaced.metadata.generation == Some(2));
    match llamas.replace("shaun", &posting, &changed).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => bail!("no conflict: {other:?}"),
    }
    let patch = json!({"spec": {"weight": 22.0}});
    let patched = llamas.patch("shaun", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    ensure!(patched.metadata.generation == Some(3));

    let entry = llamas.entry("shaun").await?.and_modify(|llama| llama.spec.weight = 23.0);
    let Entry::Occupied(mut entry) = entry else { bail!("shaun is not there") };
    entry.commit(&posting).await?;
    let entry = llamas.entry("timmy").await?;
    let mut entry = entry.or_insert(|| Llama::new("timmy", spec(5.0)));
    entry.commit(&posting).await?;
    ensure!(llamas.get("timmy").await?.uid().is_some());

    // The finalizer of a controller is added, observed at the deletion, and removed.
    let reconcile = async |llama: Llama| {
        let nothing = async |_: Event<Llama>| Ok::<_, Infallible>(Action::await_change());
        finalizer(&llamas, "farm.example.com/shear", Arc::new(llama), nothing).await
    };
    let timmy = llamas.get("timmy").await?;
    // The first reconciliation adds the finalizer and expects another call.
    reconcile(timmy).await?;
    let timmy = llamas.get("timmy").await?;
    ensure!(timmy.finalizers() == ["farm.example.com/shear"]);
    ensure!(llamas.delete("timmy", &DeleteParams::default()).await?.is_left());
    let timmy = llamas.get("timmy").await?;
    ensure!(timmy.metadata.deletion_timestamp.is_some());
    reconcile(timmy).await?;
    ensure!(llamas.get_opt("timmy").await?.is_none());

    let label = json!({"metadata": {"labels": {"sold": "yes"}}});
    llamas.patch("shaun", &PatchParams::default(), &Patch::Merge(&label)).await?;
    let sold = ListParams::default().labels("sold=yes");
    let deleted = llamas.delete_collection(&DeleteParams::default(), &sold).await?;
    ensure!(deleted.left().is_some_and(|list| list.items.len() == 1));
    let left = llamas.list(&ListParams::default()).await?;
    ensure!(left.items.len() == 1 && left.items[0].name_any() == "dolly");
    Ok(())
}
