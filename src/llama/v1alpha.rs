//! Llamas whose weight and height are numbers.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A llama.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
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
        description = "The weight in kilograms"
    ),
    printcolumn(
        name = "Height",
        type_ = "number",
        json_path = ".spec.height",
        description = "The height in metres"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "How long ago it was created"
    )
)]
#[x_kube(validation = Rule::new("self.weight >= self.height")
    .message(super::TALLER_THAN_HEAVY)
    .field_path(".weight"))]
pub struct LlamaSpec {
    /// The weight in kilograms.
    pub weight: f64,
    /// The height in metres.
    pub height: f64,
}
