//! The constraints of a LimitRange.

use aggregated_apiserver::types::Quantity;
use k8s_openapi::api::core::v1::{LimitRangeItem, PersistentVolumeClaim, Pod, PodSpec};

use super::{Amounts, pod_sums};
use crate::built_in::amounts::{milli_value, whole_value};

/// The largest amount that is compared in thousandths.
const MOST_IN_MILLI: i128 = i64::MAX as i128 / 1_000;

/// The object whose resources are checked.
pub(super) enum Asked {
    Pod(Box<Pod>),
    Claim(Box<PersistentVolumeClaim>),
}

/// Returns the constraints that the resources of a Pod violate.
pub(super) fn faults_of_limit(limit: &LimitRangeItem, pod: &Pod) -> Vec<String> {
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let empty = Amounts::new();
    match limit.type_.as_str() {
        "Container" => {
            let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            let faults = containers.flat_map(|container| {
                let resources = container.resources.as_ref();
                let requests = resources.and_then(|resources| resources.requests.as_ref());
                let limits = resources.and_then(|resources| resources.limits.as_ref());
                faults(limit, requests.unwrap_or(&empty), limits.unwrap_or(&empty))
            });
            faults.collect()
        }
        "Pod" => faults(limit, &pod_sums::requests(spec), &pod_sums::limits(spec)),
        _ => Vec::new(),
    }
}

/// Returns the constraints that the requests of a claim violate. The limits of a claim are ignored.
pub(super) fn faults_of_claim(
    limit: &LimitRangeItem,
    claim: &PersistentVolumeClaim,
) -> Vec<String> {
    if limit.type_ != "PersistentVolumeClaim" {
        return Vec::new();
    }
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let nothing = Amounts::new();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let requests = requests.unwrap_or(&nothing);
    let least = limit.min.iter().flatten().filter_map(|(name, enforced)| {
        let one = Constraint::of(limit, name, &enforced.0, requests, &nothing)?;
        one.fault_of_least()
    });
    let most = limit.max.iter().flatten().filter_map(|(name, enforced)| {
        let one = Constraint::of(limit, name, &enforced.0, requests, &nothing)?;
        one.fault_of_most_requested()
    });
    least.chain(most).collect()
}

fn faults<'a>(limit: &'a LimitRangeItem, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    type Judge<'a> = fn(&Constraint<'a>) -> Option<String>;
    let rules: [(&'a Option<Amounts>, Judge<'a>); 3] = [
        (&limit.min, Constraint::fault_of_least),
        (&limit.max, Constraint::fault_of_most),
        (&limit.max_limit_request_ratio, Constraint::fault_of_ratio),
    ];
    let mut faults = Vec::new();
    for (amounts, judge) in rules {
        faults.extend(amounts.iter().flatten().filter_map(|(name, enforced)| {
            judge(&Constraint::of(limit, name, &enforced.0, requests, limits)?)
        }));
    }
    faults
}

/// A constraint on one resource, and the amounts that it is checked against.
struct Constraint<'a> {
    /// The constrained type, for example `Container`.
    limited: &'a str,
    resource: &'a str,
    enforced: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
}

impl<'a> Constraint<'a> {
    fn of(
        limit: &'a LimitRangeItem,
        resource: &'a str,
        enforced: &str,
        requests: &Amounts,
        limits: &Amounts,
    ) -> Option<Self> {
        let of = |amounts: &Amounts| Quantity::parse(&amounts.get(resource)?.0).ok();
        Some(Self {
            limited: &limit.type_,
            resource,
            enforced: Quantity::parse(enforced).ok()?,
            request: of(requests),
            limit: of(limits),
        })
    }

    /// An amount in the unit in which all amounts can be compared.
    fn counted(&self, amount: Quantity) -> i128 {
        let all = [self.request, self.limit, Some(self.enforced)];
        let is_small = |amount: &Quantity| whole_value(*amount) <= MOST_IN_MILLI;
        match all.iter().flatten().all(is_small) {
            true => milli_value(amount),
            false => whole_value(amount),
        }
    }

    fn is_less(&self, one: Quantity, other: Quantity) -> bool {
        self.counted(one) < self.counted(other)
    }

    fn fault_of_least(&self) -> Option<String> {
        let Self { limited, resource, enforced, request, limit } = self;
        let demand = format!("minimum {resource} usage per {limited} is {enforced}");
        let Some(request) = request else {
            return Some(format!("{demand}.  No request is specified"));
        };
        if self.is_less(*request, *enforced) {
            return Some(format!("{demand}, but request is {request}"));
        }
        let limit = limit.filter(|limit| self.is_less(*limit, *enforced))?;
        Some(format!("{demand}, but limit is {limit}"))
    }

