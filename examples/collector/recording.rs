//! The kind `Recording`: selects the objects of a namespace to record. It is stored in the cluster.

use std::fmt::Debug;

use anyhow::{Context, Result};
use kube::api::Api;
use kube::{Client, CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};
use tracing::instrument;

use crate::definition::define;
use crate::record::SecretValues;

/// The options of a recording of its namespace.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "collector.example.com",
    version = "v1",
    kind = "Recording",
    namespaced,
    printcolumn(name = "Kinds", type_ = "string", json_path = ".spec.kinds"),
    printcolumn(name = "Secrets", type_ = "string", json_path = ".spec.secretValues")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.secretValues != 'Keep' || has(self.reason)")
    .message("is needed where the values of Secrets are kept")
    .field_path(".reason")
    .reason(Reason::FieldValueRequired))]
pub struct RecordingSpec {
    /// The kinds, as kubectl names them: `pods`, `deploy`, `foos.example.com`.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = ("self.all(kind, self.exists_one(other, other == kind))", "names a kind twice"))]
    pub kinds: Vec<String>,
    /// The treatment of the values of Secrets.
    #[serde(default)]
    pub secret_values: SecretValues,
    /// The reason why the values of Secrets are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_000))]
    pub reason: Option<String>,
}

/// Returns the Recording of this name. Defines the kind first, if the cluster does not serve it. The cluster validates
/// a Recording against the rules of the kind, so this function does not.
#[instrument(skip(client), err(level = "debug"))]
pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<RecordingSpec> {
    define(client, &Recording::crd()).await?;
    let recordings: Api<Recording> = Api::namespaced(client.clone(), namespace);
    let found = recordings.get_opt(name).await?.context("there is no such Recording")?;
    Ok(found.spec)
}
