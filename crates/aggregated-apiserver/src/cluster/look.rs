//! A look at the cluster: one answer of kube-apiserver, whatever it says, with the time at which it was
//! given. For commands that look at a cluster once.

use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::Cluster;

/// How long an answer may take. kube-apiserver itself gives up on an aggregated server that takes a
/// connection and says nothing only after half a minute: that it takes so long is told here.
const PATIENCE: Duration = Duration::from_secs(10);

/// What kube-apiserver has answered.
#[derive(Clone, Debug)]
pub struct Look {
    /// Its status.
    pub status: StatusCode,
    /// When it was given, by the clock of the server that answered: its header `Date`, if there is one.
    pub date: Option<String>,
    /// The body as JSON; null, if it is none.
    pub json: Value,
    /// The body as text.
    pub text: String,
}

impl Look {
    /// What kube-apiserver says of a request that it has refused.
    pub fn message(&self) -> &str {
        self.json["message"].as_str().unwrap_or(self.text.trim())
    }
}

impl Cluster {
    /// What a GET of this path answers.
    ///
    /// # Errors
    /// When nothing is answered, within ten seconds and 16 MiB.
    pub async fn look(&self, path: &str) -> Result<Look, String> {
        self.request(Method::GET, path, Vec::new()).await
    }

    /// What a POST of this JSON answers.
    ///
    /// # Errors
    /// As [`Cluster::look`].
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

/// An error with what has caused it, which it does not tell by itself.
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
