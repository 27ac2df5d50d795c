//! Admission webhooks of configurations are called for writes, and the effects of their errors are limited.

#![allow(clippy::unwrap_used)] // all of it is a test

#[path = "admission_webhooks/webhook.rs"]
mod webhook;

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::admission::{AdmissionResponse, AdmissionReview};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use tokio::sync::Notify;
use webhook::{Reply, Webhook, allowing, patching};

fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    from(json!({"metadata": {"name": name}}))
}

async fn judged_by(client: &Client, webhook: Value) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = from(json!({"metadata": {"name": "judges"}, "webhooks": [webhook]}));
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
}

async fn changed_by(client: &Client, webhook: Value) {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = from(json!({"metadata": {"name": "changers"}, "webhooks": [webhook]}));
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
}

/// Creates a ConfigMap. Returns it, or the error that a client reads.
async fn create(client: &Client, name: &str) -> Result<ConfigMap, String> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    match maps.create(&PostParams::default(), &config_map(name)).await {
        Ok(made) => Ok(made),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn a_webhook_of_kube_judges_and_changes() {
    let webhook = Webhook::start(|request| {
        let review: AdmissionReview<DynamicObject> = from(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
        }));
        let request = review.try_into().unwrap();
        let response = AdmissionResponse::from(&request);
        let response = match request.name.as_str() {
            "bad" => response.deny("it is bad"),
            _ => {
                let labels =
                    json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
                response.with_patch(from(labels)).unwrap()
            }
        };
        Reply::Raw(StatusCode::OK, json!(response.into_review()).to_string())
    })
    .await;
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    assert!(create(&client, "before").await.is_ok());
    changed_by(&client, webhook.about_config_maps(json!({}))).await;
    // A configuration takes effect at once.
    let good = create(&client, "good").await.unwrap();
    assert_eq!(good.labels()["a"], "b");
    let refused = create(&client, "bad").await.unwrap_err();
    assert_eq!(refused, "400 admission webhook \"it.example.com\" denied the request: it is bad");
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    configurations.delete("changers", &DeleteParams::default()).await.unwrap();
    assert!(create(&client, "bad").await.is_ok());
    assert_eq!(webhook.take_asked().len(), 2);
}

#[tokio::test]
async fn invalid_webhook_responses_are_reported_in_short_errors() {
    let mut deep = String::from("{\"response\":");
    (0..100_000).for_each(|_| deep.push('['));
    let many: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let many = json!({"allowed": true, "warnings": many});
    let numbers = vec!["256"; 1000].join(",");
    let numbers = format!("{{\"response\":{{\"patch\":[{numbers}]}}}}");
    let ok = StatusCode::OK;
    let wrong = [
        (Reply::Raw(ok, " ".repeat(5 << 20)), "the answer is larger than 4194304 bytes"),
        (Reply::Endless, "the answer is larger than 4194304 bytes"),
        (Reply::Raw(ok, deep), "couldn't get version/kind"),
        (Reply::Response(many), "json parse error"),
        (Reply::Raw(ok, numbers), "couldn't get version/kind"),
        (Reply::Raw(ok, "[]".to_owned()), "webhook response was absent"),
        (Reply::Raw(ok, String::new()), "couldn't get version/kind"),
        (Reply::Raw(ok, "{\"response\":5}".to_owned()), "expected struct Response"),
        (Reply::Raw(ok, "{}".to_owned()), "webhook response was absent"),
        (Reply::Raw(StatusCode::MOVED_PERMANENTLY, String::new()), "the status code 301"),
        (Reply::Raw(StatusCode::BAD_GATEWAY, "x".repeat(3 << 20)), "an error on the server"),
        (Reply::Response(json!({"allowed": "yes"})), "expected a boolean"),
        (
            Reply::Response(json!({"allowed": true, "patch": "?", "patchType": "JSONPatch"})),
            "response.patch is no base64",
        ),
    ];
    let replies: Vec<Reply> = wrong.iter().map(|(reply, _)| reply.clone()).collect();
    let webhook = Webhook::start(move |request| {
        let number: usize = request["name"].as_str().unwrap()[1..].parse().unwrap();
        replies[number].clone()
    })
    .await;
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    changed_by(&client, webhook.about_config_maps(json!({}))).await;
    for (number, (reply, expected)) in wrong.iter().enumerate() {
        let refused = create(&client, &format!("c{number}")).await.unwrap_err();
        let before = "500 Internal error occurred: failed calling webhook \"it.example.com\": ";
        assert!(refused.starts_with(before), "{refused}");
        assert!(refused.contains(expected), "{expected}: {refused}");
        assert!(refused.len() < 2_000, "{expected}: {} bytes of {reply:.20?}", refused.len());
    }
    // With `failurePolicy: Ignore`, none of these errors matters.
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let ignored =
        json!({"webhooks": [webhook.about_config_maps(json!({"failurePolicy": "Ignore"}))]});
    let change = Patch::Merge(&ignored);
    configurations.patch("changers", &PatchParams::default(), &change).await.unwrap();
    for number in 0..wrong.len() {
        create(&client, &format!("c{number}")).await.unwrap();
    }
}

