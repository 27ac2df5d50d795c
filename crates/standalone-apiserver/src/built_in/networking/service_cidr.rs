//! ServiceCIDRs.

use aggregated_apiserver::{FieldError, Strategy, Validation};
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde_json::{Value, json};

use crate::built_in::checks::{FieldErrors, IMMUTABLE, go_struct, quote, to_json};
use crate::built_in::networks::{are_of_one_family, check_canonical_network};
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::without_generation;

const AT: &str = "spec.cidrs";

pub(crate) fn row() -> Row<ServiceCIDR> {
    let rules = Validation::new().validate(|range, old, _| validate(range, old));
    Row { subresources: Subresources::Status, columns: columns(), rules, ..Row::new(strategy()) }
}

fn strategy() -> Strategy {
    Strategy { updates_metadata_with_status: false, ..without_generation() }
}

/// The range of the addresses of Services, which a server has from the start.
pub(crate) fn of_server(range: &str, now: Timestamp) -> Value {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": aggregated_apiserver::encoding::truncate_to_seconds(now).to_string(),
    });
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [range]}, "status": {"conditions": [condition]},
    })
}

fn columns() -> Vec<Column<ServiceCIDR>> {
    vec![
        Column::computed("CIDRs", |range: &ServiceCIDR, _| networks(range).join(",")),
        Column::age(),
    ]
}

fn networks(range: &ServiceCIDR) -> &[String] {
    range.spec.as_ref().and_then(|spec| spec.cidrs.as_deref()).unwrap_or_default()
}

fn validate(range: &ServiceCIDR, old: Option<&ServiceCIDR>) -> FieldErrors {
    let mut faults = Vec::new();
    let cidrs = networks(range);
    let Some(old) = old.map(networks) else {
        check(cidrs, &mut faults);
        return faults;
    };
    let mut check_same = |index: usize, new: &str, old: &str| {
        if new != old {
            faults.push(FieldError::invalid(format!("{AT}[{index}]"), quote(new), IMMUTABLE));
        }
    };
    match (old, cidrs) {
        (old, new) if old.len() == new.len() => {
            for (index, (new, old)) in new.iter().zip(old).enumerate() {
                check_same(index, new, old);
            }
        }
        // A range of the other IP family can be added.
        ([old], [new, _]) => {
            check_same(0, new, old);
            check(cidrs, &mut faults);
        }
        _ => faults.push(FieldError::invalid(AT, to_json(&cidrs), IMMUTABLE)),
    }
    faults
}

fn check(cidrs: &[String], faults: &mut FieldErrors) {
    match cidrs.len() {
        0 => return faults.push(FieldError::required(AT, "at least one CIDR required")),
        1 | 2 => {}
        _ => {
            let shown = go_struct(&[("CIDRs", to_json(&cidrs))]);
            return faults.push(FieldError::invalid(AT, shown, "may only hold up to 2 values"));
        }
    }
    for (index, cidr) in cidrs.iter().enumerate() {
        check_canonical_network(&format!("{AT}[{index}]"), cidr, faults);
    }
    if are_of_one_family(cidrs) {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        faults.push(FieldError::invalid(AT, to_json(&cidrs), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, now, texts};

    fn range(cidrs: &[&str]) -> Value {
        json!({"spec": {"cidrs": cidrs}})
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for (cidrs, expected) in [
            (&["10.0.0.0/16"][..], vec![]),
            (&["10.0.0.0/16", "2001:db8::/64"], vec![]),
            (&[], vec!["spec.cidrs: Required value: at least one CIDR required"]),
            (
                &["10.0.0.0/16", "a", "b"],
                vec![
                    "spec.cidrs: Invalid value: {\"CIDRs\":[\"10.0.0.0/16\",\"a\",\"b\"]}: may only hold up to 2 values",
                ],
            ),
            (
                &["10.0.0.0/16", "10.1.0.0/16"],
                vec![
                    "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.0/16\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
                ],
            ),
            (
                &["2001:DB8::/64"],
                vec![
                    "spec.cidrs[0]: Invalid value: \"2001:DB8::/64\": must be in canonical form (\"2001:db8::/64\")",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, range(cidrs)), expected, "{cidrs:?}");
        }
        let server: ServiceCIDR = serde_json::from_value(of_server("10.96.0.0/12", now())).unwrap();
        assert_eq!(texts(&validate(&server, None)), [] as [&str; 0]);
    }

    #[test]
    fn a_range_of_the_other_family_can_be_added() {
        let update =
            |old: &[&str], new: &[&str]| faults_of_update(validate, range(old), range(new));
        assert_eq!(update(&["10.0.0.0/16"], &["10.0.0.0/16", "2001:db8::/64"]), [] as [&str; 0]);
        assert_eq!(
            update(&["10.0.0.0/16"], &["10.1.0.0/16"]),
            ["spec.cidrs[0]: Invalid value: \"10.1.0.0/16\": field is immutable"]
        );
        assert_eq!(
            update(&["10.0.0.0/16", "2001:db8::/64"], &["10.0.0.0/16"]),
            ["spec.cidrs: Invalid value: [\"10.0.0.0/16\"]: field is immutable"]
        );
        let shown = json!({"CIDRs": "10.0.0.0/16,2001:db8::/64", "Age": "<unknown>"});
        assert_eq!(cells(columns(), range(&["10.0.0.0/16", "2001:db8::/64"])), shown);
    }
}
