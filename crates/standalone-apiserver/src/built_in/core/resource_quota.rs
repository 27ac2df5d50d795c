//! ResourceQuotas. The server that serves them enforces them.

mod validation;

use std::collections::BTreeMap;

use aggregated_apiserver::strategy::QuotaUsage;
use aggregated_apiserver::types::Quantity;
use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use crate::built_in::pod_template::resources::round_up;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::without_generation;
use validation::{validate, validate_status};

pub(crate) fn row() -> Row<ResourceQuota> {
    let rules = Validation::new()
        .prepare(|quota, _| prepare(quota))
        .validate(|quota, old, _| validate(quota, old))
        .validate_status(|quota, _, _| validate_status(quota))
        .warn(|quota, old, _| if old.is_none() { warnings(quota) } else { Vec::new() });
    Row {
        short_names: &["quota"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        returns_deleted_object: true,
        quota_usage: QuotaUsage::CountAs("resourcequotas"),
        ..without_generation()
    }
}

fn columns() -> Vec<Column<ResourceQuota>> {
    let column = |heading, is_limits: bool| {
        Column::computed(heading, move |quota: &ResourceQuota, _| cell(quota, is_limits))
    };
    vec![column("Request", false), column("Limit", true), Column::age()]
}

/// The usage of each resource: of limits, or of all other resources.
fn cell(quota: &ResourceQuota, is_limits: bool) -> String {
    let status = quota.status.as_ref();
    let used = status.and_then(|status| status.used.as_ref());
    let hard = status.into_iter().flat_map(|status| status.hard.iter().flatten());
    let hard = hard.filter(|(name, _)| name.starts_with("limits.") == is_limits);
    let texts = hard.map(|(name, hard)| {
        let used = used.and_then(|used| used.get(name)).map_or("0", |used| &used.0);
        format!("{name}: {used}/{}", hard.0)
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn prepare(quota: &mut ResourceQuota) {
    round_up(&mut quota.spec.get_or_insert_default().hard);
    let status = quota.status.get_or_insert_default();
    round_up(&mut status.hard);
    round_up(&mut status.used);
}

/// Warnings about requests that exceed limits.
fn warnings(quota: &ResourceQuota) -> Vec<String> {
    let nothing = BTreeMap::new();
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()).unwrap_or(&nothing);
    let nanos = |amount: &Amount| Quantity::parse(&amount.0).ok().map(|one| one.nanos());
    let mut warnings = Vec::new();
    for (resource, is_bare) in
        [("cpu", true), ("memory", true), ("storage", false), ("ephemeral-storage", false)]
    {
        let prefixed = (format!("requests.{resource}"), is_bare.then(|| resource.to_owned()));
        let names = [Some(prefixed.0), prefixed.1];
        let request = names.into_iter().flatten().find_map(|name| Some((hard.get(&name)?, name)));
        let limit_name = format!("limits.{resource}");
        let (Some((request, name)), Some(limit)) = (request, hard.get(&limit_name)) else {
            continue;
        };
        if nanos(request) > nanos(limit) {
            warnings.push(format!(
                "ResourceQuota {name} ({}) should be less than {limit_name} ({})",
                request.0, limit.0
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, object, prepared};
    use serde_json::json;

    #[test]
    fn amounts_are_rounded_up() {
        let filled = prepared(prepare, json!({"spec": {"hard": {"cpu": "0.0001"}}}));
        assert_eq!(filled["spec"]["hard"], json!({"cpu": "1m"}));
    }

    #[test]
    fn resource_quota_table_row_lists_used_and_hard_amounts() {
        let status = json!({
            "hard": {"pods": "5", "limits.cpu": "2", "count/foos.example.com": "3"},
            "used": {"pods": "1"},
        });
        assert_eq!(
            cells(columns(), json!({"status": status})),
            json!({
                "Request": "count/foos.example.com: 0/3, pods: 1/5", "Limit": "limits.cpu: 0/2",
                "Age": "<unknown>",
            })
        );
        let empty = json!({"Request": "", "Limit": "", "Age": "<unknown>"});
        assert_eq!(cells(columns(), json!({"spec": {"hard": {"pods": "5"}}})), empty);
    }

    #[test]
    fn requests_beyond_limits_are_warned_of() {
        let hard = json!({
            "cpu": "2", "limits.cpu": "1500m", "memory": "9Gi", "requests.memory": "1Gi",
            "limits.memory": "1Gi", "storage": "5", "limits.storage": "1",
        });
        assert_eq!(
            warnings(&object(json!({"spec": {"hard": hard}}))),
            ["ResourceQuota cpu (2) should be less than limits.cpu (1500m)"]
        );
    }
}
