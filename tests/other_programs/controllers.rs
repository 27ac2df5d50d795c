//! A real kube-controller-manager, with all its controllers, and the standalone server.
//!
//! No kubelet runs Pods here; the tests write the status of Pods instead.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use farm_operator::v1alpha::{Llama, LlamaSpec};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource, ResourceExt};
use serde_json::{Value, json};
use test_cluster::{Process, Programs, Standalone, start_controller_manager};

use crate::{PATIENCE, PROGRAM};

type TestFuture = Pin<Box<dyn Future<Output = Result<()>>>>;
type Test = fn(Client) -> TestFuture;

pub const TESTS: &[(&str, Test)] = &[
    ("the_farm_stays_as_it_is", |client| Box::pin(the_farm(client))),
    ("a_deployment_is_scaled_and_rolled_out", |client| Box::pin(a_deployment(client))),
    ("a_job_completes_with_its_pod", |client| Box::pin(a_job(client))),
    ("a_cron_job_makes_jobs", |client| Box::pin(a_cron_job(client))),
    ("dependents_go_in_the_background", |client| Box::pin(background(client))),
    ("dependents_go_in_the_foreground", |client| Box::pin(foreground(client))),
    ("orphans_stay", |client| Box::pin(orphans(client))),
    ("a_namespace_empties_and_goes", |client| Box::pin(a_namespace(client))),
];

/// The server and the controllers, started when the first test needs them.
pub struct Controllers {
    programs: Option<Programs>,
    running: Mutex<Option<Running>>,
}

struct Running {
    // Dropped in this order, because the manager sends requests to the server and writes to its directory.
    manager: Process,
    server: Standalone,
}

impl Controllers {
    pub fn new(programs: Option<Programs>) -> Self {
        Self { programs, running: Mutex::new(None) }
    }

