//! The server, in the configuration of the benchmarks.

use std::time::{Duration, Instant};

use aggregated_apiserver::InProcess;
use anyhow::{Result, ensure};
use axum::body::Body;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use test_server::admin;

use crate::PODS;
use crate::cluster::Cluster;

pub const FARM_PODS: &str = "/apis/farm.example.com/v1alpha/farmpods";
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Builds a GET request with this `Accept` header.
pub fn request(path: &str, accept: &str) -> Result<Request<Body>> {
    Ok(Request::get(path).header(ACCEPT, accept).body(Body::empty())?)
}

/// Starts a server, and waits until all Pods and their metrics are synced. Returns the server and its first object.
pub async fn serve(cluster: &Cluster) -> Result<(InProcess, Value)> {
    let server = farm_operator::server().in_process(cluster.client()).await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let path = format!("{FARM_PODS}?limit=1");
        let response = server.respond(admin(), request(&path, "application/json")?).await;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap_or_default();
        let shown = &list["items"][0];
        let is_measured = shown["status"]["resources"]["cpu"]["usage"].is_string();
        if status == StatusCode::OK && is_measured {
            ensure!(list["metadata"]["remainingItemCount"] == PODS - 1, "{list}");
            return Ok((server, shown.clone()));
        }
        ensure!(Instant::now() < deadline, "{status}: {list}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
