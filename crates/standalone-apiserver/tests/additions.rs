//! The additions of a program to a server without a cluster: hooks, checks, metrics and layers.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::time::Duration;

use aggregated_apiserver::serving::PostStart;
use aggregated_apiserver::{ApiServer, Kinds, ServeArgs};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use standalone_apiserver::{Standalone, StandaloneArgs, TestServer};
use tokio::sync::oneshot;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Adds a hook that creates a ConfigMap beside an object of the start, and then sends a client of the server.
fn with_hook(server: ApiServer, sender: oneshot::Sender<kube::Client>) -> ApiServer {
    server.with_post_start_hook("config-map", async move |server: PostStart| {
        let maps: Api<ConfigMap> = Api::default_namespaced(server.cluster_client());
        maps.get("loaded").await?;
        maps.create(&PostParams::default(), &config_map("created")).await?;
        let _ = sender.send(server.client());
        Ok::<(), kube::Error>(())
    })
}

fn on_a_free_port() -> ServeArgs {
    let mut args = ServeArgs::default();
    args.secure_port = 0;
    args
}

async fn expect_created(receiver: oneshot::Receiver<kube::Client>) -> kube::Client {
    let client = timeout(PATIENCE, receiver).await.unwrap().unwrap();
    Api::<ConfigMap>::default_namespaced(client.clone()).get("created").await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_a_test_server_find_its_objects() {
    for listens in [false, true] {
        let (sender, receiver) = oneshot::channel();
        let builder = TestServer::builder().objects([config_map("loaded")]);
        let builder = builder.server(|server| with_hook(server, sender));
        let builder = if listens { builder.listen() } else { builder };
        let server = Box::pin(builder.start()).await.unwrap();
        expect_created(receiver).await;
        drop(server);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_and_checks_of_a_standalone_server_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loaded.yaml");
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: loaded, namespace: default}}";
    std::fs::write(&file, object).unwrap();
    let (sender, receiver) = oneshot::channel();
    let server = Standalone::new("foo-server", Kinds::new())
        .with_server(|server| server.with_readiness_check("database", || Err("closed".into())))
        .with_server(|server| with_hook(server, sender));
    let mut own = StandaloneArgs::default();
    own.load = vec![file];
    let running = tokio::spawn(async move { Box::pin(server.run(&on_a_free_port(), &own)).await });
    let client = expect_created(receiver).await;
    let request = http::Request::get("/version").body(Vec::new()).unwrap();
    let version = client.request_text(request).await.unwrap();
    assert!(version.contains("v1.36"), "{version}");
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_ends_a_standalone_server() {
    let failing = |server: ApiServer| {
        server.with_post_start_hook("open", async |_: PostStart| Err::<(), _>("no database"))
    };
    let server = Standalone::new("foo-server", Kinds::new()).with_server(failing);
    let (args, own) = (on_a_free_port(), StandaloneArgs::default());
    let ended = Box::pin(server.run(&args, &own));
    let error = timeout(PATIENCE, ended).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("poststarthook/open has failed: no database"), "{error}");
}