    pub fn run(&self, test: Test) -> Result<()> {
        let kubeconfig = self.start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tested = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            test(Client::try_from(config)?).await
        });
        tested.map_err(|error| {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(running) = &*running else { return error };
            let printed = running.manager.printed();
            // The log has many known lines about kinds that are not served.
            let told = printed
                .lines()
                .filter(|line| !line.contains("could not find the requested resource"));
            let told: Vec<&str> = told.collect();
            let end = told[told.len().saturating_sub(20)..].join("\n");
            anyhow!(
                "{error:#}\n\nkube-controller-manager:\n{end}\n\nfarm-operator:\n{}",
                running.server.end_of_log()
            )
        })
    }

    fn start(&self) -> Result<Kubeconfig> {
        let programs = self.programs.as_ref().context("there is no control plane")?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = match &mut *running {
            Some(running) => running,
            none => {
                let folder = tempfile::tempdir()?;
                let tokens = folder.path().join("tokens.csv");
                std::fs::write(&tokens, format!("{TOKEN},{MANAGER},manager\n"))?;
                let tokens = format!("--token-auth-file={}", tokens.display());
                let server = Standalone::start(PROGRAM, &["--load", FARM, &tokens])?;
                let kubeconfig = with_token(&server.kubeconfig, server.path())?;
                // Each controller has its own ServiceAccount with a token.
                let flags = [
                    ("controllers", "*".to_owned()),
                    ("use-service-account-credentials", "true".to_owned()),
                ];
                let manager =
                    start_controller_manager(programs, &kubeconfig, server.path(), &flags)?;
                none.insert(Running { manager, server })
            }
        };
        running.manager.ensure_running()?;
        Ok(Kubeconfig::read_from(&running.server.kubeconfig)?)
    }

    /// Stops both.
    pub fn end(&self) {
        drop(self.running.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The user of kube-controller-manager in a cluster, and its token in this test.
const MANAGER: &str = "system:kube-controller-manager";
const TOKEN: &str = "token-of-the-manager";

/// Writes the kubeconfig of kube-controller-manager: that of the server, with the token in place of the administrator's
/// certificate.
fn with_token(kubeconfig: &Path, folder: &Path) -> Result<PathBuf> {
    let mut config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    config["users"][0]["user"] = json!({"token": TOKEN});
    let file = folder.join("controller-manager.kubeconfig");
    std::fs::write(&file, config.to_string())?;
    Ok(file)
}

/// The example that the README shows first.
const FARM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/farm.yaml");

/// The controllers do not change the loaded objects.
async fn the_farm(client: Client) -> Result<()> {
    // Once the controllers have processed another Deployment, they have processed that of the example.
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let labels = json!({"app": "other"});
    let other = json!({"metadata": {"name": "other"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
    }});
    create(&deployments, &other).await?;
    eventually(async || {
        let status = deployments.get("other").await?.status.unwrap_or_default();
        ensure!(status.observed_generation == Some(1) && status.replicas == Some(1));
        Ok(())
    })
    .await?;
    let farm = std::fs::read_to_string(FARM)?;
    let mut looked_at = 0;
    for object in serde_saphyr::from_multiple::<Value>(&farm)? {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let live = match kind {
            "Deployment" => serde_json::to_value(deployments.get(name).await?)?,
            "ReplicaSet" => {
                let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
                serde_json::to_value(sets.get(name).await?)?
            }
            "Pod" => {
                let pods: Api<Pod> = Api::default_namespaced(client.clone());
                serde_json::to_value(pods.get(name).await?)?
            }
            _ => continue,
        };
        looked_at += 1;
        let of_members = |members: &Value, live: &Value, what: &str| -> Result<()> {
            for (member, value) in members.as_object().into_iter().flatten() {
                let is_same =
                    live[member] == *value || what == "Pod status" && member == "containerStatuses";
                ensure!(is_same, "{kind} {name}: {what}.{member} is {}, not {value}", live[member]);
            }
            Ok(())
        };
        let what = if kind == "Pod" { "Pod status" } else { "status" };
        of_members(&object["status"], &live["status"], what)?;
        of_members(&object["metadata"], &live["metadata"], "metadata")?;
        ensure!(live["metadata"]["generation"] == 1, "{kind} {name} was changed");
    }
    ensure!(looked_at == 12, "{looked_at} objects");
    deployments.delete("other", &DeleteParams::default()).await?;
    Ok(())
}

/// Repeats a function until it succeeds.
async fn eventually<T, F: Future<Output = Result<T>>>(mut ask: impl FnMut() -> F) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("not even after {PATIENCE:?}")));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            answered => return answered,
        }
    }
}

/// Creates a namespace for a test.
async fn namespace(client: &Client, name: &str) -> Result<Namespace> {
    let namespace = object(&json!({"metadata": {"name": name}}))?;
    Ok(Api::all(client.clone()).create(&PostParams::default(), &namespace).await?)
}

/// Parses an object from a manifest.
fn object<K: serde::de::DeserializeOwned>(object: &Value) -> Result<K> {
    Ok(serde_json::from_value(object.clone())?)
}

async fn create<K>(api: &Api<K>, value: &Value) -> Result<K>
where
    K: Resource<DynamicType = ()>
        + serde::de::DeserializeOwned
        + serde::Serialize
        + Clone
        + std::fmt::Debug,
{
    let mut typed = value.clone();
    typed["apiVersion"] = K::api_version(&()).into();
    typed["kind"] = K::kind(&()).into();
    Ok(api.create(&PostParams::default(), &object(&typed)?).await?)
}

async fn merge<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K>
where
    K: serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
}

/// Waits until exactly this number of Pods with these labels exist that are not being deleted.
async fn pods(api: &Api<Pod>, selector: &str, count: usize) -> Result<Vec<Pod>> {
    eventually(async || {
        let mut pods = api.list(&ListParams::default().labels(selector)).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        ensure!(pods.len() == count, "{count} Pods were expected: {pods:#?}");
        Ok(pods)
    })
    .await
}

