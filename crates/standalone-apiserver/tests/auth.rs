//! Chains of authenticators and authorizers in a server without a cluster.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use aggregated_apiserver::User;
use aggregated_apiserver::auth::{
    Attributes, AuthError, Authenticated, Authenticators, Authorizer, Authorizers, Decision,
    TokenAuthenticator, authorizer_fn,
};
use futures::future::{BoxFuture, ready};
use http::Request;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

/// Allows robots to do what they want in the group `""`, lets them escalate roles and impersonate, and denies deletions.
fn chain() -> Authorizers {
    let own = authorizer_fn(|user, attributes| match attributes {
        Attributes::Resource { verb, .. } if verb == "delete" => Decision::deny("no deletions"),
        Attributes::Resource { verb, group, .. } if user.name == "robot" => {
            match group.is_empty() || ["escalate", "bind"].contains(&&**verb) {
                true => Decision::allow("robots are welcome"),
                false => Decision::no_opinion(""),
            }
        }
        _ => Decision::no_opinion(""),
    });
    Authorizers::new().with(own).built_in()
}

async fn server() -> TestServer {
    TestServer::builder().authorizers(chain()).start().await.unwrap()
}

fn client(server: &TestServer, user: &str) -> Client {
    server.client_as(user, ["system:authenticated"])
}

/// Creates a review, and returns it as JSON.
async fn review<K>(client: &Client, review: Value) -> Value
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + serde::Serialize,
    K: std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let review = serde_json::from_value(review).unwrap();
    serde_json::to_value(api.create(&PostParams::default(), &review).await.unwrap()).unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn requests_and_reviews_are_authorized_by_the_same_chain() {
    let server = server().await;
    for (user, verb, allowed, denied, reason) in [
        ("robot", "list", true, false, "robots are welcome"),
        ("robot", "delete", false, true, "no deletions"),
        ("jane", "list", false, false, ""),
    ] {
        let client = client(&server, user);
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let status = match verb {
            "list" => code(maps.list(&ListParams::default()).await),
            _ => code(maps.delete("kube-root-ca.crt", &Default::default()).await),
        };
        assert_eq!(status, if allowed { 200 } else { 403 }, "{user} {verb}");
        let attributes = json!({"verb": verb, "resource": "configmaps", "namespace": "default"});
        let expected = json!([allowed, denied, reason]);
        let own = json!({"spec": {"resourceAttributes": attributes}});
        let own = review::<SelfSubjectAccessReview>(&client, own).await["status"].clone();
        let of_any = json!({"spec": {"user": user, "resourceAttributes": attributes}});
        let of_any = review::<SubjectAccessReview>(&server.client(), of_any).await;
        for status in [&own, &of_any["status"]] {
            let denied = status["denied"].as_bool().unwrap_or_default();
            let reason = status["reason"].as_str().unwrap_or_default();
            assert_eq!(json!([status["allowed"], denied, reason]), expected, "{user} {verb}");
        }
    }
    // RBAC has no opinion on a member of `system:masters`, and neither has the chain.
    let masters = json!({"spec": {
        "user": "root", "groups": ["system:masters"],
        "resourceAttributes": {"verb": "delete", "resource": "configmaps"},
    }});
    let status = review::<SubjectAccessReview>(&server.client(), masters).await;
    assert_eq!(status["status"], json!({"allowed": true}));
}

/// Fails for `escalate`, and has no opinion on other verbs.
struct Failing;

impl Authorizer for Failing {
    fn authorize<'a>(
        &'a self,
        _user: &'a User,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthError>> {
        Box::pin(ready(match attributes.verb() {
            "escalate" => Err(AuthError::new("s3cret")),
            "create" => Ok(Decision::allow("")),
            _ => Ok(Decision::no_opinion("")),
        }))
    }
}

#[tokio::test]
async fn an_authorizer_that_fails_is_an_internal_error_of_an_escalation() {
    let chain = Authorizers::new().with(Failing).built_in();
    let server = TestServer::builder().authorizers(chain).start().await.unwrap();
    let roles: Api<ClusterRole> = Api::all(client(&server, "jane"));
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    });
    let role = serde_json::from_value(role).unwrap();
    let answer = roles.create(&PostParams::default(), &role).await;
    let Err(Error::Api(status)) = answer else { panic!("{answer:?}") };
    assert_eq!(status.code, 500);
    assert!(!status.message.contains("s3cret"), "{}", status.message);
}

/// The user name of a server's requests to itself.
const ITSELF: &str = "system:apiserver";

#[tokio::test]
async fn in_process_clients_review_tokens_of_own_authenticators() {
    let chain = Authenticators::new().built_in().with_tokens(Tokens);
    let server = TestServer::builder().authenticators(chain).start().await.unwrap();
    let asked = json!({"spec": {"token": "token-joe"}});
    // The client of a post-start hook has this user, too.
    let client = server.client_as(ITSELF, ["system:masters"]);
    let status = review::<TokenReview>(&client, asked).await["status"].clone();
    assert_eq!(status["authenticated"], true, "{status}");
}

