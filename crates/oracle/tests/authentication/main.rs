//! Gives the same AuthenticationConfiguration and the same tokens to a real kube-apiserver and to our server without a
//! cluster, and compares the users of SelfSubjectReviews, the statuses of rejected requests, and the messages about invalid
//! configurations.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

mod configuration;
mod invalid;
mod issuer;
mod rows;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Request;
use kube::Client;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use test_cluster::{Authority, ControlPlane, Programs, unless_missing};

use issuer::TestIssuer;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// The largest time until a server knows the keys of all issuers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Our server requests keys at most every five seconds.
const REFRESH: Duration = Duration::from_secs(6);

/// A server and its configuration for clients.
struct Side {
    config: Config,
}

impl Side {
    async fn new(kubeconfig: &std::path::Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        config.auth_info = AuthInfo::default();
        Ok(Self { config })
    }

    fn client(&self, token: Option<&str>) -> Result<Client> {
        let mut config = self.config.clone();
        config.auth_info.token = token.map(|token| token.to_owned().into());
        Ok(Client::try_from(config)?)
    }

    /// The user of a token, or the HTTP status of the rejection.
    async fn user_of(&self, token: &str) -> Result<Value> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let request = Request::post(REVIEWS).header("content-type", "application/json");
        let request = request.body(review.to_string().into_bytes())?;
        match self.client(Some(token))?.request::<Value>(request).await {
            Ok(review) => Ok(review["status"]["userInfo"].clone()),
            Err(kube::Error::Api(status)) => Ok(status.code.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The HTTP status of a request without credentials.
    async fn anonymous_status(&self, path: &str) -> Result<u16> {
        let request = Request::get(path).body(Vec::new())?;
        match self.client(None)?.request_text(request).await {
            Ok(_) => Ok(200),
            Err(kube::Error::Api(status)) => Ok(status.code),
            Err(error) => Err(error.into()),
        }
    }

    async fn wait_for_issuers(&self, issuer: &TestIssuer) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for name in configuration::ISSUERS {
            let token = issuer.token(name, &rows::valid_claims(), issuer::Signing::Es256);
            while self.user_of(&token).await?.is_number() {
                ensure!(Instant::now() < deadline, "the issuer {name} is not initialized");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_tokens_equal_those_of_kube_apiserver() -> Result<()> {
    let Some(programs) = unless_missing(Programs::find())? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("issuer-ca", &folder.path().join("ca.crt"))?;
    let issuer = TestIssuer::start(&authority, folder.path()).await?;
    let configuration = configuration::document(&issuer, &authority)?;
    let text = configuration.clone();
    let start = move || ControlPlane::start_with_authentication(&programs, &text);
    let there = tokio::task::spawn_blocking(start).await??;
    let here = TestServer::builder().listen().authentication_config(configuration);
    let here = Box::pin(here.start()).await?;
    let reference = Side::new(&there.kubeconfig()).await?;
    let ours = Side::new(&here.kubeconfig().unwrap()).await?;
    reference.wait_for_issuers(&issuer).await?;
    ours.wait_for_issuers(&issuer).await?;
    let mut differences = Vec::new();
    for rows::Row { title, token, is_accepted } in &rows::rows(&issuer) {
        let expected = reference.user_of(token).await?;
        let found = ours.user_of(token).await?;
        if expected.is_object() != *is_accepted {
            differences.push(format!("{title}: kube-apiserver's result is unexpected: {expected}"));
        }
        if expected != found {
            differences.push(format!("{title}:\n  kube-apiserver {expected}\n  ours {found}"));
        }
    }
    for (path, expected) in rows::ANONYMOUS {
        let statuses =
            [reference.anonymous_status(path).await?, ours.anonymous_status(path).await?];
        if statuses != [*expected; 2] {
            differences.push(format!("{path} without credentials: {statuses:?}, not {expected}"));
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    // A key that is added later is found by a token that names it.
    tokio::time::sleep(REFRESH).await;
    let token = issuer.token_of_new_key(&rows::valid_claims());
    for side in [&reference, &ours] {
        let user = side.user_of(&token).await?;
        ensure!(user["username"] == "jane", "a token of a new key: {user}");
    }
    Ok(())
}
