//! The permissions for paths, and the roles of the manifests.

use aggregated_apiserver::Kinds;
use aggregated_apiserver::auth::{Attributes, Authorizers, Decision, authorizer_fn};
use aggregated_apiserver::commands::ManifestOptions;
use aggregated_apiserver::paths::GroupVersion;
use aggregated_apiserver::subresource::Subresource;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::rbac::v1::PolicyRule;
use test_server::{DEFINITION, api_server, unreachable_cluster, user};

use super::{ROOT, weather};

#[tokio::test]
async fn only_users_with_all_verbs_send_options_to_a_proxy() {
    let named = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let of_roles = authorizer_fn(move |user, attributes| match &*user.name {
        "all" => Decision::allow(""),
        _ if named.contains(&attributes.verb()) => Decision::allow(""),
        _ => Decision::no_opinion(""),
    });
    let server = api_server(Kinds::new().group_version(weather()));
    let server = server.with_authorizers(Authorizers::new().with(of_roles));
    let server = server.in_process(unreachable_cluster()).await.unwrap();
    for (name, method, expected) in
        [("all", "OPTIONS", 200), ("named", "OPTIONS", 403), ("named", "PATCH", 200)]
    {
        let path = format!("{ROOT}/files/a/content/b");
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let status = server.respond(user(name), request).await.status();
        assert_eq!(status, expected, "{name} {method}");
    }
}

#[tokio::test]
async fn upgrades_on_a_path_also_need_create() {
    for (verbs, upgrades, expected) in [
        (&["get"][..], true, 403),
        (&["get", "create"], true, 200),
        (&["create"], true, 403),
        (&["get"], false, 200),
        (&[], false, 403),
    ] {
        let allowed = authorizer_fn(move |user, attributes| {
            let Attributes::Resource { verb, resource, subresource, name, .. } = attributes else {
                return Decision::no_opinion("");
            };
            let is_it = (&**resource, &**subresource, &**name) == ("stations", "console", "a");
            match is_it && user.name == "jane" && verbs.contains(&&**verb) {
                true => Decision::allow(""),
                false => Decision::no_opinion(""),
            }
        });
        let console = Subresource::new("console").proxy(async || "");
        let paths = GroupVersion::new("weather.example.com", "v1");
        let paths = paths.path("/stations/{name}/console", console);
        let server = api_server(Kinds::new().group_version(paths));
        let server = server.with_authorizers(Authorizers::new().with(allowed));
        let server = server.in_process(unreachable_cluster()).await.unwrap();
        let mut request = Request::get(format!("{ROOT}/stations/a/console"));
        if upgrades {
            request = request
                .header("connection", "Upgrade")
                .header("upgrade", "websocket")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        }
        let request = request.body(Body::empty()).unwrap();
        let (head, body) = server.respond(user("jane"), request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert_eq!(head.status, expected, "{verbs:?} {upgrades}: {text}");
    }
}

#[test]
fn manifests_register_and_grant_the_paths() {
    let older = GroupVersion::new("weather.example.com", "v1beta1").get("/a", async || "");
    let verbs = vec!["list".to_owned()];
    let rule =
        PolicyRule { resources: Some(vec!["stations".to_owned()]), verbs, ..Default::default() };
    let kinds = Kinds::new().group_version(older.server_rule(rule)).group_version(weather());
    let manifests = api_server(kinds).manifests(&ManifestOptions::default()).unwrap();
    for expected in [
        "name: v1.weather.example.com",
        "name: v1beta1.weather.example.com",
        "versionPriority: 100",
        "versionPriority: 99",
        "name: weather.example.com:view",
        "- forecasts",
        "- stations",
    ] {
        assert!(manifests.contains(expected), "{expected}: {manifests}");
    }
    assert!(!manifests.contains("weather.example.com:edit"), "{manifests}");
}

#[test]
fn manifests_do_not_grant_kinds_and_proxies_by_a_parameter() {
    let any = async || "";
    let group = |name| GroupVersion::new(name, "v1");
    let all = "/namespaces/{namespace}/{resource}/{name}/{part}";
    let proxy = || Subresource::new("proxy").proxy(any);
    let foos = Kinds::new().crds_from_yaml(DEFINITION).unwrap();
    for (kinds, resource, is_left_out) in [
        (Kinds::new().group_version(group("a.b").get(all, any)), "*", false),
        (foos.group_version(group("example.com").get("/namespaces/{n}/x/{y}/{z}", any)), "*", true),
        (
            Kinds::new().group_version(
                group("a.b").get(all, any).path("/namespaces/{n}/x/{name}/proxy", proxy()),
            ),
            "*",
            true,
        ),
        (
            Kinds::new().group_version(
                group("a.b")
                    .get("/namespaces/{n}/{resource}/{name}/part", any)
                    .path("/namespaces/{n}/x/{name}/proxy", proxy()),
            ),
            "*/part",
            false,
        ),
    ] {
        let manifests = api_server(kinds).manifests(&ManifestOptions::default()).unwrap();
        let role = manifests.split("---").find(|object| object.contains(":view\n"));
        let grants = role.is_some_and(|role| role.contains(&format!("\"{resource}\"")));
        assert_eq!(grants, !is_left_out, "{manifests}");
        assert_eq!(manifests.contains("# No role grants /namespaces/"), is_left_out, "{manifests}");
    }
}
