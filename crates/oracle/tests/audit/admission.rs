//! Requests whose events have annotations of admission plugins, and the objects that these requests need.

use std::time::Instant;

use anyhow::{Result, ensure};
use oracle::server::{Sent, Server};
use serde_json::{Value, json};

use crate::PATIENCE;

/// Namespaces, each with its labels.
const NAMESPACES: &[(&str, &[(&str, &str)])] = &[
    ("audited", &[]),
    ("free", &[]),
    (
        "secured",
        &[
            ("pod-security.kubernetes.io/enforce", "baseline"),
            ("pod-security.kubernetes.io/audit", "restricted"),
            ("pod-security.kubernetes.io/audit-version", "v1.25"),
        ],
    ),
    ("noted", &[("pod-security.kubernetes.io/audit", "baseline")]),
    ("hooked", &[("hooked", "yes")]),
    ("judged", &[("judged", "yes")]),
];

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
const HOST_POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"h"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}"#;
const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"hostPID":true,"containers":[{"name":"c","image":"i"}]}}}}"#;
const ENDPOINTS: &str = r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"e"}}"#;
const REFUSED: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"r","labels":{"refused":"yes"}}}"#;

/// A request: method, path, media type of the body, and body.
pub const REQUESTS: &[[&str; 4]] = &[
    ["POST", "!/api/v1/namespaces/noted/pods", "json", POD],
    ["POST", "!/api/v1/namespaces/noted/pods", "json", HOST_POD],
    ["POST", "!/api/v1/namespaces/noted/pods?dryRun=All", "json", HOST_POD],
    ["POST", "!/apis/apps/v1/namespaces/noted/deployments", "json", DEPLOYMENT],
    ["POST", "!/api/v1/namespaces/secured/pods", "json", POD],
    ["POST", "!/api/v1/namespaces/secured/pods", "json", HOST_POD],
    [
        "PATCH",
        "!/api/v1/namespaces/secured/pods/p",
        "merge-patch+json",
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
    ],
    [
        "PATCH",
        "!/api/v1/namespaces/secured/pods/p",
        "strategic-merge-patch+json",
        r#"{"spec":{"containers":[{"name":"c","image":"j"}]}}"#,
    ],
    [
        "PATCH",
        "!/api/v1/namespaces/secured/pods/p/status",
        "merge-patch+json",
        r#"{"status":{"message":"m"}}"#,
    ],
    ["DELETE", "!/api/v1/namespaces/secured/pods/p?gracePeriodSeconds=0", "", ""],
    ["POST", "!/apis/apps/v1/namespaces/secured/deployments", "json", DEPLOYMENT],
    [
        "PATCH",
        "!/apis/apps/v1/namespaces/secured/deployments/d",
        "merge-patch+json",
        r#"{"spec":{"replicas":2}}"#,
    ],
    [
        "PATCH",
        "!/apis/apps/v1/namespaces/secured/deployments/d/scale",
        "merge-patch+json",
        r#"{"spec":{"replicas":3}}"#,
    ],
    ["POST", "!/api/v1/namespaces/free/pods", "json", HOST_POD],
    ["POST", "!/apis/apps/v1/namespaces/free/deployments", "json", DEPLOYMENT],
    ["POST", "!/api/v1/namespaces/secured/endpoints", "json", ENDPOINTS],
    ["GET", "!/api/v1/namespaces/secured/endpoints/none", "", ""],
    ["GET", ENDPOINTS_OF_JOE, AS_JOE, ""],
    [
        "POST",
        "!/api/v1/namespaces/hooked/configmaps",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#,
    ],
    [
        "PATCH",
        "!/api/v1/namespaces/hooked/configmaps/a",
        "merge-patch+json",
        r#"{"data":{"k":"w"}}"#,
    ],
    ["POST", "!/api/v1/namespaces/hooked/configmaps", "json", REFUSED],
    [
        "POST",
        "!/api/v1/namespaces/hooked/secrets",
        "json",
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#,
    ],
    ["DELETE", "!/api/v1/namespaces/hooked/configmaps/a", "", ""],
    ["DELETE", "!/api/v1/namespaces/hooked/configmaps", "", ""],
    ["DELETE", "!/api/v1/namespaces/hooked/secrets", "", ""],
    [
        "POST",
        "!/api/v1/namespaces/judged/configmaps",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"size":"7"}}"#,
    ],
    [
        "POST",
        "!/api/v1/namespaces/judged/configmaps",
        "json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"size":"1"}}"#,
    ],
    [
        "POST",
        "!/api/v1/namespaces/judged/secrets",
        "json",
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#,
    ],
];

/// A list that a user without permissions requests.
pub const ENDPOINTS_OF_JOE: &str = "!/api/v1/namespaces/secured/endpoints";

/// A request of an administrator that impersonates a user without permissions.
pub const AS_JOE: &str = "as joe";

