//! What happened to a request: made when it comes, filled in by the steps that it goes
//! through, and read when its answer has been sent or the client has disconnected.
//!
//! Its readers are the metrics (`metrics`), and the access log (`access_log`).

mod access_log;
mod body;
mod metrics;

pub use access_log::TARGET as ACCESS_LOG;
pub use metrics::{Inflight, Metrics, SourceInView, WatchEventCounter};

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, HttpBody};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use tokio::time::Instant;

use crate::cluster::Attributes;
use crate::user::User;
use access_log::Said;
use body::Recorded;
use metrics::Running;

/// The status code of a request whose client disconnected before the answer.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What happened to a request. It is read when it is dropped: once its answer has been
/// sent or the client has disconnected.
#[derive(Debug)]
pub struct Record {
    metrics: Option<Arc<Metrics>>,
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
    code: u16,
    bytes: u64,
}

impl Record {
    /// The record of a request that has just come.
    pub fn new(head: &Parts, audit_id: &HeaderValue, metrics: &Arc<Metrics>) -> Self {
        let mut record = Self::unread(head);
        record.said = Said::of(head, audit_id);
        record.metrics = Some(Arc::clone(metrics));
        record
    }

    /// A record for neither the metrics nor the access log.
    pub fn unread(head: &Parts) -> Self {
        Self {
            metrics: None,
            received: Instant::now(),
            method: head.method.clone(),
            said: None,
            caller: None,
            impersonated: None,
            attributes: None,
            is_served: false,
            is_dry_run: false,
            code: CLIENT_CLOSED_REQUEST,
            bytes: 0,
        }
    }

    /// Records the user who is authenticated, before impersonation.
    pub fn set_user(&mut self, caller: &User) {
        // Only the access log says it.
        self.caller = self.said.is_some().then(|| caller.clone());
    }

    /// Records the user who is impersonated.
    pub fn set_impersonated_user(&mut self, user: &User) {
        self.impersonated = self.said.is_some().then(|| user.clone());
    }

    /// Records the answer, until it has been sent or the client has disconnected.
    pub fn answered(mut self, response: Response<Body>) -> Response<Body> {
        self.code = response.status().as_u16();
        if let Some(upgraded) = response.extensions().get::<Upgraded>() {
            let running = self.running();
            *upgraded.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((running, self));
            return response;
        }
        // Mostly its size is known, and nothing has to be followed.
        match response.body().size_hint().exact() {
            Some(bytes) => {
                self.bytes = bytes;
                response
            }
            None => {
                let running = self.running();
                response.map(|body| Body::new(Recorded::new(body, self, running)))
            }
        }
    }

    fn running(&self) -> Option<Running> {
        self.metrics.as_ref().and_then(|metrics| metrics.long_running(self))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics.take() {
            metrics.observe(self);
            access_log::write(self);
        }
    }
}

/// Holds the record of a request whose connection goes on as something else: it is over
/// when the last copy of this is dropped.
#[derive(Clone, Default)]
pub struct Upgraded(Arc<Mutex<Option<Following>>>);

/// A record, and what counts its request as running.
type Following = (Option<Running>, Record);
