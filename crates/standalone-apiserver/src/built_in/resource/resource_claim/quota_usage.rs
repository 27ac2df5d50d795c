//! The quota usage of a ResourceClaim: its devices by DeviceClass.

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::{ObjectUsage, QuotaEvaluator};
use aggregated_apiserver::types::Quantity;
use serde::Deserialize;

/// The end of the name of a resource; a DeviceClass is before it.
const OF_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// The largest number of devices of one request, which a request for all devices is charged for.
const MOST: u64 = 32;

/// The quota evaluator of ResourceClaims.
#[derive(Debug)]
pub(super) struct ClaimEvaluator;

impl QuotaEvaluator for ClaimEvaluator {
    fn usage(&self, json: &[u8]) -> Result<ObjectUsage, serde_json::Error> {
        let claim: Counted = serde_json::from_slice(json)?;
        let mut amounts: BTreeMap<String, Quantity> = BTreeMap::new();
        for (class, count) in claim.spec.devices.requests.iter().flat_map(Request::devices) {
            let count = Quantity::from_whole(count);
            let name = format!("{class}{OF_CLASS}");
            let sum = amounts.get(&name).map_or(count, |before| before.plus(count));
            amounts.insert(name, sum);
        }
        Ok(ObjectUsage { amounts, ..ObjectUsage::default() })
    }

    fn covers(&self, resource: &str) -> bool {
        resource.ends_with(OF_CLASS)
    }
}

/// The fields that determine the usage of a claim. Other fields are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    devices: Devices,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Devices {
    requests: Vec<Request>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Request {
    exactly: Option<Exact>,
    first_available: Vec<Exact>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Exact {
    device_class_name: String,
    allocation_mode: String,
    count: u64,
}

impl Request {
    /// The largest number of devices of each class that can be allocated.
    fn devices(&self) -> BTreeMap<&str, u64> {
        let exactly = self.exactly.iter().filter(|_| self.first_available.is_empty());
        let mut devices = BTreeMap::new();
        for one in self.first_available.iter().chain(exactly) {
            let most = devices.entry(one.device_class_name.as_str()).or_default();
            *most = one.count().max(*most);
        }
        devices
    }
}

impl Exact {
    fn count(&self) -> u64 {
        match self.allocation_mode.as_str() {
            "ExactCount" => self.count,
            "All" => MOST,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn devices_are_counted_by_class() {
        let exact = |class: &str, count: u64| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
        let all = json!({"deviceClassName": "b", "allocationMode": "All"});
        let requests = json!([
            {"name": "a", "exactly": exact("a", 2)},
            {"name": "b", "firstAvailable": [exact("a", 3), exact("a", 1), exact("c", 1)]},
            {"name": "c", "exactly": all},
        ]);
        let claim = json!({"spec": {"devices": {"requests": requests}}});
        let amounts = ClaimEvaluator.usage(claim.to_string().as_bytes()).unwrap().amounts;
        let amounts: Vec<String> =
            amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        let expected = [("a", 5), ("b", 32), ("c", 1)]
            .map(|(class, count)| format!("{class}.deviceclass.resource.k8s.io/devices={count}"));
        assert_eq!(amounts, expected);
        assert!(ClaimEvaluator.covers("a.deviceclass.resource.k8s.io/devices"));
        assert!(!ClaimEvaluator.covers("a.deviceclass.resource.k8s.io/others"));
    }
}
