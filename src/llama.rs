//! Llama: a kind that the server keeps, in two versions.
//!
//! Objects are kept as `v1alpha` in this release: the release before it knows no other version, runs beside it during an
//! update, and may come back. For the same reason `v1alpha` is not deprecated yet: a client that works with both releases has to use it, and
//! a warning with every request would not help.

mod conversion;
pub mod v1;
pub mod v1alpha;

use aggregated_apiserver::{Stored, Versions};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

/// The sample llama is the same one after every restart, so that what it owns
/// is not collected as garbage.
const DOLLY: &str = "d0111a00-0000-4000-8000-000000000001";

/// What the rule of both versions says of a llama that is taller, in metres, than it is heavy, in kilograms.
const TALLER_THAN_HEAVY: &str = "must not be less than height: weight is in kilograms, height in metres; are they swapped, or is height in centimetres?";

impl Stored for v1::Llama {
    fn initial() -> Vec<Self> {
        let metadata = ObjectMeta {
            name: Some("dolly".to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(DOLLY.to_owned()),
            ..ObjectMeta::default()
        };
        let quantity = |text: &str| Quantity(text.to_owned());
        vec![Self {
            metadata,
            spec: v1::LlamaSpec { weight: quantity("31.4"), height: quantity("0.5") },
        }]
    }

    fn versions() -> Versions<Self> {
        Versions::new().kept_version::<v1alpha::Llama>()
    }
}
