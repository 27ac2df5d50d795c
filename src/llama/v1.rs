//! Llamas whose weight and height are quantities.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The maximum length of a quantity, in characters. No float needs more.
pub(super) const LONGEST: usize = 24;

/// A llama.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "farm.example.com",
    version = "v1",
    kind = "Llama",
    namespaced,
    shortname = "ll",
    category = "farm",
    printcolumn(
        name = "Weight",
        type_ = "string",
        json_path = ".spec.weight",
        description = "The weight in kilograms"
    ),
    printcolumn(
        name = "Height",
        type_ = "string",
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
#[x_kube(validation = Rule::new(
        "quantity(string(self.weight)).compareTo(quantity(string(self.height))) >= 0"
    )
    .message(super::TALLER_THAN_HEAVY)
    .field_path(".weight"))]
pub struct LlamaSpec {
    /// The weight in kilograms, as a quantity: `"45.5"` or `45500m`.
    #[schemars(schema_with = "quantity")]
    pub weight: Quantity,
    /// The height in metres, as a quantity: `"1.1"` or `1100m`.
    #[schemars(schema_with = "quantity")]
    pub height: Quantity,
}

fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": LONGEST,
        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
    })
}
