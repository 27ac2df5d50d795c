//! Llama: a stored kind with two versions.
//!
//! The storage version is `v1alpha` in this release. The release before knows no other version, runs beside this one
//! during an update, and can be restored by a rollback. For the same reason `v1alpha` is not deprecated yet: a client
//! that works with both releases must use it, and a warning with every request would not help.

mod conversion;
pub mod v1;
pub mod v1alpha;

use aggregated_apiserver::{Stored, Versions};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

/// The uid of the sample llama. It is the same after every restart, so that the garbage collector does not delete its
/// dependents.
const DOLLY: &str = "d0111a00-0000-4000-8000-000000000001";

/// The message of the rule of both versions that rejects a llama with more height, in metres, than weight, in
/// kilograms.
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
        Versions::new().storage_version::<v1alpha::Llama>()
    }
}
