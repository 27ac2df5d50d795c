//! Compares the permissions of the server's ServiceAccount with those that its manifests grant. The cluster is queried
//! for that ServiceAccount, so it does not matter which role grants a permission.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::finding::{Check, Finding};
use super::{Found, Installation};
use crate::manifests::Grant;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The largest number of concurrent queries.
const AT_ONCE: usize = 8;

pub(super) async fn check(installation: &Installation) -> Vec<Finding> {
    let mut check = Check::new("permissions");
    let Installation { namespace, account, .. } = installation;
    let who = format!("ServiceAccount {namespace}/{account}");
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
    match installation.find(&path).await {
        Found::Object(_) => {}
        Found::Absent => check.fault(format!("{who} is missing"), installation.create()),
        Found::Hidden(why) => check.unknown(&who, &why),
    }
    let asked = stream::iter(&installation.grants)
        .map(async |grant| (grant, may(installation, grant).await))
        .buffered(AT_ONCE);
    let answers: Vec<(&Grant, Result<bool, String>)> = asked.collect().await;
    // One finding for each object of the manifests, however many of its rules are missing.
    let mut missing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (grant, answer) in &answers {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.entry(&grant.by).or_default().push(said(grant)),
            Err(why) => {
                check.unknown(&format!("the permissions of {who}"), why);
                return check.done("");
            }
        }
    }
    for (by, rights) in missing {
        check.fault(
            format!("{who} is not allowed to {}, which {by} grants", rights.join(", ")),
            installation.grant(),
        );
    }
    check.done(format!("{who} has all {} permissions that it needs", answers.len()))
}

/// Whether the ServiceAccount has this permission.
async fn may(installation: &Installation, grant: &Grant) -> Result<bool, String> {
    let answer = installation.cluster.look_by_post(REVIEWS, &review(installation, grant)).await?;
    match answer.status.is_success() {
        true => Ok(answer.json["status"]["allowed"] == true),
        false => Err(answer.message().to_owned()),
    }
}

fn review(installation: &Installation, grant: &Grant) -> Value {
    let Installation { namespace, account, .. } = installation;
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{account}"),
            "groups": [
                "system:serviceaccounts",
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated",
            ],
            "resourceAttributes": {
                "group": grant.group, "resource": grant.resource, "verb": grant.verb,
                "namespace": grant.namespace, "name": grant.name,
            },
        },
    })
}

/// Formats a permission, for example `list pods` or `get secrets farm/x`.
fn said(grant: &Grant) -> String {
    let Grant { group, resource, verb, namespace, name, .. } = grant;
    let mut said = format!("{verb} {resource}");
    if !group.is_empty() {
        said = format!("{said}.{group}");
    }
    match (namespace.as_str(), name.as_str()) {
        ("", "") => said,
        ("", name) => format!("{said} {name}"),
        (namespace, "") => format!("{said} in {namespace}"),
        (namespace, name) => format!("{said} {namespace}/{name}"),
    }
}
