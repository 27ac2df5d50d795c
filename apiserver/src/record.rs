//! What happened to a request: made when it comes, filled in by the steps that it goes
//! through, and read when its answer has been sent.
//!
//! Its readers are the metrics (`metrics`), and the access log (`access_log`).

mod access_log;
mod body;
mod metrics;

pub use access_log::TARGET as ACCESS_LOG;
pub use metrics::{Inflight, Metrics, WatchEvents};

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use tokio::time::Instant;

use crate::cluster::Attributes;
use crate::user::User;
use access_log::Said;
use body::Recorded;

/// What happened to a request.
#[derive(Debug)]
pub struct Record {
    received: Instant,
    method: Method,
    /// What only the access log says, if it is written.
    said: Option<Box<Said>>,
    caller: Option<User>,
    impersonated: Option<User>,
    /// What is asked for, once that is known.
    pub attributes: Option<Arc<Attributes>>,
    /// Whether what is asked for is served here: only then is it among the labels of
    /// metrics, which clients cannot add to.
    pub is_served: bool,
    /// Whether everything is checked and nothing is kept.
    pub is_dry_run: bool,
    code: StatusCode,
    bytes: u64,
}

impl Record {
    /// The record of a request that has just come.
    pub fn new(head: &Parts, audit_id: &HeaderValue) -> Self {
        Self {
            received: Instant::now(),
            method: head.method.clone(),
            said: Said::of(head, audit_id),
            caller: None,
            impersonated: None,
            attributes: None,
            is_served: false,
            is_dry_run: false,
            code: StatusCode::OK,
            bytes: 0,
        }
    }

    /// Takes note of who asks, before anybody is impersonated.
    pub fn asked_by(&mut self, caller: &User) {
        // Only the access log says it.
        self.caller = self.said.is_some().then(|| caller.clone());
    }

    /// Takes note of who is impersonated.
    pub fn acts_as(&mut self, user: &User) {
        self.impersonated = self.said.is_some().then(|| user.clone());
    }

    /// The answer, which is followed until it has been sent, or nobody reads it any more.
    pub fn answered(mut self, metrics: &Arc<Metrics>, response: Response<Body>) -> Response<Body> {
        self.code = response.status();
        // Mostly its size is known, and nothing has to be followed.
        match response.body().size_hint().exact() {
            Some(bytes) => {
                self.bytes = bytes;
                self.end(metrics);
                response
            }
            None => {
                let running = metrics.long_running(&self);
                let metrics = Arc::clone(metrics);
                response.map(|body| Body::new(Recorded::new(body, self, metrics, running)))
            }
        }
    }

    fn end(&self, metrics: &Metrics) {
        metrics.observe(self);
        access_log::write(self);
    }
}
