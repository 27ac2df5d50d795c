//! Retries of client code under fault injection.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use standalone_apiserver::TestServer;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(30);

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Increments a counter in a ConfigMap, also with concurrent writers. This is the code under test.
async fn count(client: Client) -> kube::Result<u32> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut tries = 0;
    loop {
        tries += 1;
        let mut map = maps.get("counter").await?;
        let counts = map.data.get_or_insert_default();
        let before: u32 = counts.get("count").and_then(|text| text.parse().ok()).unwrap_or(0);
        counts.insert("count".to_owned(), (before + 1).to_string());
        match maps.replace("counter", &PostParams::default(), &map).await {
            Ok(_) => return Ok(tries),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
}

#[tokio::test]
async fn conflicts_are_tried_again() -> Result<()> {
    let server = TestServer::builder().objects([map("counter")]).start().await?;
    server.faults().conflict(2);
    ensure!(count(server.client()).await? == 3);
    ensure!(count(server.client()).await? == 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    ensure!(maps.get("counter").await?.data.context("data")?["count"] == "2");
    Ok(())
}

#[tokio::test]
async fn requests_are_refused_and_break_off() -> Result<()> {
    let server = TestServer::builder().start().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    server.faults().refuse(1, StatusCode::TOO_MANY_REQUESTS);
    let refused = maps.list(&ListParams::default()).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 429), "{refused:?}");
    server.faults().break_off(1);
    let broken = maps.list(&ListParams::default()).await;
    ensure!(matches!(&broken, Err(error) if !matches!(error, kube::Error::Api(_))), "{broken:?}");
    ensure!(maps.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_injected_delay_applies_to_requests() -> Result<()> {
    let server = TestServer::builder().start().await?;
    server.faults().delay(Duration::from_secs(3));
    let begun = Instant::now();
    Api::<ConfigMap>::default_namespaced(server.client()).list(&ListParams::default()).await?;
    ensure!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_watcher_resumes_after_expired_and_broken_watches() -> Result<()> {
    let server = TestServer::builder().objects([map("a")]).start().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let follow = watcher(maps.clone(), watcher::Config::default()).default_backoff();
    let mut follow = follow.applied_objects().boxed();
    let next = async |follow: &mut futures::stream::BoxStream<'_, watcher::Result<ConfigMap>>| {
        loop {
            match timeout(PATIENCE, follow.next()).await?.context("the watcher has ended")? {
                Ok(map) => return anyhow::Ok(map),
                // The watcher lists or watches again.
                Err(_) => continue,
            }
        }
    };
    ensure!(next(&mut follow).await?.name_any() == "a");
    for (number, end) in [
        (1, (|server| server.faults().expire_watches()) as fn(&TestServer)),
        (2, |server| server.faults().break_watches()),
    ] {
        end(&server);
        let label = Patch::Merge(json!({"metadata": {"labels": {"number": number.to_string()}}}));
        maps.patch("a", &PatchParams::default(), &label).await?;
        loop {
            let seen = next(&mut follow).await?;
            if seen.labels().get("number") == Some(&number.to_string()) {
                break;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_expired_watch_ends_with_a_410_error_event() -> Result<()> {
    let server = TestServer::builder().start().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut watching = maps.watch(&kube::api::WatchParams::default(), "0").await?.boxed();
    server.faults().expire_watches();
    while let Some(event) = timeout(PATIENCE, watching.try_next()).await?? {
        if let kube::api::WatchEvent::Error(status) = event {
            ensure!(status.code == 410);
            ensure!(timeout(PATIENCE, watching.next()).await?.is_none());
            return Ok(());
        }
    }
    anyhow::bail!("it ended without a word")
}
