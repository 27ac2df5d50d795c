//! echoes: an operator that keeps Deployments in their desired state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, CustomResourceExt, ResourceExt};
use serde_json::json;
use standalone_apiserver::TestServer;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::echo::{Echo, EchoSpec};
use crate::reconcile::{FINALIZER, operate};
use crate::world::{
    Cluster, Program, becomes, block_on, block_on_without_pauses, delete, eventually, is_gone,
};

/// More writes than an idle operator makes.
const FAR_TOO_MANY: usize = 1000;

fn echo(name: &str, replicas: i32) -> Echo {
    Echo::new(name, EchoSpec { replicas })
}

/// The replicas of a Deployment, its image, and its number of environment variables.
fn wanted(deployment: &Deployment) -> Option<(i32, &str, usize)> {
    let spec = deployment.spec.as_ref()?;
    let container = spec.template.spec.as_ref()?.containers.first()?;
    let variables = container.env.as_ref().map_or(0, Vec::len);
    Some((spec.replicas?, container.image.as_deref()?, variables))
}

fn servers(replicas: i32) -> impl Fn(&Deployment) -> bool {
    move |deployment| wanted(deployment) == Some((replicas, "inanimate/echo-server", 0))
}

pub async fn have_deployments(cluster: &Cluster) -> Result<()> {
    // Two instances want the same state, so they conflict only briefly.
    let program = Program::example("echoes", &cluster.kubeconfig, &[])?;
    let other = Program::example("echoes", &cluster.kubeconfig, &[])?;
    let echoes: Api<Echo> = Api::default_namespaced(cluster.client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client.clone());
    let create = async || Ok(echoes.create(&PostParams::default(), &echo("hello", 2)).await?);
    let made = eventually(create).await?;
    let deployment = becomes(&deployments, "hello", servers(2)).await?;
    ensure!(deployment.owner_references()[0].uid == made.uid().context("uid")?);
    ensure!(echoes.get("hello").await?.finalizers() == [FINALIZER]);

    // The status shows the actual state.
    let mut ready = 0;
    if cluster.is_real {
        let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
        let labels = deployment.labels().iter().map(|(name, value)| format!("{name}={value}"));
        let labels = ListParams::default().labels(&labels.collect::<Vec<_>>().join(","));
        eventually(async || {
            let found = pods.list(&labels).await?.items;
            ensure!(found.len() == 2, "{found:?}");
            Ok(())
        })
        .await?;
    } else {
        ready = 1;
        let status = Patch::Merge(json!({"status": {"replicas": 2, "readyReplicas": ready}}));
        deployments.patch_status("hello", &PatchParams::default(), &status).await?;
    }
    let says = |replicas: i32, ready: i32, generation: i64| {
        move |echo: &Echo| {
            let status = echo.status.clone().unwrap_or_default();
            (status.replicas, status.ready_replicas, status.observed_generation)
                == (replicas, ready, Some(generation))
        }
    };
    becomes(&echoes, "hello", says(2, ready, 1)).await?;

    // The number of replicas is applied to the Deployment, also if it is changed through `scale`.
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    echoes.patch("hello", &PatchParams::default(), &three).await?;
    becomes(&deployments, "hello", servers(3)).await?;
    let four = Patch::Merge(json!({"spec": {"replicas": 4}}));
    echoes.patch_scale("hello", &PatchParams::default(), &four).await?;
    becomes(&deployments, "hello", servers(4)).await?;
    if cluster.is_real {
        becomes(&echoes, "hello", says(4, 0, 3)).await?;
    }

    other.end("INT").await?;

    // A change by another client is reverted.
    let container = json!({
        "name": "echo-server", "image": "other:1", "env": [{"name": "A", "value": "b"}],
    });
    let others = json!({"spec": {
        "replicas": 9, "template": {"spec": {"containers": [container]}},
    }});
    deployments.patch("hello", &PatchParams::default(), &Patch::Strategic(others)).await?;
    becomes(&deployments, "hello", servers(4)).await?;
    deployments.delete("hello", &DeleteParams::background()).await?;
    let uid = deployment.uid();
    becomes(&deployments, "hello", |found| found.uid() != uid && servers(4)(found)).await?;

    // The Deployment is deleted with the Echo, and nothing remains.
    delete(&echoes, "hello").await?;
    ensure!(deployments.get_opt("hello").await?.is_none(), "the Deployment goes first");
    program.end("TERM").await
}

