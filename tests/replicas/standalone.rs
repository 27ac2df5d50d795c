//! Standalone servers with one etcd. Definitions are created and deleted at any of them, and all servers apply them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use test_cluster::{Etcd, Standalone};
use test_server::client;
use tokio::time::sleep;

/// The timeout for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
const DEFINITION: &str = "foos.example.com";
/// The number of times that a definition is created and deleted.
const ROUNDS: u32 = 12;

/// A server. Dropping it stops the server.
struct Server {
    _program: Standalone,
    client: Client,
}

impl Server {
    async fn start(etcd: &[String], certificates: &Path) -> Result<Self> {
        let (etcd, certificates) = (etcd.join(","), certificates.display().to_string());
        let flags = ["--etcd-servers", &etcd, "--cert-dir", &certificates];
        let program = Standalone::start(env!("CARGO_BIN_EXE_farm-operator"), &flags)?;
        Ok(Self { client: client(&program.kubeconfig).await?, _program: program })
    }

    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    fn foos(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("example.com", "v1", "Foo");
        let resource = ApiResource::from_gvk_with_plural(&kind, "foos");
        Api::default_namespaced_with(self.client.clone(), &resource)
    }
}

fn definition(property: &str) -> Result<CustomResourceDefinition> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    property: {"type": "string"},
                }}},
            }],
        },
    }))?)
}

fn foo(name: &str, content: &Value) -> Result<DynamicObject> {
    let mut object = json!({
        "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name},
    });
    for (field, value) in content.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    Ok(serde_json::from_value(object)?)
}

/// Polls until a condition holds.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await.with_context(|| what.to_owned())? {
        ensure!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Whether the kind is served.
async fn is_served(server: &Server) -> Result<bool> {
    match server.foos().list(&ListParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standalone_servers_on_one_etcd_serve_the_same_definitions_and_objects() -> Result<()> {
    let Some(etcd) = Etcd::start_unless_missing(1)? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let urls = etcd.urls();
    // The etcd is empty, and both servers start at the same time.
    let (one, other) =
        tokio::join!(Server::start(&urls, folder.path()), Server::start(&urls, folder.path()),);
    let (one, other) = (one?, other?);
    let post = PostParams::default();
    let namespaces = |server: &Server| Api::<Namespace>::all(server.client.clone());
    ensure!(
        namespaces(&one).get("default").await?.uid()
            == namespaces(&other).get("default").await?.uid()
    );

    // A definition is created at one server and changed at the other.
    one.definitions().create(&post, &definition("text")?).await?;
    for server in [&one, &other] {
        until("it is served", async || is_served(server).await).await?;
    }
    let created =
        other.foos().create(&post, &foo("a", &json!({"text": "1", "more": "2"}))?).await?;
    ensure!(created.data == json!({"text": "1"}), "{created:?}");
    ensure!(one.foos().get("a").await?.uid() == created.uid());
    let change = Patch::Merge(json!({"spec": definition("more")?.spec}));
    other.definitions().patch(DEFINITION, &PatchParams::default(), &change).await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for server in [&one, &other] {
        until("the change is known", async || {
            let made = server.foos().create(&dry_run, &foo("b", &json!({"more": "2"}))?).await?;
            Ok(made.data == json!({"more": "2"}))
        })
        .await?;
    }

    // Each server accepts the tokens of the other, because they share a directory.
    let accounts =
        |server: &Server| Api::<ServiceAccount>::default_namespaced(server.client.clone());
    accounts(&one)
        .create(
            &post,
            &ServiceAccount {
                metadata: serde_json::from_value(json!({"name": "robot"}))?,
                ..ServiceAccount::default()
            },
        )
        .await?;
    let request = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let token = accounts(&one).create_token_request("robot", &post, &request).await?;
    let token = token.status.context("a status")?.token;
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let reviewed = http::Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())?;
    let reviewed: Value = other.client.request(reviewed).await?;
    ensure!(
        reviewed["status"]["user"]["username"] == "system:serviceaccount:default:robot",
        "{reviewed}"
    );

    // The deletion of a namespace deletes the objects of both servers.
    let lost = serde_json::from_value(json!({"metadata": {"name": "lost"}}))?;
    namespaces(&one).create(&post, &lost).await?;
    let kept: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "kept"}}))?;
    Api::namespaced(other.client.clone(), "lost").create(&post, &kept).await?;
    namespaces(&other).delete("lost", &DeleteParams::default()).await?;
    until("the namespace is gone", async || Ok(namespaces(&one).get_opt("lost").await?.is_none()))
        .await?;

    // One server is killed, and its successor knows the whole state.
    drop(one);
    let one = Server::start(&urls, folder.path()).await?;
    ensure!(one.foos().get("a").await?.uid() == created.uid());
    other.definitions().delete(DEFINITION, &DeleteParams::default()).await?;
    for server in [&one, &other] {
        until("it is not served", async || Ok(!is_served(server).await?)).await?;
    }
    Ok(())
}

/// A definition that is created again has no objects of the previous one, and loses none of its own, however fast this
/// happens and at whichever server.
#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_definition_has_none_of_its_earlier_objects() -> Result<()> {
    let Some(etcd) = Etcd::start_unless_missing(1)? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let urls = etcd.urls();
    let servers =
        [Server::start(&urls, folder.path()).await?, Server::start(&urls, folder.path()).await?];
    for round in 0..ROUNDS {
        let here = &servers[round as usize % 2];
        let there = &servers[(round as usize / 2 + 1) % 2];
        // The deletion of the previous definition may still be in progress.
        until("it is made", async || {
            match here.definitions().create(&PostParams::default(), &definition("text")?).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
        .await?;
        let name = format!("of-{round}");
        until("an object is made", async || {
            let made = foo(&name, &json!({"text": "1"}))?;
            match there.foos().create(&PostParams::default(), &made).await {
                Ok(_) => Ok(true),
                // The kind is not served there yet, or the previous definition is still served there.
                Err(kube::Error::Api(status)) if [404, 405].contains(&status.code) => Ok(false),
                Err(kube::Error::Api(status)) if status.message.contains("is terminating") => {
                    Ok(false)
                }
                Err(error) => Err(error.into()),
            }
        })
        .await?;
        for server in &servers {
            until("it is served", async || is_served(server).await).await?;
            let found = server.foos().list(&ListParams::default()).await?.items;
            let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
            ensure!(names == [name.clone()], "round {round}: {names:?}");
        }
        there.definitions().delete(DEFINITION, &DeleteParams::default()).await?;
    }
    Ok(())
}
