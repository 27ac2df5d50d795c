use std::collections::HashSet;

use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role};
use kube::api::{ListParams, Patch, PatchParams};

use super::*;
use crate::authorizer::Authorizer;
use crate::testing::{Member, shared_store};
use aggregated_apiserver::User;
use aggregated_apiserver::auth::Attributes;

/// A server with the policy, in the state after a start.
async fn server() -> Member {
    let server = Member::start(&shared_store()).await;
    ensure(&server.client, &server.kinds, Timestamp::UNIX_EPOCH).await.unwrap();
    server
}

fn authorizer(server: &Member) -> Arc<Authorizer> {
    let authorizer = Authorizer::new();
    authorizer.set_objects(server.kinds.clone());
    authorizer
}

fn resource(verb: &str, group: &str, resource: &str) -> ResourceAttributes {
    let text = |text: &str| Some(text.to_owned());
    ResourceAttributes {
        verb: text(verb),
        group: text(group),
        resource: text(resource),
        ..ResourceAttributes::default()
    }
}

/// Objects that are stored without validation equal validated ones.
#[tokio::test]
async fn the_table_is_valid() {
    let (server, checked) = (server().await, Member::start(&shared_store()).await);
    assert_eq!(POLICY.len(), 133);
    for object in POLICY.iter() {
        checked.kinds.restore(created(object, Timestamp::UNIX_EPOCH).into()).await.unwrap();
        let (plural, namespace, name) = name_of(object);
        let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let stored = |server: &Member| {
            let mut stored = server.kinds.find(GROUP, VERSION, plural, namespace, &name).unwrap();
            stored["metadata"].as_object_mut().unwrap().remove("uid");
            stored
        };
        assert_eq!(stored(&server), stored(&checked), "{plural} {name}");
    }
}

#[tokio::test]
async fn aggregated_roles_have_the_rules_that_they_select() {
    let server = server().await;
    assert_eq!(authorizer(&server).stale_aggregations(), []);
    let roles: Api<ClusterRole> = Api::all(server.client.clone());
    for (name, verb, resource, expected) in [
        ("view", "get", "configmaps", true),
        ("view", "get", "secrets", false),
        ("view", "create", "configmaps", false),
        ("edit", "get", "secrets", true),
        ("edit", "get", "configmaps", true),
        ("edit", "create", "roles", false),
        ("admin", "create", "roles", true),
        ("admin", "create", "pods", true),
        ("admin", "get", "nodes", false),
    ] {
        let rules = roles.get(name).await.unwrap().rules.unwrap();
        let allows = rules.iter().any(|rule| {
            let resources = rule.resources.iter().flatten();
            resources.clone().any(|one| one == resource) && rule.verbs.iter().any(|one| one == verb)
        });
        assert_eq!(allows, expected, "{name} {verb} {resource}");
    }
}

#[tokio::test]
async fn bootstrap_bindings_reference_existing_roles() {
    let server = server().await;
    let roles: Api<ClusterRole> = Api::all(server.client.clone());
    let names = roles.list(&ListParams::default()).await.unwrap();
    let names: HashSet<String> = names.iter().map(ResourceExt::name_any).collect();
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client.clone());
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        assert!(names.contains(&binding.role_ref.name), "{}", binding.role_ref.name);
    }
}

#[tokio::test]
async fn system_groups_have_their_default_permissions() {
    let server = server().await;
    let authorizer = authorizer(&server);
    let may = |group: &str, request: Attributes| {
        let groups = vec![group.to_owned()];
        authorizer.decide(&User { groups, ..User::default() }, &request).is_allowed()
    };
    const AUTHENTICATED: &str = "system:authenticated";
    let (pods, own) = (
        resource("get", "", "pods"),
        resource("create", "authentication.k8s.io", "selfsubjectreviews"),
    );
    for (group, asked, expected) in [
        ("system:masters", &pods, true),
        ("system:serviceaccounts:kube-system", &pods, false),
        ("system:serviceaccounts:default", &pods, false),
        ("system:nodes", &pods, false),
        (AUTHENTICATED, &pods, false),
        (AUTHENTICATED, &own, true),
        ("system:unauthenticated", &own, false),
    ] {
        assert_eq!(may(group, asked.into()), expected, "{group} {asked:?}");
    }
    for (group, path, expected) in [
        (AUTHENTICATED, "/apis/apps/v1", true),
        (AUTHENTICATED, "/apisx", false),
        (AUTHENTICATED, "/healthz", true),
        (AUTHENTICATED, "/healthz/ping", false),
        (AUTHENTICATED, "/openid/v1/jwks", false),
        ("system:serviceaccounts", "/openid/v1/jwks", true),
        ("system:unauthenticated", "/version", true),
        ("system:unauthenticated", "/apis", false),
    ] {
        let text = |text: &str| Some(text.to_owned());
        let asked = NonResourceAttributes { verb: text("get"), path: text(path) };
        assert_eq!(may(group, (&asked).into()), expected, "{group} {path}");
    }
}

