//! A fake cluster whose responses for each path are set by the test.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The API of the configurations of webhooks. A test that sets none has a cluster without this API.
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Decides whether the `spec` of an access review is allowed; `None` means no response.
type Authorizer = Arc<dyn Fn(&Value) -> Option<bool> + Send + Sync>;

/// The cluster, by the paths of its objects.
#[derive(Clone, Default)]
pub struct FakeCluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: HashMap<String, Vec<Value>>,
    /// The responses at paths without objects.
    documents: HashMap<String, Value>,
    refused: HashMap<String, StatusCode>,
    /// The open watches, by path.
    watches: HashMap<String, Vec<mpsc::UnboundedSender<Bytes>>>,
    requests: Vec<String>,
    /// Without an authorizer, all users are allowed to do everything.
    authorizer: Option<Authorizer>,
}

impl FakeCluster {
    /// A cluster with an empty list at a path.
    pub fn without_objects(path: &str) -> Self {
        let cluster = Self::default();
        cluster.set(path, Vec::new());
        cluster
    }

    /// Sets the list at a path. Watches receive no events.
    pub fn set(&self, path: &str, objects: Vec<Value>) {
        self.0.lock().unwrap().objects.insert(path.to_owned(), objects);
    }

    /// Sets the response at a path without objects.
    pub fn set_document(&self, path: &str, document: Value) {
        self.0.lock().unwrap().documents.insert(path.to_owned(), document);
    }

    /// The number of open watches of a path.
    pub fn watches(&self, path: &str) -> usize {
        let state = self.0.lock().unwrap();
        let watches = state.watches.get(path).into_iter().flatten();
        watches.filter(|watch| !watch.is_closed()).count()
    }

    /// Rejects requests for a path, and ends its watches.
    pub fn refuse(&self, path: &str, status: StatusCode) {
        let mut state = self.0.lock().unwrap();
        state.refused.insert(path.to_owned(), status);
        state.watches.remove(path);
    }

    /// Accepts requests for a path again. Earlier revisions are too old for a watch.
    pub fn allow(&self, path: &str) {
        self.0.lock().unwrap().refused.insert(path.to_owned(), StatusCode::GONE);
    }

    /// Sets the function that decides access reviews.
    pub fn authorize_by(
        &self,
        authorizer: impl Fn(&Value) -> Option<bool> + Send + Sync + 'static,
    ) {
        self.0.lock().unwrap().authorizer = Some(Arc::new(authorizer));
    }

    /// Sends an event to the watches of a path.
    pub fn tell(&self, path: &str, event_type: &str, object: &Value) {
        let line = json!({"type": event_type, "object": object}).to_string() + "\n";
        let state = self.0.lock().unwrap();
        for watch in state.watches.get(path).into_iter().flatten() {
            let _ = watch.send(line.clone().into());
        }
    }

    /// The requests that the cluster received.
    pub fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().requests.clone()
    }

    /// A client of the cluster.
    pub fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                if request.uri().path() == REVIEWS {
                    let review = request.into_body().collect().await.unwrap().to_bytes();
                    return Ok(cluster.review(&serde_json::from_slice(&review).unwrap()));
                }
                Ok::<_, Infallible>(cluster.answer(&request))
            }
        });
        Client::new(service, "default")
    }

    fn review(&self, review: &Value) -> Response<Body> {
        let authorizer = self.0.lock().unwrap().authorizer.clone();
        let spec = &review["spec"];
        let answer = authorizer.map_or(Some(true), |authorizer| authorizer(spec));
        let Some(allowed) = answer else {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return response;
        };
        let answered = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": spec, "status": {"allowed": allowed},
        });
        Response::new(Body::from(answered.to_string()))
    }

    fn answer(&self, request: &Request<kube::client::Body>) -> Response<Body> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        let accept = request.headers().get("accept").map(|accept| accept.to_str().unwrap());
        let form = accept.and_then(|accept| accept.split("as=").nth(1)?.split([';', ',']).next());
        let selectors = query.split('&').filter(|pair| pair.contains("Selector="));
        let words = [if is_watch { "watch" } else { "list" }, form.unwrap_or_default()].concat();
        let words = [words, path.to_owned()].into_iter().chain(selectors.map(str::to_owned));
        let mut state = self.0.lock().unwrap();
        let is_set = state.objects.contains_key(path) || state.refused.contains_key(path);
        if path.starts_with(WEBHOOKS) && !is_set {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        }
        state.requests.push(words.collect::<Vec<_>>().join(" "));
        let status = |status| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            response
        };
        match state.refused.get(path) {
            Some(&StatusCode::GONE) if is_watch => {
                return status(StatusCode::GONE);
            }
            Some(&StatusCode::GONE) => {
                state.refused.remove(path);
            }
            Some(&refused) => return status(refused),
            None => {}
        }
        if let Some(document) = state.documents.get(path) {
            return Response::new(Body::from(document.to_string()));
        }
        let Some(objects) = state.objects.get(path) else {
            return status(StatusCode::SERVICE_UNAVAILABLE);
        };
        if !is_watch {
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": objects});
            return Response::new(Body::from(list.to_string()));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        state.watches.entry(path.to_owned()).or_default().push(sender);
        let lines = stream::unfold(receiver, async |mut receiver| {
            let line: Bytes = receiver.recv().await?;
            Some((Ok::<_, Infallible>(line), receiver))
        });
        Response::new(Body::from_stream(lines))
    }
}
