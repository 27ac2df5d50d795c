//! Llama: a kind that the server keeps.

use aggregated_apiserver::Stored;
use kube::CustomResource;
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sample llama is the same one after every restart, so that what it owns
/// is not collected as garbage.
const DOLLY: &str = "d0111a00-0000-4000-8000-000000000001";

/// A llama.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "farm.example.com",
    version = "v1alpha",
    kind = "Llama",
    namespaced,
    shortname = "ll",
    category = "farm",
    printcolumn(
        name = "Weight",
        type_ = "number",
        json_path = ".spec.weight",
        description = "How heavy it is, in kilograms"
    ),
    printcolumn(
        name = "Height",
        type_ = "number",
        json_path = ".spec.height",
        description = "How tall it is, in metres"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "How long ago it was created"
    )
)]
pub struct LlamaSpec {
    /// How heavy it is, in kilograms.
    pub weight: f64,
    /// How tall it is, in metres.
    pub height: f64,
}

impl Stored for Llama {
    fn initial() -> Vec<Self> {
        let metadata = ObjectMeta {
            name: Some("dolly".to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(DOLLY.to_owned()),
            ..ObjectMeta::default()
        };
        vec![Self { metadata, spec: LlamaSpec { weight: 31.4, height: 0.5 } }]
    }
}