/// Writes the status that a kubelet reports for a running Pod.
async fn run(api: &Api<Pod>, pods: &[Pod]) -> Result<()> {
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
    }});
    for pod in pods {
        api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    Ok(())
}

fn is_owned_by<K: ResourceExt>(object: &K, owner: &impl ResourceExt) -> bool {
    object.owner_references().iter().any(|reference| Some(&reference.uid) == owner.uid().as_ref())
}

async fn a_deployment(client: Client) -> Result<()> {
    let name = "deployments";
    namespace(&client, name).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), name);
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), name);
    let all: Api<Pod> = Api::namespaced(client, name);
    let deployment = create(
        &deployments,
        &json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "main", "image": "web:1"}]},
                },
            },
        }),
    )
    .await?;
    let made = pods(&all, "app=web", 2).await?;
    let set = sets.list(&ListParams::default()).await?.items.pop().context("no ReplicaSet")?;
    ensure!(is_owned_by(&set, &deployment), "{set:#?}");
    ensure!(made.iter().all(|pod| is_owned_by(pod, &set)), "{made:#?}");
    run(&all, &made).await?;
    let available = async |count: i32| {
        eventually(async || {
            let status = deployments.get("web").await?.status.unwrap_or_default();
            ensure!(status.available_replicas.unwrap_or_default() == count, "{status:?}");
            Ok(status)
        })
        .await
    };
    available(2).await?;

    for count in [3, 1] {
        let scale = json!({"spec": {"replicas": count}});
        deployments.patch_scale("web", &PatchParams::default(), &Patch::Merge(&scale)).await?;
        let made = pods(&all, "app=web", count).await?;
        run(&all, &made).await?;
    }
    available(1).await?;

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}});
    merge(&deployments, "web", &image).await?;
    let new = eventually(async || {
        let pods = all.list(&ListParams::default().labels("app=web")).await?.items;
        let of = |pod: &&Pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.containers[0].image.as_deref() == Some("web:2"))
        };
        pods.iter().find(of).cloned().context("no Pod with the new image")
    })
    .await?;
    run(&all, std::slice::from_ref(&new)).await?;
    let left = pods(&all, "app=web", 1).await?;
    ensure!(left[0].uid() == new.uid(), "{left:#?}");
    let rolled = eventually(async || {
        let rolled = deployments.get("web").await?;
        let status = rolled.status.clone().unwrap_or_default();
        let conditions = status.conditions.clone().unwrap_or_default();
        let is_done = conditions
            .iter()
            .any(|condition| condition.reason.as_deref() == Some("NewReplicaSetAvailable"));
        ensure!(is_done && status.updated_replicas == Some(1), "{conditions:?}");
        ensure!(status.observed_generation == rolled.metadata.generation, "{status:?}");
        Ok(rolled)
    })
    .await?;
    ensure!(rolled.annotations()["deployment.kubernetes.io/revision"] == "2", "{rolled:#?}");
    ensure!(sets.list(&ListParams::default()).await?.items.len() == 2);

    // When the owner is deleted, all dependents are garbage-collected.
    deployments.delete("web", &DeleteParams::background()).await?;
    eventually(async || {
        let sets = sets.list(&ListParams::default()).await?.items;
        let pods = all.list(&ListParams::default()).await?.items;
        ensure!(sets.is_empty() && pods.is_empty(), "{sets:#?} {pods:#?}");
        Ok(())
    })
    .await
}

fn job_spec() -> Value {
    json!({"template": {"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "job:1"}],
    }}})
}

