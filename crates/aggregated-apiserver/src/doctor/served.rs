//! Checks the responses of the server through kube-apiserver, as clients receive them.

use std::collections::BTreeSet;

use super::control_plane::{difference, skew};
use super::finding::{Check, Finding};
use super::{Installation, items, text};

pub(super) async fn check(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("served");
    let (mut kinds, mut versions) = (BTreeSet::new(), 0);
    for api_service in &installation.api_services {
        let Some((version, group)) = api_service.split_once('.') else { continue };
        let path = format!("/apis/{group}/{version}");
        let look = match installation.cluster.look(&path).await {
            Ok(look) if look.status.is_success() => look,
            Ok(look) => {
                let remedy = match look.status.as_u16() {
                    401 => format!("the server does not trust kube-apiserver: {}", installation.logs()),
                    403 => "kubectl auth whoami: your user has no permission for discovery (ClusterRole system:discovery)".to_owned(),
                    404 => format!("kubectl get apiservice {api_service} -o yaml"),
                    _ => format!("kubectl get apiservice {api_service} -o jsonpath='{{.status.conditions}}'; {}", installation.logs()),
                };
                let why = format!("{path} returns {}: {}", look.status, look.message());
                check.fault(why, remedy);
                continue;
            }
            Err(why) => {
                let remedy = format!(
                    "the control plane cannot reach the Pods, or they hang: {}",
                    installation.logs()
                );
                check.fault(format!("no response for {path}: {why}"), remedy);
                continue;
            }
        };
        let served: Vec<&str> =
            items(&look.json["resources"]).iter().map(|resource| text(&resource["name"])).collect();
        let is_wanted = |kind: &&std::sync::Arc<crate::kind::Kind>| {
            kind.group == group && kind.versions.iter().any(|known| known.name == version)
        };
        let wanted = installation.kinds.iter().filter(is_wanted);
        let wanted: Vec<&str> = wanted.map(|kind| kind.names.plural.as_str()).collect();
        kinds.extend(wanted.iter().map(|plural| (group.to_owned(), (*plural).to_owned())));
        versions += 1;
        let missing: Vec<&str> =
            wanted.into_iter().filter(|plural| !served.contains(plural)).collect();
        if !missing.is_empty() {
            check.warn(
                format!(
                    "another release is deployed: {api_service} serves no {}",
                    missing.join(", ")
                ),
                format!(
                    "{}; or run doctor of the deployed release",
                    installation
                        .deployed
                        .replace_image(&installation.name, &installation.namespace)
                ),
            );
        }
        clock(installation, look.date.as_deref(), &mut check).await;
    }
    let count = kinds.len();
    check.done(format!("{count} kinds are served through kube-apiserver, in {versions} versions"))
}

/// Compares the server's clock with that of kube-apiserver. A response that kube-apiserver proxies has the `Date`
/// header of the server that sent it.
async fn clock(installation: &Installation, date: Option<&str>, check: &mut Check) {
    let Ok(look) = installation.cluster.look("/version").await else { return };
    let known = skew(look.date.as_deref(), installation.clock.now());
    let own = skew(date, installation.clock.now());
    let Some(difference) = known.zip(own).and_then(|(known, own)| difference(known - own)) else {
        return;
    };
    check.fault(
        format!("the server's clock is {difference} that of kube-apiserver"),
        format!(
            "kubectl -n {} get pods -o wide: set the clock of that node (timedatectl set-ntp true)",
            installation.namespace
        ),
    );
}
