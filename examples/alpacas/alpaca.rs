//! Alpacas are stored by the server.

use aggregated_apiserver::Stored;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// An alpaca of the farm.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[kube(group = "farm.example.com", version = "v1", kind = "Alpaca", namespaced)]
#[kube(printcolumn(name = "Weight", type_ = "number", json_path = ".spec.weight"))]
#[kube(printcolumn(name = "Fleece", type_ = "number", json_path = ".spec.fleece"))]
#[x_kube(validation = ("self.fleece < self.weight", "an alpaca is heavier than its fleece"))]
pub struct AlpacaSpec {
    /// The weight in kilograms.
    #[schemars(range(min = 1.0, max = 120.0))]
    pub weight: f64,
    /// The weight of the fleece in kilograms.
    pub fleece: f64,
}

impl Stored for Alpaca {}
