//! Ingresses.

mod validation;

use std::collections::BTreeSet;

use aggregated_apiserver::strategy::FilledField;
use aggregated_apiserver::{Strategy, Validation};
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress, IngressRule};

use crate::built_in::cell_texts::NONE;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::with_generation;
use validation::{validate, validate_status, warnings, warnings_of_status};

/// The annotation with the class, from before there was a field for it.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// The number of hosts in a table cell.
const SHOWN_HOSTS: usize = 3;

pub(crate) fn row() -> Row<Ingress> {
    let rules = Validation::new()
        .validate(|ingress, old, _| validate(ingress, old))
        .warn(|ingress, old, _| warnings(ingress, old))
        .validate_status(|ingress, old, _| validate_status(ingress, old))
        .warn_of_status(|ingress, _, _| warnings_of_status(ingress));
    Row {
        short_names: &["ing"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    // The fields that no manager owns unless a client sets them.
    const FILLED: &[FilledField] = &[FilledField::field("/spec/ingressClassName")];
    Strategy { filled_by_system: FILLED, ..with_generation() }
}

fn columns() -> Vec<Column<Ingress>> {
    vec![
        Column::computed("Class", |ingress: &Ingress, _| {
            let class = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.clone());
            class.unwrap_or_else(|| NONE.to_owned())
        }),
        Column::computed("Hosts", |ingress: &Ingress, _| {
            let rules = ingress.spec.as_ref().and_then(|spec| spec.rules.as_deref());
            hosts(rules.unwrap_or_default())
        }),
        Column::computed("Address", |ingress: &Ingress, _| addresses(points(ingress))),
        Column::computed("Ports", |ingress: &Ingress, _| {
            let tls = ingress.spec.as_ref().and_then(|spec| spec.tls.as_ref());
            if tls.is_some_and(|tls| !tls.is_empty()) { "80, 443" } else { "80" }
        }),
        Column::age(),
    ]
}

/// The hosts in the format `a.example.com,b.example.com,c.example.com + 1 more...`.
fn hosts(rules: &[IngressRule]) -> String {
    let hosts = |rules: &[IngressRule]| {
        let hosts = rules.iter().filter_map(|rule| rule.host.clone());
        hosts.filter(|host| !host.is_empty()).collect::<Vec<_>>()
    };
    let all = hosts(rules);
    if all.is_empty() {
        return "*".to_owned();
    }
    let shown = all.iter().take(SHOWN_HOSTS).cloned().collect::<Vec<_>>().join(",");
    // Rules without a host count too, once there are enough hosts.
    let before_last = &rules[..rules.len() - 1];
    match hosts(before_last).len() >= SHOWN_HOSTS {
        true => format!("{shown} + {} more...", rules.len() - SHOWN_HOSTS),
        false => shown,
    }
}

/// The addresses of an Ingress, according to its status.
fn points(ingress: &Ingress) -> &[IngressLoadBalancerIngress] {
    let balancer = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default()
}

fn addresses(points: &[IngressLoadBalancerIngress]) -> String {
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let all = points.iter().filter_map(|one| set(&one.ip).or_else(|| set(&one.hostname)));
    all.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::cells;
    use serde_json::json;

    #[test]
    fn an_ingress_is_printed_as_a_table_row() {
        let ingress = json!({
            "spec": {
                "ingressClassName": "fast", "tls": [{}],
                "rules": [{"host": "a.io"}, {"host": "b.io"}, {}, {"host": "c.io"}],
            },
            "status": {"loadBalancer": {"ingress": [
                {"hostname": "lb.io"}, {"ip": "192.0.2.1", "hostname": "x"}, {"hostname": "lb.io"}, {},
            ]}},
        });
        assert_eq!(
            cells(columns(), ingress),
            json!({
                "Class": "fast", "Hosts": "a.io,b.io,c.io", "Address": "192.0.2.1,lb.io",
                "Ports": "80, 443", "Age": "<unknown>",
            })
        );
        let shown = |rules| cells(columns(), json!({"spec": {"rules": rules}}));
        let four = json!([{"host": "a"}, {"host": "b"}, {"host": "c"}, {}]);
        assert_eq!(shown(four)["Hosts"], "a,b,c + 1 more...");
        let nothing = shown(json!([]));
        assert_eq!((&nothing["Class"], &nothing["Hosts"]), (&json!("<none>"), &json!("*")));
        assert_eq!((&nothing["Address"], &nothing["Ports"]), (&json!(""), &json!("80")));
    }
}