async fn a_job(client: Client) -> Result<()> {
    let name = "jobs";
    namespace(&client, name).await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), name);
    let all: Api<Pod> = Api::namespaced(client, name);
    let job = create(&jobs, &json!({"metadata": {"name": "once"}, "spec": job_spec()})).await?;
    let made = pods(&all, "job-name=once", 1).await?;
    ensure!(is_owned_by(&made[0], &job), "{made:#?}");
    let tracked = "batch.kubernetes.io/job-tracking".to_owned();
    ensure!(made[0].finalizers().contains(&tracked), "{made:#?}");
    run(&all, &made).await?;
    let succeeded = json!({"status": {"phase": "Succeeded"}});
    all.patch_status(&made[0].name_any(), &PatchParams::default(), &Patch::Merge(&succeeded))
        .await?;
    eventually(async || {
        let status = jobs.get("once").await?.status.unwrap_or_default();
        let conditions = status.conditions.clone().unwrap_or_default();
        let is_complete = conditions
            .iter()
            .any(|condition| condition.type_ == "Complete" && condition.status == "True");
        ensure!(is_complete && status.succeeded == Some(1), "{status:?}");
        ensure!(status.completion_time.is_some(), "{status:?}");
        Ok(())
    })
    .await?;
    let pod = all.get(&made[0].name_any()).await?;
    ensure!(pod.finalizers().is_empty(), "{pod:#?}");
    jobs.delete("once", &DeleteParams::background()).await?;
    eventually(async || {
        let pods = all.list(&ListParams::default()).await?.items;
        ensure!(pods.is_empty(), "{pods:#?}");
        Ok(())
    })
    .await
}

async fn a_cron_job(client: Client) -> Result<()> {
    let name = "cron-jobs";
    namespace(&client, name).await?;
    let crons: Api<CronJob> = Api::namespaced(client.clone(), name);
    let jobs: Api<Job> = Api::namespaced(client, name);
    let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job_spec()}});
    let cron = create(&crons, &json!({"metadata": {"name": "yearly"}, "spec": spec})).await?;
    // The CronJob has missed a year, and starts a Job at once.
    let last = json!({"status": {"lastScheduleTime": "2020-06-01T00:00:00Z"}});
    crons.patch_status("yearly", &PatchParams::default(), &Patch::Merge(&last)).await?;
    let job =
        eventually(async || jobs.list(&ListParams::default()).await?.items.pop().context("no Job"))
            .await?;
    ensure!(is_owned_by(&job, &cron), "{job:#?}");
    eventually(async || {
        let status = crons.get("yearly").await?.status.unwrap_or_default();
        ensure!(status.active.unwrap_or_default().len() == 1, "no active Job");
        let last = status.last_schedule_time.context("it was never")?;
        ensure!(last.0.to_string().ends_with("-01-01T00:00:00Z"), "{last:?}");
        Ok(())
    })
    .await
}

/// An owner and its dependents: one of a built-in kind, and one of a stored kind.
struct Family {
    maps: Api<ConfigMap>,
    llamas: Api<Llama>,
}

impl Family {
    async fn new(client: Client, name: &str) -> Result<Self> {
        namespace(&client, name).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        let llamas: Api<Llama> = Api::namespaced(client, name);
        let owner = create(&maps, &json!({"metadata": {"name": "owner"}})).await?;
        let reference = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: "owner".to_owned(),
            uid: owner.uid().context("no uid")?,
            block_owner_deletion: Some(true),
            controller: None,
        };
        let metadata = json!({"name": "child", "ownerReferences": [reference]});
        create(&maps, &json!({"metadata": metadata})).await?;
        let mut llama = Llama::new("child", LlamaSpec { weight: 1.0, height: 1.0 });
        llama.metadata.owner_references = Some(vec![reference]);
        llamas.create(&PostParams::default(), &llama).await?;
        let family = Self { maps, llamas };
        family.are_known().await?;
        Ok(family)
    }

    /// Waits until the garbage collector has observed the dependents, because it neither orphans nor waits for
    /// unobserved ones. It observes objects in the order of their creation, and deletes an object if its owner has
    /// never existed.
    async fn are_known(&self) -> Result<()> {
        let reference = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: "never".to_owned(),
            uid: "11111111-2222-3333-4444-555555555555".to_owned(),
            ..OwnerReference::default()
        };
        let metadata = json!({"name": "later", "ownerReferences": [reference]});
        create(&self.maps, &json!({"metadata": metadata})).await?;
        let mut llama = Llama::new("later", LlamaSpec { weight: 1.0, height: 1.0 });
        llama.metadata.owner_references = Some(vec![reference]);
        self.llamas.create(&PostParams::default(), &llama).await?;
        eventually(async || {
            let map = self.maps.get_opt("later").await?;
            let llama = self.llamas.get_opt("later").await?;
            ensure!(map.is_none() && llama.is_none(), "{map:?} {llama:?}");
            Ok(())
        })
        .await
    }

    async fn is_gone(&self) -> Result<()> {
        eventually(async || {
            let owner = self.maps.get_opt("owner").await?;
            let map = self.maps.get_opt("child").await?;
            let llama = self.llamas.get_opt("child").await?;
            ensure!(
                owner.is_none() && map.is_none() && llama.is_none(),
                "{owner:?} {map:?} {llama:?}"
            );
            Ok(())
        })
        .await
    }
}

