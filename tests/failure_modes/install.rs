//! Installation, coexistence with other products, and removal.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use test_cluster::{Authority, Process};

use crate::rest::{self, Work};
use crate::stage::{REGISTRATIONS, SERVICE, Stage, llama, namespace};
use crate::world::{API_SERVICES, NAMESPACE, command_of_another, install, manifest_file};

fn manifest() -> Result<String> {
    Ok(std::fs::read_to_string(manifest_file())?)
}

/// Without APIServices the cluster has no llamas, and no operation waits for any. The server sets its CA in an
/// APIService that is created again.
pub fn the_api_service_is_made_anew(stage: &mut Stage) -> Result<()> {
    let found = |name: &str| stage.get(&format!("{REGISTRATIONS}/{name}"));
    let before = API_SERVICES.map(found);
    let [v1, v1alpha] = API_SERVICES;
    stage.kubectl(["delete", "apiservice", v1, v1alpha]).run()?;
    rest::is_undisturbed_without_llamas(stage, "unregistered")?;
    let unknown = stage.fresh_kubectl(&["get", "llamas"])?;
    let expected = "error: the server doesn't have a resource type \"llamas\"\n";
    ensure!(unknown.errors == expected, "{}", unknown.errors);
    let mut bundles = Vec::new();
    for (name, before) in API_SERVICES.into_iter().zip(before) {
        let mut spec = before?["spec"].take();
        let bundle = spec.as_object_mut().and_then(|spec| spec.remove("caBundle"));
        bundles.push((name, bundle.with_context(|| format!("{name} has no caBundle"))?));
        stage.create(&json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name}, "spec": spec,
        }))?;
    }
    stage.wait_available()?;
    for (name, bundle) in bundles {
        ensure!(found(name)?["spec"]["caBundle"] == bundle, "{name}");
    }
    rest::is_silent(stage)
}

/// The server does not change the APIService of another product, nor set its CA there.
pub fn the_api_service_is_of_another(stage: &mut Stage) -> Result<()> {
    let lead_to = |name: &str, bundle: Value| {
        let spec = json!({"service": {"name": name}, "caBundle": bundle});
        stage.patch_api_services(&json!({"spec": spec}))
    };
    let before = stage.api_service()?;
    lead_to("of-another", Value::Null)?;
    stage.wait_unavailable("service/of-another in \"farm-operator\" is not present")?;
    stage.world.eventually(|| {
        let log = stage.world.server.printed();
        ensure!(log.contains("refers to another Service; it is not changed"), "{log}");
        Ok(())
    })?;
    let left = stage.api_service()?;
    ensure!(left["spec"]["caBundle"].is_null(), "{left}");
    ensure!(left["spec"]["service"]["name"] == "of-another", "{left}");
    lead_to(SERVICE.1, Value::Null)?;
    stage.wait_available()?;
    ensure!(stage.api_service()?["spec"] == before["spec"]);
    rest::is_silent(stage)
}

/// If the APIService has another CA, the server sets its own again.
pub fn another_authority_is_named(stage: &mut Stage) -> Result<()> {
    let before = stage.api_service()?["spec"]["caBundle"].take();
    let authority =
        Authority::new("another", &stage.world.control_plane.folder().join("another.crt"))?;
    let bundle = STANDARD.encode(std::fs::read(&authority.file)?);
    stage.patch_api_services(&json!({"spec": {"caBundle": bundle}}))?;
    stage.world.eventually(|| {
        ensure!(stage.api_service()?["spec"]["caBundle"] == before, "it knows another CA");
        Ok(())
    })?;
    stage.wait_available()
}

/// A hardened container, in which the program cannot write files.
pub fn nothing_can_be_written(stage: &mut Stage) -> Result<()> {
    // No user can write there.
    const FOLDER: &str = "/proc";
    ensure!(std::fs::create_dir(format!("{FOLDER}/apiserver.local.config")).is_err());
    let (port, mut command) = command_of_another(&stage.world.server_kubeconfig)?;
    command.current_dir(FOLDER).env("HOME", FOLDER).env("TMPDIR", FOLDER);
    let _process = Process::spawn(&command, &stage.fresh_folder("read-only.log"))?;
    stage.switch.lead_to(port);
    stage.wait_available()?;
    // The response may have come over an earlier connection.
    stage.world.eventually(|| stage.kubectl(["get", "llama", "dolly"]).run())?;
    stage.switch.lead_to(stage.world.port);
    stage.wait_available()
}

