//! The reconciler of Echoes. Each event causes a comparison of the actual state with the desired state.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{self, Event as Finalizing, finalizer};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use thiserror::Error;
use tracing::{debug, info, warn};

use crate::backoff::Backoff;
use crate::echo::Echo;
use crate::program::cause;

const NAME: &str = "echoes.example.com";
/// The finalizer that blocks the deletion of an Echo until its Deployment is deleted.
pub const FINALIZER: &str = "echoes.example.com/deployment";
/// The interval after which an Echo is reconciled again without any event.
const AGAIN: Duration = Duration::from_secs(600);
/// The maximum length of an Event's note, in characters.
const NOTE_LIMIT: usize = 1000;

/// The reason why an Echo does not have its desired state.
#[derive(Debug, Error)]
pub enum Fault {
    #[error(transparent)]
    Cluster(#[from] kube::Error),
    #[error("Deployment {0} exists and does not belong to this Echo")]
    Foreign(String),
    #[error("Deployment {0} is still being deleted")]
    Deleting(String),
}

type Failure = finalizer::Error<Fault>;

struct Operator {
    client: Client,
    recorder: Recorder,
    backoff: Backoff,
}

/// Reconciles all Echoes and their Deployments until `ended` completes and the reconciliations in progress are done.
pub async fn operate(client: Client, ended: impl Future<Output = ()> + Send + Sync + 'static) {
    let reporter = Reporter { controller: NAME.to_owned(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let operator = Operator { client: client.clone(), recorder, backoff: Backoff::default() };
    let results = Controller::new(Api::<Echo>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Deployment>::all(client), watcher::Config::default())
        .graceful_shutdown_on(ended)
        .run(reconcile, retry, Arc::new(operator));
    let log = async |result| match result {
        // The Echo was deleted, or `retry` has logged the failure.
        Ok(_)
        | Err(controller::Error::ObjectNotFound(_) | controller::Error::ReconcilerFailed(..)) => {}
        Err(error) => warn!("the watch goes on after a pause: {}", cause(&error)),
    };
    results.for_each(log).await;
}

async fn reconcile(echo: Arc<Echo>, operator: Arc<Operator>) -> Result<Action, Failure> {
    let echoes: Api<Echo> = api(&operator.client, &echo);
    let done = finalizer(&echoes, FINALIZER, Arc::clone(&echo), async |event| match event {
        Finalizing::Apply(echo) => operator.apply(&echo).await,
        Finalizing::Cleanup(echo) => operator.clean_up(&echo).await,
    });
    let done = done.await;
    match &done {
        Ok(_) => operator.backoff.succeeded(&echo.uid().unwrap_or_default()),
        Err(failure) => operator.tell(&echo, failure).await,
    }
    done
}

fn retry(echo: Arc<Echo>, failure: &Failure, operator: Arc<Operator>) -> Action {
    let (name, uid) = (echo.name_any(), echo.uid().unwrap_or_default());
    // The deletion of an object triggers an event of its own.
    if code(failure) == Some(404) {
        operator.backoff.succeeded(&uid);
        return Action::requeue(AGAIN);
    }
    let pause = operator.backoff.failed(&uid);
    let why = cause(failure);
    match code(failure) {
        Some(409) => debug!("echo {name} is tried again in {pause:?}: {why}"),
        _ => warn!("echo {name} is tried again in {pause:?}: {why}"),
    }
    Action::requeue(pause)
}

/// The status code with which the cluster rejected a request, if it rejected one.
fn code(failure: &Failure) -> Option<u16> {
    let error = match failure {
        Failure::ApplyFailed(Fault::Cluster(error))
        | Failure::CleanupFailed(Fault::Cluster(error))
        | Failure::AddFinalizer(error)
        | Failure::RemoveFinalizer(error) => error,
        _ => return None,
    };
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

impl Operator {
    async fn apply(&self, echo: &Echo) -> Result<Action, Fault> {
        let deployments: Api<Deployment> = api(&self.client, echo);
        let (name, wanted) = (echo.name_any(), echo.deployment());
        let deployment = match deployments.get_opt(&name).await? {
            None => {
                info!("echo {name} gets its Deployment");
                deployments.create(&PostParams::default(), &wanted).await?
            }
            Some(found) if !echo.owns(&found) => return Err(Fault::Foreign(name)),
            Some(found) if found.metadata.deletion_timestamp.is_some() => {
                return Err(Fault::Deleting(name));
            }
            // The server sets the same defaults as before, and writes nothing if the result is unchanged.
            Some(mut found) => {
                let generation = found.metadata.generation;
                found.labels_mut().extend(wanted.metadata.labels.unwrap_or_default());
                found.spec = wanted.spec;
                let replaced = deployments.replace(&name, &PostParams::default(), &found).await?;
                if replaced.metadata.generation != generation {
                    info!("echo {name} has its Deployment put right");
                }
                replaced
            }
        };
        let status = echo.status_with(&deployment);
        if echo.status.as_ref() != Some(&status) {
            let status = Patch::Merge(json!({"status": status}));
            let echoes: Api<Echo> = api(&self.client, echo);
            echoes.patch_status(&name, &PatchParams::default(), &status).await?;
        }
        Ok(Action::requeue(AGAIN))
    }

    async fn clean_up(&self, echo: &Echo) -> Result<Action, Fault> {
        let deployments: Api<Deployment> = api(&self.client, echo);
        let name = echo.name_any();
        let found = deployments.get_opt(&name).await?;
        let Some(found) = found.filter(|found| echo.owns(found)) else {
            return Ok(Action::await_change());
        };
        let uid = found.uid();
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match deployments.delete(&name, &parameters).await {
            Ok(deleted) if deleted.is_left() => Err(Fault::Deleting(name)),
            Err(kube::Error::Api(status)) if !status.is_not_found() => {
                Err(kube::Error::Api(status).into())
            }
            Err(kube::Error::Api(_)) | Ok(_) => {
                info!("echo {name} has lost its Deployment and may go");
                Ok(Action::await_change())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reports a failure as an Event, unless the object was changed or deleted in the meantime.
    async fn tell(&self, echo: &Echo, failure: &Failure) {
        let (action, fault) = match failure {
            Failure::ApplyFailed(fault) => ("Apply", fault),
            Failure::CleanupFailed(fault) => ("CleanUp", fault),
            _ => return,
        };
        if matches!(code(failure), Some(404 | 409)) {
            return;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: format!("{action}Failed"),
            note: Some(cause(fault).chars().take(NOTE_LIMIT).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &echo.object_ref(&())).await {
            warn!("an Event of echo {} is lost: {}", echo.name_any(), cause(&error));
        }
    }
}

/// The API for a kind in the namespace of an Echo.
fn api<K>(client: &Client, echo: &Echo) -> Api<K>
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), &echo.namespace().unwrap_or_default())
}