async fn background(client: Client) -> Result<()> {
    let family = Family::new(client, "background").await?;
    family.maps.delete("owner", &DeleteParams::background()).await?;
    ensure!(family.maps.get_opt("owner").await?.is_none());
    family.is_gone().await
}

async fn foreground(client: Client) -> Result<()> {
    let family = Family::new(client, "foreground").await?;
    // One dependent has a finalizer, which blocks the deletion of the owner.
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    merge(&family.maps, "child", &held).await?;
    family.maps.delete("owner", &DeleteParams::foreground()).await?;
    eventually(async || {
        let child = family.maps.get("child").await?;
        ensure!(child.metadata.deletion_timestamp.is_some(), "{child:?}");
        ensure!(family.llamas.get_opt("child").await?.is_none());
        Ok(())
    })
    .await?;
    let owner = family.maps.get("owner").await?;
    ensure!(owner.finalizers() == ["foregroundDeletion"], "{owner:?}");
    merge(&family.maps, "child", &json!({"metadata": {"finalizers": null}})).await?;
    family.is_gone().await
}

async fn orphans(client: Client) -> Result<()> {
    let family = Family::new(client, "orphans").await?;
    family.maps.delete("owner", &DeleteParams::orphan()).await?;
    eventually(async || {
        ensure!(family.maps.get_opt("owner").await?.is_none(), "the owner is there");
        Ok(())
    })
    .await?;
    let map = family.maps.get("child").await?;
    let llama = family.llamas.get("child").await?;
    ensure!(
        map.owner_references().is_empty() && llama.owner_references().is_empty(),
        "{map:?} {llama:?}"
    );
    ensure!(map.metadata.deletion_timestamp.is_none(), "{map:?}");
    Ok(())
}

async fn a_namespace(client: Client) -> Result<()> {
    let name = "going";
    namespace(&client, name).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    // A controller creates this ServiceAccount in every namespace.
    eventually(async || Ok(accounts.get("default").await?)).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
    let llamas: Api<Llama> = Api::namespaced(client.clone(), name);
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&maps, &held).await?;
    let llama = Llama::new("llama", LlamaSpec { weight: 1.0, height: 1.0 });
    llamas.create(&PostParams::default(), &llama).await?;
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(name, &DeleteParams::default()).await?;
    eventually(async || {
        ensure!(llamas.get_opt("llama").await?.is_none(), "the llama is there");
        Ok(())
    })
    .await?;
    let namespace = namespaces.get(name).await?;
    let phase = namespace.status.and_then(|status| status.phase);
    ensure!(phase.as_deref() == Some("Terminating"), "{phase:?}");
    merge(&maps, "held", &json!({"metadata": {"finalizers": null}})).await?;
    eventually(async || {
        ensure!(namespaces.get_opt(name).await?.is_none(), "the namespace is there");
        Ok(())
    })
    .await
}
