//! Creates the CustomResourceDefinition of an example program.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::conditions::{is_crd_established, is_deleted};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::DefaultBackoff;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::program::cause;

/// The time limit for the cluster to establish a definition, or to delete an old one.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest pause between two attempts to reach the cluster.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Creates a definition, or updates an older one, and waits until its kind is served. If the API server is unavailable,
/// retries until it responds. A program without permission to create definitions requires an existing one.
pub async fn define(client: &Client, definition: &CustomResourceDefinition) -> Result<()> {
    let name = definition.name_any();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut pauses = DefaultBackoff::default();
    loop {
        let attempt = define_once(&definitions, &name, definition);
        let error = match timeout(PATIENCE, attempt).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => bail!("{name} is not established: {}", hindrance(&definitions, &name).await),
        };
        let context = || format!("defining {name}");
        match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) if status.is_forbidden() => {
                info!("not permitted to define {name}; the existing definition is used");
                return Ok(());
            }
            Some(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return Err(error).with_context(context);
            }
            _ => warn!("{}: {}", context(), cause(&*error)),
        }
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

async fn define_once(
    definitions: &Api<CustomResourceDefinition>,
    name: &str,
    definition: &CustomResourceDefinition,
) -> Result<()> {
    loop {
        match definitions.create(&PostParams::default(), definition).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
        let Some(found) = definitions.get_opt(name).await? else { continue };
        if found.metadata.deletion_timestamp.is_none() {
            // A merge patch replaces the list of versions.
            let spec = Patch::Merge(json!({"spec": definition.spec}));
            definitions.patch(name, &PatchParams::default(), &spec).await?;
            break;
        }
        // A deletion cannot be cancelled; the definition is created again after it.
        let uid = found.uid().unwrap_or_default();
        await_condition(definitions.clone(), name, is_deleted(&uid)).await?;
    }
    await_condition(definitions.clone(), name, is_crd_established()).await?;
    Ok(())
}

/// The message of the cluster about a definition that it does not establish.
async fn hindrance(definitions: &Api<CustomResourceDefinition>, name: &str) -> String {
    let found = definitions.get_opt(name).await.ok().flatten();
    let conditions = found.and_then(|found| found.status?.conditions).unwrap_or_default();
    let refused = conditions.into_iter().find(|condition| condition.status == "False");
    let said = refused.and_then(|condition| condition.message);
    said.unwrap_or_else(|| format!("no answer after {PATIENCE:?}"))
}
