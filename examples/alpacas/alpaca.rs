//! Alpacas are stored by the server. Their subresource `yarn` is computed for each request.

use aggregated_apiserver::subresource::{Parameters, Parent, Subresource};
use aggregated_apiserver::{Kind, Stored};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
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

/// The kind, as the server serves it.
pub fn kind() -> Kind {
    let yarn = Subresource::new("yarn").get(yarn).produces("text/plain");
    Kind::stored::<Alpaca>().subresource(yarn.parameters::<YarnOptions>())
}

/// The parameters of `yarn`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct YarnOptions {
    /// The length of a kilogram of yarn in metres.
    metres_per_kilogram: Option<f64>,
}

/// `GET …/alpacas/NAME/yarn`: the length of the yarn.
async fn yarn(
    Parent(alpaca): Parent<Alpaca>,
    Parameters(options): Parameters<YarnOptions>,
) -> String {
    let metres = alpaca.spec.fleece * options.metres_per_kilogram.unwrap_or(2500.0);
    format!("{metres:.0} metres\n")
}
