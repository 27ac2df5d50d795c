//! A simulated cluster: it lists its objects in pages, and sends the events to watches that a benchmark requests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::body::Bytes;
use futures::stream;
use http::{Request, Response};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::objects::{LISTS, count, object};

/// The objects of a list, each as JSON.
type Items = Arc<Vec<String>>;

/// A cluster of ten thousand Pods.
#[derive(Clone, Default)]
pub struct Cluster(Arc<State>);

#[derive(Default)]
struct State {
    /// The open watches, by resource.
    watchers: Mutex<HashMap<String, Vec<UnboundedSender<Bytes>>>>,
    /// The CPU usage of each Pod, in millicores.
    used: AtomicU64,
    /// The number of complete lists of metrics.
    polls: AtomicUsize,
    /// The lists, by resource and CPU usage.
    items: Mutex<HashMap<(String, u64), Items>>,
}

impl Cluster {
    /// Returns a client of this cluster.
    pub fn client(&self) -> Client {
        let cluster = self.clone();
        let answer = move |request: Request<kube::client::Body>| {
            let response = cluster.answer(&request);
            async move { Ok::<_, Infallible>(response) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    /// Sends an event with a changed object to the watches of a resource.
    pub fn change(&self, resource: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": "MODIFIED", "object": object})));
        let watchers = self.0.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        for watcher in watchers.get(resource).into_iter().flatten() {
            // The watch may have been closed.
            let _ = watcher.send(line.clone());
        }
    }

    /// Sets the CPU usage of each Pod, in millicores. The list is built here, before a client requests it.
    pub fn set_used(&self, used: u64) {
        self.items("metrics", used);
        self.0.used.store(used, Ordering::SeqCst);
    }

    /// Builds all lists.
    pub fn prepare(&self) {
        let used = self.0.used.load(Ordering::SeqCst);
        for resource in LISTS {
            self.items(resource, used);
        }
    }

    /// Returns the number of complete lists of metrics.
    pub fn polls(&self) -> usize {
        self.0.polls.load(Ordering::SeqCst)
    }

    /// Returns the size of the list of a resource, in bytes.
    pub fn bytes(&self, resource: &str) -> usize {
        self.items(resource, self.0.used.load(Ordering::SeqCst)).iter().map(String::len).sum()
    }

    fn items(&self, resource: &str, used: u64) -> Items {
        let used = if resource == "metrics" { used } else { 0 };
        let mut known = self.0.items.lock().unwrap_or_else(PoisonError::into_inner);
        let made = known.entry((resource.to_owned(), used)).or_insert_with(|| {
            let items = (0..count(resource)).map(|index| object(resource, index, used).to_string());
            Arc::new(items.collect())
        });
        Arc::clone(made)
    }

    fn answer(&self, request: &Request<kube::client::Body>) -> Response<Body> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse::<usize>().ok())
        };
        let resource = path.rsplit('/').next().unwrap_or_default();
        let resource = match path.starts_with("/apis/metrics.k8s.io/") {
            true if resource == "pods" => "metrics",
            true => "nothing",
            false => resource,
        };
        if query.contains("watch=true") {
            let (sender, receiver) = unbounded_channel();
            let mut watchers = self.0.watchers.lock().unwrap_or_else(PoisonError::into_inner);
            watchers.entry(resource.to_owned()).or_default().push(sender);
            let lines = stream::unfold(receiver, |mut receiver| async {
                let line = receiver.recv().await?;
                Some((Ok::<_, Infallible>(line), receiver))
            });
            return Response::new(Body::from_stream(lines));
        }
        let items = self.items(resource, self.0.used.load(Ordering::SeqCst));
        let begin = parameter("continue").unwrap_or(0).min(items.len());
        let limit = parameter("limit").unwrap_or(items.len());
        let end = items.len().min(begin + limit);
        if resource == "metrics" && end == items.len() {
            self.0.polls.fetch_add(1, Ordering::SeqCst);
        }
        let next = if end < items.len() { json!(end.to_string()) } else { json!(null) };
        let metadata = json!({"resourceVersion": "1", "continue": next});
        let items = items[begin..end].join(",");
        Response::new(Body::from(format!(
            r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}"#
        )))
    }
}
