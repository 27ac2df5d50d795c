//! Roles: permissions of a program that is not an administrator.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

fn binding(name: &str, kind: &str, role: &str) -> RoleBinding {
    object(json!({
        "metadata": {"name": name},
        "roleRef": {"kind": kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
    }))
}

fn robot(server: &TestServer) -> Client {
    let groups = ["system:serviceaccounts", "system:authenticated"];
    server.client_as("system:serviceaccount:default:robot", groups)
}

/// A permission starts with its binding and ends with it. Both take effect at once, because tests do not wait.
#[tokio::test]
async fn permissions_follow_changes_of_roles_and_bindings() {
    let server = TestServer::builder().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(robot(&server));
    let roles: Api<Role> = Api::default_namespaced(server.client());
    let bindings: Api<RoleBinding> = Api::default_namespaced(server.client());
    let post = PostParams::default();
    let list = async || code(maps.list(&ListParams::default()).await);
    assert_eq!(list().await, 403);
    bindings.create(&post, &binding("a", "Role", "reader")).await.unwrap();
    let refused = maps.list(&ListParams::default()).await.unwrap_err().to_string();
    let missing = "RBAC: role.rbac.authorization.k8s.io \"reader\" not found";
    assert!(refused.contains(missing), "{refused}");
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]});
    let role: Role = object(json!({"metadata": {"name": "reader"}, "rules": [rule]}));
    roles.create(&post, &role).await.unwrap();
    assert_eq!(list().await, 200);
    assert_eq!(code(maps.get_opt("a").await), 403);
    let patch = Patch::Merge(
        json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
    );
    roles.patch("reader", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((list().await, code(maps.get_opt("a").await)), (403, 200));
    bindings.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(maps.get_opt("a").await), 403);
}

/// Aggregation of Kubernetes' default ClusterRoles, and permissions that an operator adds to them.
#[tokio::test]
async fn default_cluster_roles_aggregate_labelled_cluster_roles() {
    let server = TestServer::builder().start().await.unwrap();
    let bindings: Api<RoleBinding> = Api::default_namespaced(server.client());
    let post = PostParams::default();
    bindings.create(&post, &binding("a", "ClusterRole", "edit")).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(robot(&server));
    let map: ConfigMap = object(json!({"metadata": {"name": "a"}}));
    // Permissions of `edit` itself, and of `view`, which is aggregated into it.
    assert_eq!(code(maps.create(&post, &map).await), 200);
    assert_eq!(code(maps.list(&ListParams::default()).await), 200);
    let roles: Api<Role> = Api::default_namespaced(robot(&server));
    assert_eq!(code(roles.list(&ListParams::default()).await), 403);
    let added: ClusterRole = object(json!({
        "metadata": {"name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["list"]}],
    }));
    let cluster_roles: Api<ClusterRole> = Api::all(server.client());
    cluster_roles.create(&post, &added).await.unwrap();
    assert_eq!(code(roles.list(&ListParams::default()).await), 200);
    // In other namespaces the user still has no permissions.
    let elsewhere: Api<Secret> = Api::namespaced(robot(&server), "kube-system");
    assert_eq!(code(elsewhere.list(&ListParams::default()).await), 403);
}

/// Circular aggregation and rules that are too large to compare do not block the server.
#[tokio::test]
async fn odd_roles_are_answered() {
    let server = TestServer::builder().start().await.unwrap();
    let cluster_roles: Api<ClusterRole> = Api::all(server.client());
    let post = PostParams::default();
    for name in 0..50 {
        let role: ClusterRole = object(json!({
            "metadata": {"name": format!("role-{name}"), "labels": {"all": "one"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"all": "one"}}]},
        }));
        cluster_roles.create(&post, &role).await.unwrap();
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client());
    let bound = |role: &str| -> ClusterRoleBinding {
        object(json!({
            "metadata": {"name": role},
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
        }))
    };
    bindings.create(&post, &bound("role-0")).await.unwrap();
    let eve = server.client_as("eve", ["system:authenticated"]);
    let maps: Api<ConfigMap> = Api::default_namespaced(eve.clone());
    assert_eq!(code(maps.list(&ListParams::default()).await), 403);
    let granter: ClusterRole = object(json!({
        "metadata": {"name": "granter"},
        "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]}],
    }));
    cluster_roles.create(&post, &granter).await.unwrap();
    bindings.create(&post, &bound("granter")).await.unwrap();
    let many: Vec<String> = (0..2_000).map(|number| format!("r{number}")).collect();
    let everything: ClusterRole = object(json!({
        "metadata": {"name": "everything"},
        "rules": [{"apiGroups": many, "resources": many, "resourceNames": many, "verbs": many}],
    }));
    let of_eve: Api<ClusterRole> = Api::all(eve);
    let refused = of_eve.create(&post, &everything).await.unwrap_err().to_string();
    assert!(refused.contains("more than can be compared"), "{refused}");
}

