//! The quota usage of a PersistentVolumeClaim: its storage, in total and by its StorageClass.

use std::collections::{BTreeMap, BTreeSet};

use aggregated_apiserver::strategy::{ObjectScopes, ObjectUsage, QuotaEvaluator};
use aggregated_apiserver::types::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use serde::Deserialize;

use super::CLASS_ANNOTATION;
use super::validation::STORAGE;

/// The resources of claims that quotas limit.
const COVERED: [&str; 2] = [CLAIMS, REQUESTS];
const CLAIMS: &str = "persistentvolumeclaims";
const REQUESTS: &str = "requests.storage";
/// The part of a resource name between a StorageClass and a resource of its claims.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// The number of billionths in one byte.
const NANO: i128 = 1_000_000_000;

/// The quota evaluator of PersistentVolumeClaims.
#[derive(Debug)]
pub(super) struct ClaimEvaluator;

impl QuotaEvaluator for ClaimEvaluator {
    fn usage(&self, json: &[u8]) -> Result<ObjectUsage, serde_json::Error> {
        let claim: Counted = serde_json::from_slice(json)?;
        let used = [(CLAIMS, Some(Quantity::from_whole(1))), (REQUESTS, claim.storage())];
        let mut amounts = BTreeMap::new();
        for (name, amount) in used {
            let Some(amount) = amount else { continue };
            amounts.insert(name.to_owned(), amount);
            if let Some(class) = claim.class() {
                amounts.insert(format!("{class}{OF_CLASS}{name}"), amount);
            }
        }
        Ok(ObjectUsage { amounts, scopes: claim.scopes() })
    }

    fn covers(&self, resource: &str) -> bool {
        let of_class = resource.rsplit_once(OF_CLASS).map(|(_, name)| name);
        COVERED.contains(&of_class.unwrap_or(resource))
    }
}

type Amounts = BTreeMap<String, Amount>;

/// The fields that determine the usage of a claim. Other fields are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    resources: Resources,
    storage_class_name: Option<String>,
    volume_attributes_class_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Amounts,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    allocated_resources: Amounts,
    current_volume_attributes_class_name: String,
    modify_volume_status: Modification,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Modification {
    target_volume_attributes_class_name: String,
}

impl Counted {
    /// The StorageClass of the claim.
    fn class(&self) -> Option<&str> {
        let annotation = self.metadata.annotations.get(CLASS_ANNOTATION);
        let class = annotation.or(self.spec.storage_class_name.as_ref());
        class.map(String::as_str).filter(|class| !class.is_empty())
    }

    /// The requested storage, or the allocated one if that is larger. Quotas count whole bytes.
    fn storage(&self) -> Option<Quantity> {
        let storage = |amounts: &Amounts| Quantity::parse(&amounts.get(STORAGE)?.0).ok();
        let requested = storage(&self.spec.resources.requests)?;
        let allocated = storage(&self.status.allocated_resources);
        let larger = allocated.filter(|allocated| allocated.nanos() > requested.nanos());
        Some(rounded_up(larger.unwrap_or(requested)))
    }

    /// The scopes of quotas that apply to the claim: its VolumeAttributesClasses.
    fn scopes(&self) -> ObjectScopes {
        let Status { current_volume_attributes_class_name, modify_volume_status, .. } =
            &self.status;
        let classes = [
            &self.spec.volume_attributes_class_name,
            current_volume_attributes_class_name,
            &modify_volume_status.target_volume_attributes_class_name,
        ];
        let classes = classes.into_iter().filter(|class| !class.is_empty()).cloned().collect();
        let values = [("VolumeAttributesClass", classes)].into();
        ObjectScopes { flags: BTreeSet::new(), values }
    }
}

/// The next whole number of bytes.
fn rounded_up(amount: Quantity) -> Quantity {
    let rest = amount.nanos().rem_euclid(NANO);
    if rest == 0 {
        return amount;
    }
    let whole = (amount.nanos() - rest) / NANO + 1;
    Quantity::from_whole(u64::try_from(whole).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn amounts(claim: &Value) -> Value {
        let amounts =
            ClaimEvaluator.usage(claim.to_string().as_bytes()).unwrap().amounts.into_iter();
        amounts.map(|(name, amount)| (name, Value::from(amount.to_string()))).collect()
    }

    #[test]
    fn storage_of_claims_is_counted_by_class() {
        let spec = |storage: &str| json!({"resources": {"requests": {"storage": storage}}});
        let plain = json!({CLAIMS: "1", REQUESTS: "1Gi"});
        assert_eq!(amounts(&json!({"spec": spec("1Gi")})), plain);
        assert_eq!(amounts(&json!({"spec": spec("1500m")}))[REQUESTS], "2");
        let mut gold = spec("1Gi");
        gold["storageClassName"] = "gold".into();
        let allocated = json!({"allocatedResources": {"storage": "2Gi"}});
        let expected = json!({
            CLAIMS: "1", REQUESTS: "2Gi",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "gold.storageclass.storage.k8s.io/requests.storage": "2Gi",
        });
        assert_eq!(amounts(&json!({"spec": gold, "status": allocated})), expected);
        let annotations = json!({"annotations": {CLASS_ANNOTATION: "old"}});
        let old = amounts(&json!({"metadata": annotations, "spec": gold}));
        assert_eq!(old["old.storageclass.storage.k8s.io/requests.storage"], "1Gi");
        assert_eq!(amounts(&json!({})), json!({CLAIMS: "1"}));
    }

    #[test]
    fn claims_have_the_scope_of_all_their_volume_attributes_classes() {
        let claim = json!({
            "spec": {"volumeAttributesClassName": "a"},
            "status": {
                "currentVolumeAttributesClassName": "b",
                "modifyVolumeStatus": {"targetVolumeAttributesClassName": "a"},
            },
        });
        let scopes = ClaimEvaluator.usage(claim.to_string().as_bytes()).unwrap().scopes;
        let classes = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(scopes.values["VolumeAttributesClass"], classes);
        assert!(
            ClaimEvaluator.usage(b"{}").unwrap().scopes.values["VolumeAttributesClass"].is_empty()
        );
    }

    #[test]
    fn resources_of_claims_in_quotas() {
        for (name, expected) in [
            (CLAIMS, true),
            (REQUESTS, true),
            ("gold.storageclass.storage.k8s.io/requests.storage", true),
            ("gold.storageclass.storage.k8s.io/persistentvolumeclaims", true),
            ("gold.storageclass.storage.k8s.io/pods", false),
            ("pods", false),
        ] {
            assert_eq!(ClaimEvaluator.covers(name), expected, "{name}");
        }
    }
}
