//! Llamas, as kubectl sees them.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::world::{Following, World};

pub fn llama(name: &str) -> String {
    json!({
        "apiVersion": "farm.example.com/v1alpha",
        "kind": "Llama",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"weight": 20, "height": 1.5},
    })
    .to_string()
}

pub fn are_read(world: &mut World) -> Result<()> {
    let table = world.kubectl(["get", "llamas"]).run()?;
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(rows[0] == ["NAME", "WEIGHT", "HEIGHT", "AGE"], "{table}");
    ensure!(rows[1][..3] == ["dolly", "31.4", "0.5"], "{table}");
    let yaml = world.kubectl(["get", "llama", "dolly", "-o", "yaml"]).run()?;
    for line in ["  name: dolly", "  generation: 1", "  weight: \"31.4\"", "  height: \"0.5\""] {
        ensure!(yaml.lines().any(|found| found == line), "{line} is not in {yaml}");
    }
    ensure!(world.kubectl(["get", "ll", "-A", "--no-headers"]).run()?.starts_with("default"));
    let missing = world.kubectl(["get", "llama", "nobody"]).output()?;
    let expected = "Error from server (NotFound): llamas.farm.example.com \"nobody\" not found\n";
    ensure!(missing.errors == expected, "{}", missing.errors);
    let described = world.kubectl(["describe", "llama", "dolly"]).run()?;
    ensure!(described.contains("Weight:  31.4"), "{described}");
    Ok(())
}

pub fn are_created_and_deleted(world: &mut World) -> Result<()> {
    // kubectl reads OpenAPI to decide whether it validates fields itself. kube-apiserver queries a server that has just
    // started again only after a delay.
    world.eventually(|| {
        let listed = world.kubectl(["get", "--raw", "/openapi/v3"]).run()?;
        for path in ["\"apis/farm.example.com/v1\"", "\"apis/farm.example.com/v1alpha\""] {
            ensure!(listed.contains(path), "{listed}");
        }
        Ok(())
    })?;
    let create = || world.kubectl(["create", "-f", "-"]).input(&llama("shaun"));
    ensure!(create().run()? == "llama.farm.example.com/shaun created\n");
    let again = create().output()?;
    ensure!(again.errors.contains("llamas.farm.example.com \"shaun\" already exists"), "{again:?}");
    let selected = world.kubectl(["get", "llamas", "-l", "app=web", "-o", "name"]).run()?;
    ensure!(selected == "llama.farm.example.com/shaun\n", "{selected}");
    let odd = llama("odd").replace("\"weight\":20", "\"weight\":20,\"colour\":1");
    let refused = world.kubectl(["create", "-f", "-"]).input(&odd).output()?;
    let expected = "strict decoding error: unknown field \"spec.colour\"";
    ensure!(refused.errors.contains(expected), "{}", refused.errors);
    let wrong = llama("wrong").replace("\"weight\":20", "\"weight\":\"x\"");
    let refused = world.kubectl(["create", "-f", "-"]).input(&wrong).output()?;
    // A rule that cannot be evaluated is reported too.
    let expected = "The Llama \"wrong\" is invalid: \n* spec.weight: Invalid value: \"string\": spec.weight in body must be of type number: \"string\"\n* <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation\n";
    ensure!(refused.errors == expected, "{}", refused.errors);
    // kubectl waits until the deletion is complete.
    let deleted = world.kubectl(["delete", "llama", "shaun"]).run()?;
    ensure!(deleted.starts_with("llama.farm.example.com \"shaun\" deleted"), "{deleted}");
    let left = world.kubectl(["get", "llamas", "-o", "name"]).run()?;
    ensure!(left == "llama.farm.example.com/dolly\n", "{left}");
    Ok(())
}

pub fn are_watched(world: &mut World) -> Result<()> {
    let events = "--output-watch-events";
    let mut all = Following::start(world.kubectl(["get", "llamas", "-A", "-w", events]))?;
    all.wait_for(&["ADDED", "default", "dolly"])?;
    world.kubectl(["create", "-f", "-"]).input(&llama("timmy")).run()?;
    all.wait_for(&["ADDED", "default", "timmy", "20", "1.5"])?;
    // A watch of one object starts at resourceVersion 0. kubectl drops its first event, which it takes for the existing
    // object. The second event must not be lost.
    let mut one = Following::start(world.kubectl(["get", "llama", "timmy", "-w", events]))?;
    one.wait_for(&["ADDED", "timmy"])?;
    world.kubectl(["delete", "llama", "timmy"]).run()?;
    all.wait_for(&["DELETED", "default", "timmy", "20", "1.5"])?;
    one.wait_for(&["DELETED", "timmy", "20", "1.5"])?;
    Ok(())
}