/// No ServiceAccount of `kube-system` has permissions beyond those of the policy.
#[tokio::test]
async fn controller_service_accounts_have_only_their_own_permissions() {
    let server = server().await;
    let authorizer = authorizer(&server);
    let may = |account: &str, asked: &ResourceAttributes| {
        let name = format!("system:serviceaccount:kube-system:{account}");
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ];
        let groups = groups.map(str::to_owned).to_vec();
        authorizer.decide(&User { name, groups, ..User::default() }, &asked.into()).is_allowed()
    };
    let (secrets, pods) = (resource("list", "", "secrets"), resource("create", "", "pods"));
    let deployments = resource("update", "apps", "deployments");
    for (account, asked, expected) in [
        ("jane", &secrets, false),
        ("jane", &pods, false),
        ("replicaset-controller", &pods, true),
        ("replicaset-controller", &secrets, false),
        ("deployment-controller", &deployments, true),
        ("deployment-controller", &secrets, false),
        ("generic-garbage-collector", &secrets, true),
    ] {
        assert_eq!(may(account, asked), expected, "{account} {asked:?}");
    }
}

#[tokio::test]
async fn a_restart_repairs_bootstrap_roles_and_bindings() {
    let server = server().await;
    let roles: Api<ClusterRole> = Api::all(server.client.clone());
    let versions = async || {
        let all = roles.list(&ListParams::default()).await.unwrap();
        all.iter().map(|role| (role.name_any(), role.resource_version())).collect::<Vec<_>>()
    };
    let before = versions().await;
    ensure(&server.client, &server.kinds, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(versions().await, before);

    let patch = PatchParams::default();
    let own = json!({"apiGroups": ["a"], "resources": ["b"], "verbs": ["c"]});
    let narrow = Patch::Merge(json!({"metadata": {"labels": null}, "rules": [own]}));
    let discovery = roles.get("system:discovery").await.unwrap();
    roles.patch("system:discovery", &patch, &narrow).await.unwrap();
    let kept =
        Patch::Merge(json!({"metadata": {"annotations": {AUTO_UPDATE: "false"}}, "rules": []}));
    roles.patch("system:basic-user", &patch, &kept).await.unwrap();
    roles.delete("system:node", &DeleteParams::default()).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client.clone());
    let mut binding = bindings.get("system:discovery").await.unwrap();
    bindings.delete("system:discovery", &DeleteParams::default()).await.unwrap();
    binding.metadata = kube::api::ObjectMeta { name: binding.metadata.name, ..Default::default() };
    binding.role_ref.name = "view".to_owned();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let empty: Api<Role> = Api::namespaced(server.client.clone(), "kube-public");
    empty.delete("system:controller:bootstrap-signer", &DeleteParams::default()).await.unwrap();

    ensure(&server.client, &server.kinds, Timestamp::UNIX_EPOCH).await.unwrap();
    let repaired = roles.get("system:discovery").await.unwrap();
    assert_eq!(repaired.metadata.labels, discovery.metadata.labels);
    let rules = repaired.rules.unwrap();
    assert_eq!(json!(rules[0]), own);
    // One path to a rule.
    let paths = discovery.rules.unwrap()[0].non_resource_urls.clone().unwrap();
    let added = rules[1..].iter().flat_map(|rule| rule.non_resource_urls.clone().unwrap());
    assert_eq!(added.collect::<Vec<_>>(), paths);
    assert_eq!(roles.get("system:basic-user").await.unwrap().rules.unwrap_or_default(), []);
    assert!(roles.get_opt("system:node").await.unwrap().is_some());
    assert_eq!(bindings.get("system:discovery").await.unwrap().role_ref.name, "system:discovery");
    assert!(empty.get_opt("system:controller:bootstrap-signer").await.unwrap().is_some());
}