/// A CustomResourceDefinition of the same group and version does not affect the server.
pub fn a_definition_of_our_group(stage: &mut Stage) -> Result<()> {
    let before = stage.api_service()?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    stage.create(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sheep.farm.example.com"},
        "spec": {
            "group": "farm.example.com", "scope": "Namespaced",
            "names": {"kind": "Sheep", "plural": "sheep"},
            "versions": [{"name": "v1alpha", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    }))?;
    let definition = "crd/sheep.farm.example.com";
    let wait = ["wait", "--for=condition=Established", definition, "--timeout=120s"];
    stage.kubectl(wait).run()?;
    ensure!(stage.api_service()?["spec"] == before["spec"]);
    stage.kubectl(["get", "llama", "dolly"]).run()?;
    // The server receives requests for this kind, and cannot know that no other release serves it.
    let sheep = "/apis/farm.example.com/v1alpha/namespaces/default/sheep";
    let sheep = stage.ask(sheep, "application/json")?;
    ensure!(sheep.status() == StatusCode::SERVICE_UNAVAILABLE, "{}", sheep.status());
    rest::is_undisturbed(stage, "sheep")?;
    stage.kubectl(["delete", definition]).run()?;
    ensure!(stage.api_service()?["spec"] == before["spec"]);
    Ok(())
}

/// A policy of the cluster denies llamas in the same way as Secrets, until it is deleted.
pub fn policies_reach_llamas(stage: &mut Stage) -> Result<()> {
    let everything = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["secrets", "llamas"],
    }]);
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "policed"}});
    stage.create(&json!([
        namespace("policed"),
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "nothing"}, "spec": {
                "matchConstraints": {"resourceRules": everything},
                "validations": [{"expression": "false"}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "nothing"}, "spec": {
                "policyName": "nothing", "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": selector},
            },
        },
    ]))?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "policed"},
    });
    for object in [secret, llama("policed", "x")] {
        stage.world.eventually(|| {
            let create = stage.kubectl(["create", "--dry-run=server", "-f", "-"]);
            let answer = create.input(&object.to_string()).output()?;
            let expected =
                "ValidatingAdmissionPolicy 'nothing' with binding 'nothing' denied request";
            ensure!(answer.errors.contains(expected), "{answer:?}");
            Ok(())
        })?;
    }
    let policy = ["validatingadmissionpolicybinding/nothing", "validatingadmissionpolicy/nothing"];
    stage.kubectl(["delete", policy[0], policy[1]]).run()?;
    stage.world.eventually(|| stage.create(&llama("policed", "x")))?;
    rest::delete_namespace(stage, "policed")?;
    rest::is_gone(stage, "policed")
}

/// A webhook of the cluster that cannot be reached refuses llamas in the same way as Secrets, until it is deleted.
pub fn webhooks_reach_llamas(stage: &mut Stage) -> Result<()> {
    stage.create(&json!([
        namespace("hooked"),
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "away"}, "webhooks": [{
                "name": "away.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://127.0.0.1:1/away"},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hooked"}},
                "rules": [{
                    "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"],
                    "resources": ["secrets", "llamas"],
                }],
            }],
        },
    ]))?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "hooked"},
    });
    let mut refused = Vec::new();
    for object in [secret, llama("hooked", "x")] {
        refused.push(stage.world.eventually(|| {
            let create = stage.kubectl(["create", "--dry-run=server", "-f", "-"]);
            let answer = create.input(&object.to_string()).output()?;
            ensure!(answer.errors.contains("failed calling webhook"), "{answer:?}");
            Ok(answer.errors)
        })?);
    }
    ensure!(refused[0] == refused[1], "{refused:?}");
    stage.create(&llama("default", "unhooked"))?;
    stage.kubectl(["delete", "validatingwebhookconfiguration", "away"]).run()?;
    stage.world.eventually(|| stage.create(&llama("hooked", "x")))?;
    stage.kubectl(["delete", "llama", "unhooked"]).run()?;
    rest::delete_namespace(stage, "hooked")?;
    rest::is_gone(stage, "hooked")
}

/// The namespace is deleted but the APIService remains. It blocks the deletion of every namespace until it is removed
/// by the single command in the README. After that, the program can be installed again.
pub fn the_api_service_is_left_behind(stage: &mut Stage) -> Result<()> {
    rest::delete_namespace(stage, NAMESPACE)?;
    stage.world.server.kill();
    stage.wait_unavailable("is not present")?;
    let work = Work::give(stage, "left")?;
    work.delete_namespace(stage)?;
    work.is_collected_and_counted(stage)?;
    work.waits_for_us(stage)?;
    rest::is_held_by_discovery(stage, NAMESPACE)?;
    let readme = include_str!("../../README.md");
    let [v1, v1alpha] = API_SERVICES;
    let command = format!("kubectl delete apiservice {v1} {v1alpha}");
    ensure!(readme.contains(&command), "the README does not say {command}");
    stage.kubectl(["delete", "apiservice", v1, v1alpha]).run()?;
    work.finish(stage)?;
    rest::is_gone(stage, NAMESPACE)?;
    rest::is_silent(stage)?;
    install(&stage.world.control_plane)?;
    stage.world.restart_server()?;
    stage.lead_through_the_switch()?;
    rest::is_silent(stage)
}

/// The objects are removed one by one, the APIService last. The deletion of namespaces waits for it until then. The
/// second time, the namespace is deleted first, as with `kubectl delete namespace`.
pub fn everything_is_removed_in_another_order(stage: &mut Stage) -> Result<()> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest()?)?;
    let is_namespace = |object: &Value| object["kind"] == "Namespace";
    let backwards: Vec<&Value> = objects.iter().rev().collect();
    let (namespace, others): (Vec<&Value>, Vec<&Value>) =
        backwards.iter().partition(|object| is_namespace(object));
    for order in [backwards.clone(), [namespace, others].concat()] {
        for object in order {
            let delete = ["delete", "--wait=false", "--ignore-not-found", "-f", "-"];
            stage.kubectl(delete).input(&object.to_string()).run()?;
        }
        stage.world.server.kill();
        rest::is_gone(stage, NAMESPACE)?;
        rest::is_undisturbed_without_llamas(stage, "backwards")?;
        install(&stage.world.control_plane)?;
        stage.world.restart_server()?;
        stage.lead_through_the_switch()?;
        rest::is_silent(stage)?;
    }
    Ok(())
}

/// `kubectl delete -f app.yaml` deletes the APIService first, so that no operation waits for it.
pub fn everything_is_removed(stage: &mut Stage) -> Result<()> {
    let manifest = manifest()?;
    let first = manifest.split("\n---\n").nth(1).context("no manifest")?;
    ensure!(first.contains("kind: APIService"), "{first}");
    stage.kubectl(["delete", "--wait=false", "-f", "-"]).input(&manifest).run()?;
    stage.world.server.kill();
    rest::is_gone(stage, NAMESPACE)?;
    rest::is_undisturbed_without_llamas(stage, "after")
}