    fn fault_of_most(&self) -> Option<String> {
        let Self { limited, resource, enforced, request, limit } = self;
        let demand = format!("maximum {resource} usage per {limited} is {enforced}");
        let Some(limit) = limit else {
            return Some(format!("{demand}.  No limit is specified"));
        };
        if self.is_less(*enforced, *limit) {
            return Some(format!("{demand}, but limit is {limit}"));
        }
        let request = request.filter(|request| self.is_less(*enforced, *request))?;
        Some(format!("{demand}, but request is {request}"))
    }

    fn fault_of_most_requested(&self) -> Option<String> {
        let Self { limited, resource, enforced, request, .. } = self;
        let demand = format!("maximum {resource} usage per {limited} is {enforced}");
        let Some(request) = request else {
            return Some(format!("{demand}.  No request is specified"));
        };
        let is_more = self.is_less(*enforced, *request);
        is_more.then(|| format!("{demand}, but request is {request}"))
    }

    #[allow(clippy::cast_precision_loss)] // Go computes with the same numbers
    fn fault_of_ratio(&self) -> Option<String> {
        let Self { limited, resource, enforced, .. } = self;
        let demand = format!("{resource} max limit to request ratio per {limited} is {enforced}");
        let counted = |amount: Option<Quantity>| {
            amount.map(|amount| self.counted(amount)).filter(|amount| *amount != 0)
        };
        let Some(request) = counted(self.request) else {
            return Some(format!("{demand}, but no request is specified or request is 0"));
        };
        let Some(limit) = counted(self.limit) else {
            return Some(format!("{demand}, but no limit is specified or limit is 0"));
        };
        let ratio = limit as f64 / request as f64;
        let is_more = match whole_value(*enforced) <= MOST_IN_MILLI {
            true => ratio * 1000.0 > milli_value(*enforced) as f64,
            false => ratio > whole_value(*enforced) as f64,
        };
        is_more.then(|| format!("{demand}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::{Value, json};

    fn limit(more: Value) -> LimitRangeItem {
        let mut limit = json!({"type": "Container"});
        limit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object(limit)
    }

    #[test]
    fn containers() {
        for (more, resources, expected) in [
            (json!({"min": {"cpu": "1"}}), json!({"requests": {"cpu": "1"}}), vec![]),
            (
                json!({"min": {"cpu": "1"}}),
                json!({}),
                vec!["minimum cpu usage per Container is 1.  No request is specified"],
            ),
            (
                json!({"min": {"cpu": "1"}}),
                json!({"requests": {"cpu": "500m"}}),
                vec!["minimum cpu usage per Container is 1, but request is 500m"],
            ),
            (
                json!({"max": {"cpu": "1"}}),
                json!({"requests": {"cpu": "1"}}),
                vec!["maximum cpu usage per Container is 1.  No limit is specified"],
            ),
            (
                json!({"max": {"cpu": "1", "memory": "1Gi"}}),
                json!({"limits": {"cpu": "2", "memory": "2Gi"}}),
                vec![
                    "maximum cpu usage per Container is 1, but limit is 2",
                    "maximum memory usage per Container is 1Gi, but limit is 2Gi",
                ],
            ),
            (
                json!({"maxLimitRequestRatio": {"cpu": "1500m"}}),
                json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
                vec![
                    "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
                ],
            ),
            (
                json!({"maxLimitRequestRatio": {"cpu": "2"}}),
                json!({"requests": {"cpu": "0"}, "limits": {"cpu": "2"}}),
                vec![
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ],
            ),
        ] {
            let pod =
                object(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}));
            assert_eq!(faults_of_limit(&limit(more.clone()), &pod), expected, "{more} {resources}");
        }
    }

    #[test]
    fn claims() {
        let mut limit = limit(json!({"min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}));
        limit.type_ = "PersistentVolumeClaim".to_owned();
        let faults = |size: &str| {
            let resources = json!({"requests": {"storage": size}});
            faults_of_claim(&limit, &object(json!({"spec": {"resources": resources}})))
        };
        assert_eq!(faults("1Gi"), [] as [&str; 0]);
        assert_eq!(
            faults("1Mi"),
            ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"]
        );
        assert_eq!(
            faults("3Gi"),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
    }
}