/// The admission webhooks. A server at this URL answers them; the second string is its CA bundle.
fn configurations((url, ca): &(String, String)) -> [Value; 3] {
    let webhook = |name: &str, path: &str, rest: Value| {
        let mut webhook = json!({
            "name": format!("{name}.oracle.example.com"),
            "clientConfig": {"url": format!("{url}/{path}"), "caBundle": ca},
            "rules": [{
                "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps", "secrets"],
            }],
            "namespaceSelector": {"matchLabels": {"hooked": "yes"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        for (field, value) in rest.as_object().into_iter().flatten() {
            webhook[field] = value.clone();
        }
        webhook
    };
    let refused = json!({"objectSelector": {"matchLabels": {"refused": "yes"}}});
    let of_pods = json!({"rules": [{
        "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]});
    let ignored = json!({"failurePolicy": "Ignore"});
    let writes = json!([{
        "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps", "secrets"],
    }]);
    let of_writes = json!({"rules": writes});
    let first = [
        webhook("note", "note/a", json!({"reinvocationPolicy": "IfNeeded", "rules": writes})),
        webhook("pods", "deny", of_pods.clone()),
        webhook("fails", "status/500", ignored.clone()),
        webhook("annotates", "annotate", json!({})),
    ];
    let second = [
        webhook("escapes", "escape", of_writes.clone()),
        webhook("allows", "allow", json!({})),
        webhook("empty", "empty-patch", of_writes),
        webhook("refuses", "annotate-and-deny", refused),
    ];
    let validating = [
        webhook("pods", "deny", of_pods),
        webhook("allows", "allow", json!({})),
        webhook("gone", "absent", ignored),
        webhook("annotates", "annotate", json!({})),
        webhook("warns", "judge", json!({})),
    ];
    let configuration = |kind: &str, name: &str, webhooks: &[Value]| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        })
    };
    [
        configuration("MutatingWebhookConfiguration", "first", &first),
        configuration("MutatingWebhookConfiguration", "second", &second),
        configuration("ValidatingWebhookConfiguration", "third", &validating),
    ]
}

/// Policies with their bindings: one that audits and warns, and one that denies and audits.
fn policies() -> [(&'static str, Value); 4] {
    let version = "admissionregistration.k8s.io/v1";
    let policy = |name: &str, resource: &str, validations: Value| {
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"judged": "yes"}},
                    "resourceRules": [{
                        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                        "resources": [resource],
                    }],
                },
                "validations": validations,
                "auditAnnotations": [
                    {"key": "name", "valueExpression": "' <' + object.metadata.name + '> '"},
                    {"key": "nothing", "valueExpression": "null"},
                ],
            },
        })
    };
    let binding = |name: &str, actions: Value| {
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": format!("{name}-everywhere")},
            "spec": {"policyName": name, "validationActions": actions},
        })
    };
    let of_maps = json!([
        {"expression": "true"}, {"expression": "object.data.size < '5'", "message": "<large> & more"},
    ]);
    let of_secrets = json!([{"expression": "false", "message": "no Secrets"}]);
    let (policies, bindings) = ("validatingadmissionpolicies", "validatingadmissionpolicybindings");
    [
        (policies, policy("secrets.example.com", "secrets", of_secrets)),
        (bindings, binding("secrets.example.com", json!(["Deny", "Audit"]))),
        (policies, policy("maps.example.com", "configmaps", of_maps)),
        (bindings, binding("maps.example.com", json!(["Warn", "Audit"]))),
    ]
}

/// Creates the objects that the requests need, and waits until all webhooks are called and all policies are evaluated.
pub async fn set_up(server: &Server, hooks: &(String, String)) -> Result<()> {
    let create = |path: &str, object: &Value| Sent {
        method: "POST".to_owned(),
        path: path.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: Some(object.to_string()),
        ..Sent::default()
    };
    for (name, labels) in NAMESPACES {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let metadata = json!({"name": name, "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        created(server, &create("/api/v1/namespaces", &namespace)).await?;
    }
    for configuration in configurations(hooks) {
        let kind = configuration["kind"].as_str().unwrap_or_default().to_lowercase();
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}s");
        created(server, &create(&path, &configuration)).await?;
    }
    for (resource, object) in policies() {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
        created(server, &create(&path, &object)).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    // The binding of ConfigMaps was created last, so the other policy applies once this one warns.
    let judged = "/api/v1/namespaces/judged/configmaps?dryRun=All";
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "try"}, "data": {"size": "7"},
    });
    while server.ask(&create(judged, &object)).await?.warnings.is_empty() {
        ensure!(Instant::now() < deadline, "the policies are not evaluated");
        tokio::task::yield_now().await;
    }
    let path = "/api/v1/namespaces/hooked/configmaps?dryRun=All";
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "try"}});
    loop {
        let answer = server.ask(&create(path, &object)).await?;
        let annotations = &answer.body["metadata"]["annotations"];
        let is_mutated = annotations["escaped"].is_string() && annotations["notes"].is_string();
        if is_mutated && !answer.warnings.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the webhooks are not called: {answer:?}");
        tokio::task::yield_now().await;
    }
}

async fn created(server: &Server, sent: &Sent) -> Result<()> {
    let answer = server.ask(sent).await?;
    ensure!(answer.status == 201, "{} is answered with {:?}", sent.path, answer.body);
    Ok(())
}