pub async fn leave_others_alone(cluster: &Cluster) -> Result<()> {
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client.clone());
    let labels = json!({"app": "taken"});
    let theirs = json!({
        "metadata": {"name": "taken"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "a", "image": "theirs:1"}]},
        }},
    });
    let theirs: Deployment = serde_json::from_value(theirs)?;
    deployments.create(&PostParams::default(), &theirs).await?;
    let program = Program::example("echoes", &cluster.kubeconfig, &[])?;
    let echoes: Api<Echo> = Api::default_namespaced(cluster.client.clone());
    let create = async || Ok(echoes.create(&PostParams::default(), &echo("taken", 1)).await?);
    let made = eventually(create).await?;

    let events: Api<Event> = Api::default_namespaced(cluster.client.clone());
    let event = eventually(async || {
        let all = events.list(&ListParams::default()).await?.items;
        let is_about = |event: &&Event| {
            event.regarding.as_ref().is_some_and(|object| object.uid == made.uid())
        };
        all.iter().find(is_about).cloned().with_context(|| format!("{all:?}"))
    })
    .await?;
    ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
    ensure!(event.reason.as_deref() == Some("ApplyFailed"), "{event:?}");
    let why = "Deployment taken exists and does not belong to this Echo";
    ensure!(event.note.as_deref() == Some(why), "{event:?}");
    ensure!(wanted(&deployments.get("taken").await?) == Some((0, "theirs:1", 0)));

    // The deletion of an Echo does not affect a Deployment that it never owned.
    delete(&echoes, "taken").await?;
    ensure!(wanted(&deployments.get("taken").await?) == Some((0, "theirs:1", 0)));
    // Once the name is free, the Echo gets its Deployment.
    echoes.create(&PostParams::default(), &echo("taken", 1)).await?;
    deployments.delete("taken", &DeleteParams::background()).await?;
    becomes(&deployments, "taken", servers(1)).await?;
    delete(&echoes, "taken").await?;
    program.end("INT").await
}

/// The operator in this process. Dropping it stops the operator.
struct Operator(JoinHandle<()>);

impl Operator {
    fn start(client: Client) -> Self {
        Self(tokio::spawn(operate(client, std::future::pending())))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn try_again() -> Result<()> {
    block_on_without_pauses(async {
        let server = TestServer::builder().crd(Echo::crd()).start().await?;
        let (echoes, deployments): (Api<Echo>, Api<Deployment>) =
            (Api::default_namespaced(server.client()), Api::default_namespaced(server.client()));
        let _operator = Operator::start(server.client());
        echoes.create(&PostParams::default(), &echo("hello", 1)).await?;
        becomes(&deployments, "hello", servers(1)).await?;
        let wanted = Patch::Merge(json!({"spec": {"replicas": 2}}));
        echoes.patch("hello", &PatchParams::default(), &wanted).await?;
        server.faults().conflict(3);
        server.faults().break_watches();
        becomes(&deployments, "hello", servers(2)).await?;
        let wanted = Patch::Merge(json!({"spec": {"replicas": 3}}));
        echoes.patch("hello", &PatchParams::default(), &wanted).await?;
        server.faults().refuse(5, http::StatusCode::INTERNAL_SERVER_ERROR);
        server.faults().expire_watches();
        // The test waits as long as an operator between two reconciliations.
        sleep(Duration::from_secs(120)).await;
        becomes(&deployments, "hello", servers(3)).await?;
        echoes.delete("hello", &DeleteParams::default()).await?;
        server.faults().break_off(3);
        sleep(Duration::from_secs(120)).await;
        is_gone(&echoes, "hello").await?;
        ensure!(deployments.get_opt("hello").await?.is_none());
        Ok(())
    })
}

pub fn are_quiet() -> Result<()> {
    block_on_without_pauses(async {
        let server = TestServer::builder().crd(Echo::crd()).start().await?;
        let writes = Arc::new(AtomicUsize::new(0));
        let client = server.client();
        let service = tower::service_fn({
            let writes = Arc::clone(&writes);
            move |request: http::Request<Body>| {
                let is_write = request.method() != http::Method::GET;
                let count = writes.fetch_add(usize::from(is_write), Ordering::SeqCst);
                let client = client.clone();
                async move {
                    // An operator that reacts to its own writes would never stop, because the paused clock skips all
                    // pauses.
                    ensure!(count < FAR_TOO_MANY, "{count} writes");
                    anyhow::Ok(client.send(request).await?)
                }
            }
        });
        let _operator = Operator::start(Client::new(service, "default"));
        let echoes: Api<Echo> = Api::default_namespaced(server.client());
        echoes.create(&PostParams::default(), &echo("hello", 1)).await?;
        let is_settled = |echo: &Echo| echo.status.is_some();
        let settled = becomes(&echoes, "hello", is_settled).await?;
        // For an hour the operator reconciles periodically, and changes nothing.
        sleep(Duration::from_secs(60)).await;
        let before = writes.load(Ordering::SeqCst);
        ensure!((4..20).contains(&before), "{before} writes");
        sleep(Duration::from_secs(3600)).await;
        let looked = writes.load(Ordering::SeqCst) - before;
        ensure!((1..20).contains(&looked), "{looked} writes");
        let after = echoes.get("hello").await?;
        ensure!(after.resource_version() == settled.resource_version());
        Ok(())
    })
}

pub fn pause() -> Result<()> {
    block_on(async {
        let backoff = Backoff::default();
        let pauses: Vec<u128> = (0..40).map(|_| backoff.failed("a").as_millis()).collect();
        ensure!(pauses[..4] == [500, 1000, 2000, 4000], "{pauses:?}");
        ensure!(pauses[8..].iter().all(|pause| *pause == 60_000), "{pauses:?}");
        ensure!(backoff.failed("b").as_millis() == 500);
        backoff.succeeded("a");
        ensure!(backoff.failed("a").as_millis() == 500);
        Ok(())
    })
}