/// ClusterRoles that a user without administrator permissions writes.
#[tokio::test]
async fn users_cannot_escalate_their_permissions_with_cluster_roles() {
    let server = TestServer::builder().start().await.unwrap();
    let post = PostParams::default();
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"], "verbs": ["create", "update", "patch", "get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["named"], "verbs": ["escalate"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]);
    let granter = json!({"metadata": {"name": "granter"}, "rules": rules});
    let all: Api<ClusterRole> = Api::all(server.client());
    all.create(&post, &object(granter)).await.unwrap();
    let bound = json!({
        "metadata": {"name": "granters"},
        "roleRef": {"kind": "ClusterRole", "name": "granter", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client());
    bindings.create(&post, &object(bound.clone())).await.unwrap();
    let eve = server.client_as("eve", ["system:authenticated"]);
    let roles: Api<ClusterRole> = Api::all(eve.clone());
    let role = |name: &str, more: Value| -> ClusterRole {
        let mut role = json!({"metadata": {"name": name}});
        role.as_object_mut().unwrap().append(more.clone().as_object_mut().unwrap());
        object(role)
    };
    let everything = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let own =
        json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    let selects =
        json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    for (role, expected) in [
        (role("own", own.clone()), ""),
        (role("empty", json!({})), ""),
        (role("more", everything.clone()), "not currently held"),
        // The user may `escalate` the ClusterRole of this name, which does not apply to its creation.
        (role("named", everything.clone()), "not currently held"),
        (role("whole", selects.clone()), "cluster-admin privileges to use the aggregationRule"),
        (role("cluster-admin", json!({})), "already exists"),
    ] {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        for post in [&dry_run, &post] {
            let answer = roles.create(post, &role).await;
            let told = answer.map_or_else(|error| error.to_string(), |_| String::new());
            assert!(told.is_empty() == expected.is_empty() && told.contains(expected), "{told}");
        }
    }
    // An update must not add permissions either, whichever method it uses; labels may change.
    let patch = PatchParams::default();
    let more = Patch::Merge(&everything);
    assert_eq!(code(roles.patch("own", &patch, &more).await), 403);
    let labels = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(code(roles.patch("own", &patch, &labels).await), 200);
    let applied = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "applied"}, "rules": everything["rules"],
    });
    let apply = PatchParams::apply("eve");
    assert_eq!(code(roles.patch("applied", &apply, &Patch::Apply(&applied)).await), 403);
    all.create(&post, &role("named", json!({}))).await.unwrap();
    assert_eq!(code(roles.patch("named", &patch, &more).await), 200);
    // The removal of an aggregation rule needs the same permissions.
    all.create(&post, &role("whole", selects)).await.unwrap();
    let nothing = Patch::Merge(json!({"aggregationRule": null}));
    assert_eq!(code(roles.patch("whole", &patch, &nothing).await), 403);
    let of_eve: Api<ClusterRoleBinding> = Api::all(eve);
    let mut again = bound;
    for (role, expected) in [("own", 200), ("empty", 200), ("cluster-admin", 403), ("none", 403)] {
        again["metadata"]["name"] = json!(format!("again-{role}"));
        again["roleRef"]["name"] = json!(role);
        assert_eq!(code(of_eve.create(&post, &object(again.clone())).await), expected, "{role}");
    }
}