/// A change in one version is visible in the other, and neither causes a warning.
pub fn are_the_same_in_both_versions(world: &mut World) -> Result<()> {
    let events = "--output-watch-events";
    let of_v1alpha = "llamas.v1alpha.farm.example.com";
    // kube-apiserver publishes a version in discovery a little after the APIService has become available.
    world.eventually(|| world.kubectl(["get", of_v1alpha, "dolly"]).run())?;
    let mut watch = Following::start(world.kubectl(["get", of_v1alpha, "-w", events]))?;
    watch.wait_for(&["ADDED", "dolly", "31.4"])?;
    let newer = |name: &str, weight: &str| {
        llama(name)
            .replace("farm.example.com/v1alpha", "farm.example.com/v1")
            .replace("\"weight\":20", &format!("\"weight\":\"{weight}\""))
            .replace("\"height\":1.5", "\"height\":\"1.5\"")
    };
    let created = world.kubectl(["create", "-f", "-"]).input(&newer("shaun", "45500m")).output()?;
    ensure!(created.succeeded && created.errors.is_empty(), "{created:?}");
    watch.wait_for(&["ADDED", "shaun", "45.5", "1.5"])?;
    let table = world.kubectl(["get", "llama", "shaun", "--no-headers"]).run()?;
    ensure!(table.split_whitespace().take(3).eq(["shaun", "45500m", "1.5"]), "{table}");
    let older = world.kubectl(["get", of_v1alpha, "shaun", "-o", "jsonpath={.spec}"]).output()?;
    ensure!(older.output == r#"{"height":1.5,"weight":45.5}"#, "{older:?}");
    ensure!(older.errors.is_empty(), "{older:?}");

    let newest = || world.kubectl(["get", "llama", "shaun", "-o", "jsonpath={.spec}"]).run();
    let heavier = r#"{"spec":{"weight":46}}"#;
    world.kubectl(["patch", of_v1alpha, "shaun", "--type=merge", "-p", heavier]).run()?;
    watch.wait_for(&["MODIFIED", "shaun", "46"])?;
    ensure!(newest()? == r#"{"height":"1.5","weight":"46"}"#, "{}", newest()?);
    let apply = |manager: &str, llama: &str| {
        let apply = ["apply", "--server-side", "--force-conflicts", manager, "-f", "-"];
        world.kubectl(apply).input(llama).run()
    };
    apply("--field-manager=shearer", &newer("shaun", "47"))?;
    let older = llama("shaun").replace("\"weight\":20", "\"weight\":48");
    let refused = ["apply", "--server-side", "--field-manager=vet", "-f", "-"];
    let refused = world.kubectl(refused).input(&older).output()?;
    let expected = "conflict with \"shearer\": .spec.weight";
    ensure!(refused.errors.contains(expected), "{refused:?}");
    apply("--field-manager=vet", &older)?;
    ensure!(newest()? == r#"{"height":"1.5","weight":"48"}"#, "{}", newest()?);

    let expected = "The Llama \"swapped\" is invalid: spec.weight: Invalid value: must not be less than height";
    for swapped in [newer("swapped", "1"), llama("swapped").replace("20", "1")] {
        let refused = world.kubectl(["create", "-f", "-"]).input(&swapped).output()?;
        ensure!(refused.errors.starts_with(expected), "{refused:?}");
    }
    world.kubectl(["delete", of_v1alpha, "shaun"]).run()?;
    watch.wait_for(&["DELETED", "shaun", "48"])?;
    let gone = world.kubectl(["get", "llama", "shaun", "--ignore-not-found"]).run()?;
    ensure!(gone.is_empty(), "{gone}");
    Ok(())
}

pub fn go_with_their_namespace(world: &mut World) -> Result<()> {
    world.kubectl(["create", "namespace", "meadow"]).run()?;
    world.kubectl(["create", "-n", "meadow", "-f", "-"]).input(&llama("shaun")).run()?;
    world.kubectl(["delete", "namespace", "meadow", "--timeout=120s"]).run()?;
    let left = world.kubectl(["get", "llamas", "-A", "-o", "name"]).run()?;
    ensure!(left == "llama.farm.example.com/dolly\n", "{left}");
    Ok(())
}

pub fn count_against_quota(world: &mut World) -> Result<()> {
    world.kubectl(["create", "namespace", "pasture"]).run()?;
    world.kubectl(["create", "-n", "pasture", "-f", "-"]).input(&llama("shaun")).run()?;
    let hard = "--hard=count/llamas.farm.example.com=5,count/configmaps=5";
    world.kubectl(["create", "quota", "herd", "-n", "pasture", hard]).run()?;
    let used = |expected: &str| {
        let path = "-o=jsonpath={.status.used}";
        let used = world.kubectl(["get", "quota", "herd", "-n", "pasture", path]).run()?;
        ensure!(used == expected, "{used}");
        Ok(())
    };
    // The quota controller counts the objects of its informer, which may be behind. An object that arrives later does
    // not cause a new count, but a change of the limits does.
    let mut limit = 5;
    world.eventually(|| {
        limit += 1;
        let limits = format!(r#"{{"spec":{{"hard":{{"count/configmaps":"{limit}"}}}}}}"#);
        world.kubectl(["patch", "quota", "herd", "-n", "pasture", "-p", &limits]).run()?;
        // Built-in kinds are counted only if the kinds of this server are.
        used(r#"{"count/configmaps":"1","count/llamas.farm.example.com":"1"}"#)
    })?;
    world.kubectl(["create", "configmap", "map", "-n", "pasture"]).run()?;
    world.eventually(|| used(r#"{"count/configmaps":"2","count/llamas.farm.example.com":"1"}"#))?;
    // Objects that exceed the quota are rejected as soon as the server knows the quota, with the message of
    // kube-apiserver.
    let limit = r#"{"spec":{"hard":{"count/llamas.farm.example.com":"1"}}}"#;
    world.kubectl(["patch", "quota", "herd", "-n", "pasture", "-p", limit]).run()?;
    let create = |name: &str, dry_run: &str| {
        let create = ["create", "-n", "pasture", "-f", "-", dry_run];
        world.kubectl(create).input(&llama(name)).output()
    };
    let exceeded = "Error from server (Forbidden): error when creating \"STDIN\": llamas.farm.example.com \"timmy\" is forbidden: exceeded quota: herd, requested: count/llamas.farm.example.com=1, used: count/llamas.farm.example.com=1, limited: count/llamas.farm.example.com=1\n";
    world.eventually(|| {
        let refused = create("timmy", "--dry-run=server")?;
        ensure!(refused.errors == exceeded, "{}", refused.errors);
        Ok(())
    })?;
    let refused = create("timmy", "--dry-run=none")?;
    ensure!(refused.errors == exceeded, "{}", refused.errors);
    // An update is not a creation.
    let heavier = r#"{"spec":{"weight":99}}"#;
    let patch = ["patch", "llama", "shaun", "-n", "pasture", "--type=merge", "-p", heavier];
    world.kubectl(patch).run()?;
    // The quota controller learns this from its watch, long before its next full count.
    world.kubectl(["delete", "llama", "shaun", "-n", "pasture"]).run()?;
    world.eventually(|| used(r#"{"count/configmaps":"2","count/llamas.farm.example.com":"0"}"#))?;
    // The quota has capacity again as soon as the llama is deleted, whether or not it has been recounted.
    ensure!(create("timmy", "--dry-run=none")?.succeeded);
    world.kubectl(["delete", "namespace", "pasture", "--timeout=120s"]).run()?;
    Ok(())
}

pub fn need_a_namespace_that_stays(world: &mut World) -> Result<()> {
    let create = ["create", "-n", "nowhere", "-f", "-"];
    let refused = world.kubectl(create).input(&llama("shaun")).output()?;
    let expected = "Error from server (NotFound): error when creating \"STDIN\": namespaces \"nowhere\" not found\n";
    ensure!(refused.errors == expected, "{}", refused.errors);
    // The namespace is usable as soon as it is created.
    world.kubectl(["create", "namespace", "barn"]).run()?;
    let create = |name: &str| {
        world.kubectl(["create", "-n", "barn", "-f", "-"]).input(&llama(name)).output()
    };
    ensure!(create("shaun")?.succeeded);
    // A finalizer holds the namespace during its deletion.
    let held = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": "barn", "finalizers": ["example.com/hold"]},
    });
    world.kubectl(["create", "-f", "-"]).input(&held.to_string()).run()?;
    world.kubectl(["delete", "namespace", "barn", "--wait=false"]).run()?;
    let expected = "unable to create new content in namespace barn because it is being terminated";
    world.eventually(|| {
        let refused = create("timmy")?;
        ensure!(refused.errors.contains(expected), "{}", refused.errors);
        Ok(())
    })?;
    let release = r#"{"metadata":{"finalizers":null}}"#;
    world.kubectl(["patch", "configmap", "held", "-n", "barn", "-p", release]).run()?;
    world.kubectl(["wait", "--for=delete", "namespace/barn", "--timeout=120s"]).run()?;
    Ok(())
}
