//! A typical operator with kube's runtime, against a server in process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as Reported;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizing, finalizer};
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use standalone_apiserver::TestServer;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);
const FINALIZER: &str = "example.com/shelf";

/// A shelf has a ConfigMap with as many places as it says.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shelf", plural = "shelves", namespaced)]
#[kube(status = "ShelfStatus")]
struct ShelfSpec {
    places: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct ShelfStatus {
    built: u32,
}

async fn reconcile(shelf: Arc<Shelf>, client: Arc<Client>) -> Result<Action, Error> {
    let client = (*client).clone();
    let namespace = shelf.namespace().unwrap_or_default();
    let shelves: Api<Shelf> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let done = finalizer(&shelves, FINALIZER, shelf, async |event| match event {
        Finalizing::Apply(shelf) => build(&shelf, &maps, &shelves, client.clone()).await,
        Finalizing::Cleanup(shelf) => {
            // No garbage collector runs that would delete it.
            maps.delete(&shelf.name_any(), &DeleteParams::default()).await?;
            Ok(Action::await_change())
        }
    });
    done.await.map_err(|error| Error(error.to_string()))
}

async fn build(
    shelf: &Shelf,
    maps: &Api<ConfigMap>,
    shelves: &Api<Shelf>,
    client: Client,
) -> kube::Result<Action> {
    let owner = shelf.controller_owner_ref(&());
    let metadata = ObjectMeta {
        name: shelf.metadata.name.clone(),
        owner_references: owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let places = (0..shelf.spec.places).map(|place| (place.to_string(), String::new()));
    let data: BTreeMap<String, String> = places.collect();
    let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    match maps.get_opt(&shelf.name_any()).await? {
        None => {
            maps.create(&PostParams::default(), &map).await?;
        }
        Some(found) if found.data != map.data => {
            let patch = Patch::Json::<()>(
                serde_json::from_value(json!([
                    {"op": "replace", "path": "/data", "value": map.data},
                ]))
                .map_err(kube::Error::SerdeError)?,
            );
            maps.patch(&shelf.name_any(), &PatchParams::default(), &patch).await?;
        }
        Some(_) => {}
    }
    let status = Patch::Merge(json!({"status": {"built": shelf.spec.places}}));
    shelves.patch_status(&shelf.name_any(), &PatchParams::default(), &status).await?;
    let reporter = Reporter { controller: "shelves".to_owned(), instance: None };
    let event = Event {
        type_: EventType::Normal,
        reason: "Built".to_owned(),
        note: None,
        action: "Build".to_owned(),
        secondary: None,
    };
    Recorder::new(client, reporter).publish(&event, &shelf.object_ref(&())).await?;
    Ok(Action::await_change())
}

#[derive(Debug)]
struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Runs the operator until it is dropped.
fn operate(client: Client) -> tokio::task::JoinHandle<()> {
    let shelves: Api<Shelf> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let controller = Controller::new(shelves, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(50)), Arc::new(client));
    tokio::spawn(controller.for_each(async |_| {}))
}

async fn built(client: Client, places: u32) -> Result<()> {
    let is_built = move |shelf: Option<&Shelf>| {
        shelf.and_then(|shelf| shelf.status.as_ref()).is_some_and(|status| status.built == places)
    };
    let shelves: Api<Shelf> = Api::default_namespaced(client);
    timeout(PATIENCE, await_condition(shelves, "oak", is_built)).await??;
    Ok(())
}

#[tokio::test]
async fn an_operator_works() -> Result<()> {
    let server = TestServer::builder().crd(Shelf::crd()).start().await?;
    let client = server.client();
    let operator = operate(client.clone());
    let shelves: Api<Shelf> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    shelves.create(&PostParams::default(), &Shelf::new("oak", ShelfSpec { places: 2 })).await?;
    built(client.clone(), 2).await?;
    ensure!(maps.get("oak").await?.data.context("data")?.len() == 2);

    // The operator retries after injected faults.
    server.faults().conflict(2);
    server.faults().expire_watches();
    let wider = Patch::Merge(json!({"spec": {"places": 3}}));
    while shelves.patch("oak", &PatchParams::default(), &wider).await.is_err() {}
    built(client.clone(), 3).await?;
    ensure!(maps.get("oak").await?.data.context("data")?.len() == 3);

    // A deleted ConfigMap is created again.
    maps.delete("oak", &DeleteParams::default()).await?;
    let is_there = |map: Option<&ConfigMap>| map.is_some();
    timeout(PATIENCE, await_condition(maps.clone(), "oak", is_there)).await??;

    let reported: Api<Reported> = Api::default_namespaced(client.clone());
    let reported = reported.list(&ListParams::default()).await?.items;
    ensure!(reported.iter().any(|event| event.reason.as_deref() == Some("Built")), "{reported:?}");

    let uid = shelves.get("oak").await?.uid().context("uid")?;
    shelves.delete("oak", &DeleteParams::default()).await?;
    timeout(PATIENCE, await_condition(shelves, "oak", is_deleted(&uid))).await??;
    ensure!(maps.get_opt("oak").await?.is_none());
    operator.abort();
    Ok(())
}
