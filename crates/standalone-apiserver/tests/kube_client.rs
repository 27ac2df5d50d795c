//! A server in process, used as kube-rs code uses a real one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope, pinned_kind};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use tokio::time::timeout;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Foo", namespaced, status = "FooStatus")]
struct FooSpec {
    size: i64,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct FooStatus {
    phase: String,
}

async fn server() -> Result<TestServer> {
    Ok(TestServer::builder().crd(Foo::crd()).start().await?)
}

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn pod(name: &str) -> Result<Pod> {
    let containers = json!([{"name": "a", "image": "registry.example.com/a:1"}]);
    Ok(serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": {"containers": containers}}),
    )?)
}

#[tokio::test]
async fn built_in_kinds_support_create_patch_replace_list_and_delete() -> Result<()> {
    let server = server().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let made = maps.create(&PostParams::default(), &map("a")).await?;
    ensure!(made.uid().is_some() && made.resource_version().is_some());
    let again = maps.create(&PostParams::default(), &map("a")).await;
    ensure!(matches!(&again, Err(kube::Error::Api(s)) if s.is_already_exists()), "{again:?}");
    let patch = Patch::Merge(json!({"data": {"x": "y"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await?;
    ensure!(patched.data.context("data")?["x"] == "y");
    let stale = maps.replace("a", &PostParams::default(), &made).await;
    ensure!(matches!(&stale, Err(kube::Error::Api(s)) if s.is_conflict()), "{stale:?}");
    let selected = maps.list(&ListParams::default().fields("metadata.name=a")).await?;
    ensure!(selected.items.len() == 1);
    maps.delete("a", &DeleteParams::default()).await?;
    ensure!(maps.get_opt("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn omitted_fields_of_pods_and_secrets_are_defaulted() -> Result<()> {
    let server = server().await?;
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let made = pods.create(&PostParams::default(), &pod("a")?).await?;
    let spec = made.spec.context("spec")?;
    ensure!(spec.restart_policy.as_deref() == Some("Always"));
    ensure!(spec.containers[0].image_pull_policy.as_deref() == Some("IfNotPresent"));
    ensure!(made.status.context("status")?.phase.as_deref() == Some("Pending"));
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    let running = pods.patch_status("a", &PatchParams::default(), &running).await?;
    ensure!(running.status.context("status")?.phase.as_deref() == Some("Running"));

    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let secret = json!({"metadata": {"name": "a"}, "stringData": {"x": "y"}});
    let made = secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    ensure!(made.data.context("data")?["x"].0 == b"y" && made.string_data.is_none());
    Ok(())
}

#[tokio::test]
async fn an_object_with_a_field_of_the_wrong_type_is_rejected() -> Result<()> {
    let server = server().await?;
    let kind = GroupVersionKind::gvk("", "v1", "Pod");
    let (resource, able) = pinned_kind(&server.client(), &kind).await?;
    ensure!(able.scope == Scope::Namespaced);
    let pods: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &resource);
    let odd = DynamicObject::new("a", &resource).data(json!({"spec": {"containers": "none"}}));
    let refused = pods.create(&PostParams::default(), &odd).await;
    let Err(kube::Error::Api(status)) = refused else { anyhow::bail!("{refused:?}") };
    let expected = "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container";
    ensure!(status.code == 400 && status.message.ends_with(expected), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn custom_kinds_are_validated_and_watched() -> Result<()> {
    let server = server().await?;
    let foos: Api<Foo> = Api::namespaced(server.client(), "default");
    let mut watching = foos.watch(&WatchParams::default(), "0").await?.boxed();
    foos.create(&PostParams::default(), &Foo::new("a", FooSpec { size: 1 })).await?;
    let patch = Patch::Merge(json!({"spec": {"size": "large"}}));
    let refused = foos.patch("a", &PatchParams::default(), &patch).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422), "{refused:?}");
    let mut event = timeout(PATIENCE, watching.try_next()).await??.context("an event")?;
    while matches!(event, WatchEvent::Bookmark(_)) {
        event = timeout(PATIENCE, watching.try_next()).await??.context("an event")?;
    }
    ensure!(matches!(&event, WatchEvent::Added(foo) if foo.name_any() == "a"), "{event:?}");
    Ok(())
}

#[tokio::test]
async fn a_reflector_follows_in_both_ways() -> Result<()> {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = server().await?;
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        maps.create(&PostParams::default(), &map("a")).await?;
        let (reader, writer) = reflector::store();
        let stream = reflector(writer, watcher(maps.clone(), config)).applied_objects();
        let mut stream = stream.boxed();
        let first = timeout(PATIENCE, stream.try_next()).await??.context("an object")?;
        ensure!(first.name_any() == "a");
        maps.create(&PostParams::default(), &map("b")).await?;
        let second = timeout(PATIENCE, stream.try_next()).await??.context("an object")?;
        ensure!(second.name_any() == "b" && reader.state().len() == 2);
    }
    Ok(())
}

#[tokio::test]
async fn creating_an_object_in_a_missing_namespace_returns_not_found() -> Result<()> {
    let server = server().await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "nowhere");
    let refused = maps.create(&PostParams::default(), &map("a")).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.is_not_found()), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn deleting_a_namespace_deletes_its_objects() -> Result<()> {
    let server = server().await?;
    let client = server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some("n".to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let made = namespaces.create(&PostParams::default(), &namespace).await?;
    ensure!(made.status.context("status")?.phase.as_deref() == Some("Active"));
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    maps.create(&PostParams::default(), &map("a")).await?;
    let foos: Api<Foo> = Api::namespaced(client, "n");
    foos.create(&PostParams::default(), &Foo::new("a", FooSpec { size: 1 })).await?;
    let mut changes = namespaces.watch(&WatchParams::default(), "0").await?.boxed();
    namespaces.delete("n", &DeleteParams::default()).await?;
    let gone = async {
        while let Some(event) = changes.try_next().await? {
            if matches!(&event, WatchEvent::Deleted(gone) if gone.name_any() == "n") {
                return anyhow::Ok(());
            }
        }
        anyhow::bail!("the watch has ended")
    };
    timeout(PATIENCE, gone).await??;
    ensure!(maps.list(&ListParams::default()).await?.items.is_empty());
    ensure!(foos.get_opt("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_recreated_namespace_is_empty_and_default_cannot_be_deleted() -> Result<()> {
    let server = server().await?;
    let namespaces: Api<Namespace> = Api::all(server.client());
    let metadata = ObjectMeta { name: Some("n".to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    for _ in 0..5 {
        namespaces.create(&PostParams::default(), &namespace).await?;
        let maps: Api<ConfigMap> = Api::namespaced(server.client(), "n");
        maps.create(&PostParams::default(), &map("a")).await?;
        let mut changes = namespaces.watch(&WatchParams::default(), "0").await?.boxed();
        // Without its finalizer it would leave everything behind.
        let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        namespaces.patch("n", &PatchParams::default(), &strip).await?;
        namespaces.delete("n", &DeleteParams::default()).await?;
        while let Some(event) = timeout(PATIENCE, changes.try_next()).await?? {
            if matches!(&event, WatchEvent::Deleted(gone) if gone.name_any() == "n") {
                break;
            }
        }
        ensure!(maps.list(&ListParams::default()).await?.items.is_empty());
    }
    let refused = namespaces.delete("default", &DeleteParams::default()).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.is_forbidden()), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn objects_are_there_from_the_start() -> Result<()> {
    let mut foo = Foo::new("a", FooSpec { size: 1 });
    foo.status = Some(FooStatus { phase: "Grown".to_owned() });
    foo.metadata.namespace = Some("field".to_owned());
    let server = TestServer::builder().crd(Foo::crd()).objects([foo]).start().await?;
    let foos: Api<Foo> = Api::namespaced(server.client(), "field");
    ensure!(foos.get("a").await?.status.context("status")?.phase == "Grown");
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Bar", "metadata": {"name": "a"}});
    let refused = TestServer::builder().objects([unknown]).start().await.err();
    let refused = refused.context("it starts")?.to_string();
    ensure!(
        refused
            == "object 0 (Bar \"a\"): example.com/v1 Bar is not served: give its CustomResourceDefinition too",
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn requests_are_authorized_as_the_user_of_the_client() -> Result<()> {
    let server = server().await?;
    let jane = server.client_as("jane", ["farmers"]);
    let reviews: Api<SelfSubjectReview> = Api::all(jane.clone());
    let who = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let refused = Api::<ConfigMap>::default_namespaced(jane).list(&ListParams::default()).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.is_forbidden()), "{refused:?}");
    let who = who?.status.context("status")?.user_info.context("user")?;
    ensure!(who.username.as_deref() == Some("jane"), "{who:?}");
    ensure!(who.groups.context("groups")? == ["farmers", "system:authenticated"]);
    let may: Api<SelfSubjectAccessReview> = Api::all(server.client());
    let question = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = may.create(&PostParams::default(), &serde_json::from_value(question)?).await?;
    ensure!(answer.status.context("status")?.allowed);
    Ok(())
}

#[tokio::test]
async fn everything_is_discovered() -> Result<()> {
    let server = server().await?;
    for discovery in [
        Discovery::new(server.client()).run().await?,
        Discovery::new(server.client()).run_aggregated().await?,
    ] {
        ensure!(discovery.has_group("") && discovery.has_group("apps"));
        let foo = discovery.resolve_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
        ensure!(foo.is_some());
        let deployment = discovery.resolve_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let (resource, able) = deployment.context("Deployment")?;
        ensure!(resource.plural == "deployments" && able.subresources.len() == 2);
    }
    Ok(())
}

#[tokio::test]
async fn replicas_are_scaled() -> Result<()> {
    let server = server().await?;
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}});
    let deployment = json!({
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let made: Deployment =
        deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
    ensure!(made.spec.context("spec")?.replicas == Some(1));
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let scale = deployments.patch_scale("a", &PatchParams::default(), &patch).await?;
    ensure!(scale.spec.context("spec")?.replicas == Some(3));
    ensure!(deployments.get("a").await?.spec.context("spec")?.replicas == Some(3));
    Ok(())
}

#[tokio::test]
async fn the_clock_is_the_tests() -> Result<()> {
    let begun = "2030-01-01T00:00:00Z".parse()?;
    let server = TestServer::builder().time(begun).start().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let made = |map: ConfigMap| map.creation_timestamp().context("a time").map(|time| time.0);
    ensure!(made(maps.create(&PostParams::default(), &map("a")).await?)? == begun);
    server.advance(Duration::from_secs(90));
    let later = made(maps.create(&PostParams::default(), &map("b")).await?)?;
    ensure!(later.as_second() - begun.as_second() == 90);
    Ok(())
}

#[tokio::test]
async fn dropping_a_test_server_closes_watches_and_refuses_requests() -> Result<()> {
    let server = server().await?;
    let client: Client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut watching = maps.watch(&WatchParams::default(), "0").await?.boxed();
    drop(server);
    let ended = timeout(PATIENCE, async { while watching.next().await.is_some() {} }).await;
    ensure!(ended.is_ok(), "the watch goes on");
    ensure!(maps.list(&ListParams::default()).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_test_servers_are_independent() -> Result<()> {
    let servers = (0..200).map(|number| {
        tokio::spawn(async move {
            let server = TestServer::builder().crd(Foo::crd()).start().await?;
            let foos: Api<Foo> = Api::default_namespaced(server.client());
            let foo = Foo::new(&format!("foo-{number}"), FooSpec { size: number });
            foos.create(&PostParams::default(), &foo).await?;
            let found = foos.list(&ListParams::default()).await?.items;
            ensure!(found.len() == 1 && found[0].spec.size == number);
            Ok(server)
        })
    });
    let mut running = Vec::new();
    for server in servers.collect::<Vec<_>>() {
        running.push(server.await??);
    }
    ensure!(running.len() == 200);
    Ok(())
}

#[tokio::test]
async fn pod_tables_have_the_columns_of_kubectl() -> Result<()> {
    let server = server().await?;
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    pods.create(&PostParams::default(), &pod("a")?).await?;
    let request = http::Request::get("/api/v1/namespaces/default/pods")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = server.client().request(request).await?;
    let headings: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|column| column["name"].as_str())
        .collect();
    ensure!(headings[..5] == ["Name", "Ready", "Status", "Restarts", "Age"], "{headings:?}");
    let cells = table["rows"][0]["cells"].as_array().context("cells")?;
    ensure!(cells[..4] == ["a", "0/1", "Pending", "0"], "{cells:?}");
    Ok(())
}