#[tokio::test]
async fn webhook_patches_that_produce_an_invalid_object_fail_the_write() {
    let patches = [
        ("name", json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
        ("namespace", json!([{"op": "add", "path": "/metadata/namespace", "value": "other"}])),
        ("kind", json!([{"op": "replace", "path": "/kind", "value": "Secret"}])),
        ("version", json!([{"op": "replace", "path": "/apiVersion", "value": "v2"}])),
        ("metadata", json!([{"op": "replace", "path": "/metadata", "value": 5}])),
        ("data", json!([{"op": "add", "path": "/data", "value": {"a": 5}}])),
        ("whole", json!([{"op": "replace", "path": "", "value": null}])),
        ("operation", json!([{"op": "burn", "path": "/data"}])),
        ("large", json!([{"op": "add", "path": "/data", "value": {"a": "x".repeat(2 << 20)}}])),
    ];
    let known = patches.clone();
    let webhook = Webhook::start(move |request| {
        let patch = known.iter().find(|(name, _)| request["name"] == *name);
        patch.map_or_else(allowing, |(_, patch)| patching(patch))
    })
    .await;
    let names = patches.iter().map(|(name, _)| config_map(name));
    let server = TestServer::builder().objects(names).start().await.unwrap();
    let client = server.client();
    changed_by(&client, webhook.about_config_maps(json!({}))).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let data = json!({"data": {"b": "c"}});
    for (name, _) in patches {
        let written = maps.patch(name, &PatchParams::default(), &Patch::Merge(&data)).await;
        let Err(kube::Error::Api(status)) = written else { panic!("{name}: {written:?}") };
        assert!([500, 413, 422].contains(&status.code), "{name}: {status:?}");
        assert!(maps.get(name).await.unwrap().data.is_none(), "{name}");
    }
}

#[tokio::test]
async fn a_silent_webhook_does_not_block_other_requests() {
    let webhook = Webhook::start(|_| Reply::Silence).await;
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    judged_by(&client, webhook.about_config_maps(json!({"timeoutSeconds": 30}))).await;
    let waiting: Vec<_> = (0..20)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { create(&client, &format!("c{number}")).await })
        })
        .collect();
    webhook.was_asked(20).await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = from(json!({"metadata": {"name": "s"}}));
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    assert!(maps.list(&Default::default()).await.unwrap().items.is_empty());
    assert!(waiting.iter().all(|one| !one.is_finished()));
    waiting.iter().for_each(|one| one.abort());
}

#[tokio::test]
async fn a_webhook_that_exceeds_its_timeout_fails_the_request() {
    let webhook = Webhook::start(|_| Reply::Silence).await;
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    judged_by(&client, webhook.about_config_maps(json!({"timeoutSeconds": 1}))).await;
    let refused = create(&client, "a").await.unwrap_err();
    assert!(refused.ends_with("/ask?timeout=1s\": context deadline exceeded"), "{refused}");
}

#[tokio::test]
async fn a_webhook_can_wait_for_another_write_that_calls_the_same_webhook() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let (outer, is_written) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let notified = (Arc::clone(&outer), Arc::clone(&is_written));
    let webhook = Webhook::start(move |request| {
        if request["name"] != "outer" {
            return allowing();
        }
        notified.0.notify_one();
        Reply::AllowsWhen(Arc::clone(&notified.1))
    })
    .await;
    changed_by(&client, webhook.about_config_maps(json!({}))).await;
    let inner = client.clone();
    tokio::spawn(async move {
        outer.notified().await;
        create(&inner, "inner").await.unwrap();
        is_written.notify_one();
    });
    create(&client, "outer").await.unwrap();
    let names: Vec<Value> = webhook.take_asked().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["outer", "inner"]);
}

#[tokio::test]
async fn webhooks_receive_defaulted_pods_and_patched_pods_are_defaulted_again() {
    let webhook = Webhook::start(|_| {
        patching(&json!([
            {"op": "test", "path": "/spec/restartPolicy", "value": "Always"},
            {"op": "replace", "path": "/spec/dnsPolicy", "value": "Default"},
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "side"}},
        ]))
    })
    .await;
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let mut hook = webhook.about_config_maps(json!({}));
    hook["rules"][0]["resources"] = json!(["pods"]);
    changed_by(&client, hook).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod = from(json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    }));
    let made = json!(pods.create(&PostParams::default(), &pod).await.unwrap());
    assert_eq!(made["spec"]["dnsPolicy"], "Default");
    assert_eq!(made["spec"]["containers"][1]["terminationMessagePath"], "/dev/termination-log");
    let asked = webhook.take_asked();
    assert_eq!(asked[0]["object"]["status"], json!({}));
    assert_eq!(asked[0]["object"]["metadata"], json!({"name": "p", "namespace": "default"}));
}

#[tokio::test]
async fn webhooks_receive_and_patch_scale_subresources_as_scale_objects() {
    let webhook = Webhook::start(|_| {
        patching(&json!([{"op": "replace", "path": "/spec/replicas", "value": 7}]))
    })
    .await;
    let deployment: Deployment = from(json!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }));
    let server = TestServer::builder().objects([deployment]).start().await.unwrap();
    let client = server.client();
    let mut hook = webhook.about_config_maps(json!({}));
    hook["rules"][0]["resources"] = json!(["deployments/scale"]);
    hook["rules"][0]["apiGroups"] = json!(["apps"]);
    changed_by(&client, hook).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let change = json!({"spec": {"replicas": 3}});
    let change = Patch::Merge(&change);
    let scale = deployments.patch_scale("d", &PatchParams::default(), &change).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(7));
    let asked = webhook.take_asked();
    assert_eq!(asked[0]["kind"]["kind"], "Scale");
    assert_eq!(asked[0]["object"]["spec"]["replicas"], 3);
    assert_eq!(asked[0]["oldObject"]["spec"]["replicas"], 1);
    assert_eq!(deployments.get("d").await.unwrap().spec.unwrap().replicas, Some(7));
}
