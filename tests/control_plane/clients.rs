//! Clients of kube, as programs use it.

use anyhow::{Context, Result, bail, ensure};
use farm_operator::FarmPod;
use farm_operator::v1alpha::{Llama, LlamaSpec};
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{reflector, watcher};
use kube::{Api, Client, ResourceExt};
use test_server::client;

use crate::world::{PATIENCE, World};

pub fn list_create_and_watch(world: &mut World) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = client(&world.control_plane.kubeconfig()).await?;
        tokio::time::timeout(PATIENCE, use_everything(client)).await.context("it takes too long")?
    })
}

async fn use_everything(client: Client) -> Result<()> {
    let llamas: Api<Llama> = Api::default_namespaced(client.clone());
    let listed = llamas.list(&ListParams::default()).await?;
    ensure!(listed.items.len() == 1 && listed.items[0].name_any() == "dolly");
    ensure!(listed.items[0].spec == LlamaSpec { weight: 31.4, height: 0.5 });
    let metadata = llamas.list_metadata(&ListParams::default()).await?;
    ensure!(metadata.items[0].name_any() == "dolly");

    // A list followed by a watch, and a watch with initial events.
    let streaming = watcher::Config::default().streaming_lists();
    for config in [watcher::Config::default(), watcher::Config::default().page_size(1), streaming] {
        follow(&llamas, config).await?;
    }

    let farm_pods: Api<FarmPod> = Api::all(client);
    farm_pods.list(&ListParams::default()).await?;
    Ok(())
}

/// A reflector receives the existing objects, then the changes.
async fn follow(llamas: &Api<Llama>, config: watcher::Config) -> Result<()> {
    let (reader, writer) = reflector::store();
    let mut events = reflector(writer, watcher(llamas.clone(), config)).boxed();
    while !matches!(events.try_next().await?, Some(watcher::Event::InitDone)) {}
    ensure!(reader.state().len() == 1);
    let shaun = Llama::new("shaun", LlamaSpec { weight: 20.0, height: 1.5 });
    let created = llamas.create(&PostParams::default(), &shaun).await?;
    ensure!(created.uid().is_some() && created.metadata.generation == Some(1));
    let event = events.try_next().await?;
    let Some(watcher::Event::Apply(applied)) = event else {
        bail!("not an Apply: {event:?}");
    };
    ensure!(applied.resource_version() == created.resource_version());
    ensure!(reader.state().len() == 2);
    let deleted = llamas.delete("shaun", &DeleteParams::default()).await?;
    ensure!(deleted.is_right(), "gone at once: {deleted:?}");
    let event = events.try_next().await?;
    ensure!(matches!(event, Some(watcher::Event::Delete(_))), "{event:?}");
    ensure!(reader.state().len() == 1);
    Ok(())
}
