//! Single requests to kube-apiserver, for commands that inspect a cluster once. A response with any status is returned,
//! with the time of the response.

use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::Cluster;

/// The longest time for a response. kube-apiserver waits for half a minute for an aggregated API server that accepts a
/// connection and does not respond. This timeout is shorter, so that such a server is reported as slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// A response of kube-apiserver.
#[derive(Clone, Debug)]
pub struct Look {
    /// The status of the response.
    pub status: StatusCode,
    /// The time of the response by the clock of the responding server: its header `Date`, if there is one.
    pub date: Option<String>,
    /// The body as JSON; null if the body is not JSON.
    pub json: Value,
    /// The body as a string.
    pub text: String,
}

impl Look {
    /// The message of an error response.
    pub fn message(&self) -> &str {
        self.json["message"].as_str().unwrap_or(self.text.trim())
    }
}

impl Cluster {
    /// Sends a GET of this path and returns the response.
    ///
    /// # Errors
    /// If there is no response within ten seconds, or if it is longer than 16 MiB.
    pub async fn look(&self, path: &str) -> Result<Look, String> {
        self.request(Method::GET, path, Vec::new()).await
    }

    /// Sends a POST with this JSON and returns the response.
    ///
    /// # Errors
    /// Same as [`Cluster::look`].
    pub async fn look_by_post(&self, path: &str, body: &Value) -> Result<Look, String> {
        self.request(Method::POST, path, body.to_string().into_bytes()).await
    }

    async fn request(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Look, String> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(body));
        let request = request.map_err(|error| error.to_string())?;
        let answered = async {
            let answer = self.client.send(request).await.map_err(|error| chain(&error))?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.map_err(|error| chain(&error))?.to_bytes();
            let date = head.headers.get(DATE).and_then(|date| date.to_str().ok());
            Ok(Look {
                status: head.status,
                date: date.map(str::to_owned),
                json: serde_json::from_slice(&body).unwrap_or_default(),
                text: String::from_utf8_lossy(&body).into_owned(),
            })
        };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// Formats an error with its causes. Causes that the message already contains are not repeated.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}