#[tokio::test]
async fn a_review_of_rules_is_incomplete_with_an_authorizer_without_rules() {
    let asked = json!({"spec": {"namespace": "default"}});
    let server = server().await;
    let rules = review::<SelfSubjectRulesReview>(&client(&server, "jane"), asked.clone()).await;
    let status = &rules["status"];
    assert_eq!(status["incomplete"], true);
    let why = status["evaluationError"].as_str().unwrap();
    assert!(why.ends_with(" does not support user rule resolution"), "{why}");
    // The rules of RBAC are there.
    let paths = status["nonResourceRules"].to_string();
    assert!(paths.contains("/healthz"), "{paths}");
    let server = TestServer::builder().start().await.unwrap();
    let rules = review::<SelfSubjectRulesReview>(&client(&server, "jane"), asked).await;
    assert_eq!(rules["status"]["incomplete"], false);
}

#[tokio::test]
async fn escalation_and_impersonation_are_authorized_by_the_chain() {
    let server = server().await;
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "secret-reader"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }))
    .unwrap();
    let all = json!({
        "metadata": {"name": "role-writers"},
        "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]}],
    });
    let roles: Api<ClusterRole> = Api::all(server.client());
    let post = PostParams::default();
    roles.create(&post, &serde_json::from_value(all).unwrap()).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client());
    let binding = json!({
        "metadata": {"name": "role-writers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role-writers"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "robot"},
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"},
        ],
    });
    bindings.create(&post, &serde_json::from_value(binding).unwrap()).await.unwrap();
    for (user, expected) in [("jane", 403), ("robot", 200)] {
        let roles: Api<ClusterRole> = Api::all(client(&server, user));
        assert_eq!(code(roles.create(&post, &role).await), expected, "{user}");
        let impersonated = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("impersonate-user", "joe")
            .header("content-type", "application/json");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let impersonated = impersonated.body(body.to_string().into_bytes()).unwrap();
        let answer = client(&server, user).request::<SelfSubjectReview>(impersonated).await;
        assert_eq!(code(answer), expected, "{user}");
    }
}

/// The audience of a server without a cluster.
const ISSUER: &str = "https://kubernetes.default.svc";

/// Authenticates the tokens `token-USER` for this server and for `a`, `other-USER` for `a` and `b`, and `any-USER` for
/// no audience.
struct Tokens;

impl TokenAuthenticator for Tokens {
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<Authenticated>, AuthError>> {
        let user = token.split_once('-').and_then(|(prefix, name)| {
            let audiences: &[&str] = match prefix {
                "token" => &["a", ISSUER],
                "other" => &["a", "b"],
                "any" => &[],
                _ => return None,
            };
            let user = User { name: name.to_owned(), ..User::default() };
            let audiences = audiences.iter().map(ToString::to_string).collect();
            Some(Authenticated::new(user).with_audiences(audiences))
        });
        Box::pin(ready(Ok(user)))
    }
}

#[tokio::test]
async fn an_authenticator_of_tokens_serves_requests_and_token_reviews() {
    let chain = Authenticators::new().built_in().with_tokens(Tokens);
    let server = TestServer::builder().authenticators(chain).listen().start().await.unwrap();
    let mut config = Kubeconfig::read_from(server.kubeconfig().unwrap()).unwrap();
    let who = async |config: Kubeconfig| {
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        let api: Api<SelfSubjectReview> = Api::all(client);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        api.create(&PostParams::default(), &serde_json::from_value(review).unwrap()).await
    };
    // A token for another service is rejected.
    for (token, expected) in
        [("token-joe", 200), ("any-joe", 200), ("other-joe", 401), ("unknown", 401)]
    {
        let user = json!({"token": token});
        config.auth_infos[0].auth_info = Some(serde_json::from_value(user).unwrap());
        assert_eq!(code(who(config.clone()).await), expected, "{token}");
    }
    for (token, audiences, expected) in [
        ("token-joe", json!(null), json!([true, [ISSUER]])),
        ("token-joe", json!(["a", "c"]), json!([true, ["a"]])),
        ("token-joe", json!(["c"]), json!([false, null])),
        ("other-joe", json!(null), json!([false, null])),
        ("other-joe", json!(["b", "c"]), json!([true, ["b"]])),
        ("any-joe", json!(null), json!([true, [ISSUER]])),
        ("any-joe", json!(["a"]), json!([false, null])),
        ("unknown", json!(null), json!([false, null])),
    ] {
        let asked = json!({"spec": {"token": token, "audiences": audiences}});
        let status = review::<TokenReview>(&server.client(), asked).await["status"].clone();
        let authenticated = status["authenticated"].as_bool().unwrap_or_default();
        assert_eq!(json!([authenticated, status["audiences"]]), expected, "{token} {audiences}");
        if authenticated {
            let user = json!({"username": "joe", "groups": ["system:authenticated"]});
            assert_eq!(status["user"], user);
        }
    }
}
