//! Tokens of ServiceAccounts: their verification and their expiry.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
    TokenReviewStatus,
};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::json;
use standalone_apiserver::TestServer;

fn read<K: DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).unwrap()
}

async fn account(client: &Client) -> Api<ServiceAccount> {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let robot = read(json!({"metadata": {"name": "robot"}}));
    accounts.create(&PostParams::default(), &robot).await.unwrap();
    accounts
}

async fn token(
    accounts: &Api<ServiceAccount>,
    audiences: &[&str],
    pod: Option<&str>,
) -> kube::Result<String> {
    let spec = TokenRequestSpec {
        audiences: Some(audiences.iter().map(|audience| (*audience).to_owned()).collect()),
        bound_object_ref: pod.map(|name| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(name.to_owned()),
            uid: None,
        }),
        expiration_seconds: None,
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let issued = accounts.create_token_request("robot", &PostParams::default(), &request).await?;
    Ok(issued.status.unwrap().token.unwrap())
}

async fn review(client: &Client, token: &str, audiences: &[&str]) -> TokenReviewStatus {
    let audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
    let spec = TokenReviewSpec { token: token.to_owned(), audiences: Some(audiences) };
    let asked = TokenReview { spec, ..TokenReview::default() };
    let reviews: Api<TokenReview> = Api::all(client.clone());
    reviews.create(&PostParams::default(), &asked).await.unwrap().status.unwrap()
}

#[tokio::test]
async fn a_service_account_token_is_checked_for_signature_audience_and_expiry() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let accounts = account(&client).await;
    let is_believed = async |token: &str, audiences: &[&str]| {
        review(&client, token, audiences).await.authenticated.unwrap_or_default()
    };
    // A token without audiences is for the API server.
    let own = token(&accounts, &[], None).await.unwrap();
    let status = review(&client, &own, &[]).await;
    let user = status.user.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:robot"));
    assert_eq!(
        user.groups.unwrap(),
        ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    );
    assert!(!is_believed(&own, &["vault"]).await);
    let vault = token(&accounts, &["vault", "other"], None).await.unwrap();
    assert_eq!(review(&client, &vault, &["x", "vault"]).await.audiences.unwrap(), ["vault"]);
    assert!(!is_believed(&vault, &[]).await);
    // Tokens of other servers are invalid.
    let other = TestServer::builder().start().await.unwrap();
    let foreign = token(&account(&other.client()).await, &[], None).await.unwrap();
    assert!(!is_believed(&foreign, &[]).await);
    let (head, signature) = own.rsplit_once('.').unwrap();
    assert!(!is_believed(&format!("{head}x.{signature}"), &[]).await);
    // Tokens expire.
    server.advance(Duration::from_secs(3_000));
    assert!(is_believed(&own, &[]).await);
    server.advance(Duration::from_secs(601));
    assert!(!is_believed(&own, &[]).await);
}

#[tokio::test]
async fn a_token_is_invalid_after_its_service_account_or_bound_pod_is_deleted() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let accounts = account(&client).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = |account: &str| {
        read::<Pod>(json!({
            "metadata": {"name": "a"},
            "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]},
        }))
    };
    let none = token(&accounts, &[], Some("a")).await.unwrap_err();
    assert!(none.to_string().contains("pods \"a\" not found"), "{none}");
    pods.create(&PostParams::default(), &pod("robot")).await.unwrap();
    let bound = token(&accounts, &[], Some("a")).await.unwrap();
    let free = token(&accounts, &[], None).await.unwrap();
    let is_believed =
        async |token: &str| review(&client, token, &[]).await.authenticated.unwrap_or_default();
    assert!(is_believed(&bound).await && is_believed(&free).await);
    let now = DeleteParams::default().grace_period(0);
    pods.delete("a", &now).await.unwrap();
    assert!(!is_believed(&bound).await && is_believed(&free).await);
    // Another Pod of the same name has another uid.
    pods.create(&PostParams::default(), &pod("robot")).await.unwrap();
    assert!(!is_believed(&bound).await);
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    assert!(!is_believed(&free).await);
    account(&client).await;
    assert!(!is_believed(&free).await);
}

#[tokio::test]
async fn a_token_is_invalid_a_minute_after_its_account_is_marked_for_deletion() {
    let server = TestServer::builder().start().await.unwrap();
    let client = server.client();
    let accounts = account(&client).await;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    let (params, held) = (PatchParams::default(), Patch::Merge(&held));
    accounts.patch("robot", &params, &held).await.unwrap();
    let token = token(&accounts, &[], None).await.unwrap();
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    let is_believed = async || review(&client, &token, &[]).await.authenticated.unwrap_or_default();
    assert!(is_believed().await);
    server.advance(Duration::from_secs(62));
    assert!(!is_believed().await);
}

#[tokio::test]
async fn token_verification_keys_are_served_to_service_accounts() {
    let server = TestServer::builder().start().await.unwrap();
    let read = async |path: &str, client: &Client| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request::<serde_json::Value>(request).await
    };
    let client = server.client();
    let configuration = read("/.well-known/openid-configuration", &client).await.unwrap();
    assert_eq!(configuration["issuer"], "https://kubernetes.default.svc");
    assert_eq!(configuration["jwks_uri"], "https://kubernetes.default.svc/openid/v1/jwks");
    let keys = read("/openid/v1/jwks", &client).await.unwrap();
    let token = token(&account(&client).await, &[], None).await.unwrap();
    let header = {
        use base64::Engine as _;
        let header = token.split('.').next().unwrap();
        let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(header).unwrap();
        serde_json::from_slice::<serde_json::Value>(&header).unwrap()
    };
    assert_eq!(keys["keys"][0]["kid"], header["kid"]);
    let robot = server.client_as("system:serviceaccount:a:b", ["system:serviceaccounts"]);
    assert!(read("/openid/v1/jwks", &robot).await.is_ok());
    let jane = server.client_as("jane", ["dev"]);
    assert!(read("/openid/v1/jwks", &jane).await.is_err());
}
