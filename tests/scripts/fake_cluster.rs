//! The cluster of a script: its objects, permissions and availability.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};

/// The cluster of a script.
#[derive(Clone, Default)]
pub struct FakeCluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The objects, by resource, then by `namespace/name`.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// User, verb, then `resource[.group][/name]` and namespace, or a path.
    rights: Vec<Vec<String>>,
    away: bool,
    revision: u64,
    watchers: Vec<(String, UnboundedSender<Result<Bytes, Infallible>>)>,
}

impl FakeCluster {
    /// A client of the cluster.
    pub fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// Adds a permission: `user verb resource[.group][/name] namespace`, or `user verb path`. `*` stands for any;
    /// without a name it applies to all names.
    pub fn allow(&self, right: &str) {
        self.state().rights.push(right.split(' ').map(str::to_owned).collect());
    }

    /// Creates or replaces an object.
    pub fn put(&self, resource: &str, mut object: Value) {
        let mut state = self.state();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = state.revision.to_string().into();
        let key = key(&object);
        let known = state.objects.entry(resource.to_owned()).or_default();
        let event = match known.insert(key, object.clone()) {
            Some(_) => "MODIFIED",
            None => "ADDED",
        };
        state.tell(resource, event, &object);
    }

    /// Deletes an object.
    pub fn remove(&self, resource: &str, key: &str) {
        let mut state = self.state();
        state.revision += 1;
        let removed = state.objects.get_mut(resource).and_then(|objects| objects.remove(key));
        if let Some(object) = removed {
            state.tell(resource, "DELETED", &object);
        }
    }

    /// Sets whether the cluster is unavailable.
    pub fn set_away(&self, away: bool) {
        self.state().away = away;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        if self.state().away {
            return failure(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "the cluster is away",
            );
        }
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        if path.ends_with("/subjectaccessreviews") {
            let body = request.into_body().collect().await.map(|body| body.to_bytes());
            let review = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
            return self.review(review);
        }
        if let Some(name) = path.strip_prefix("/api/v1/namespaces/") {
            let namespaces = self.state().objects.get("namespaces").cloned().unwrap_or_default();
            return match namespaces.get(&format!("/{name}")) {
                Some(namespace) => answer(namespace),
                None => failure(StatusCode::NOT_FOUND, "NotFound", "not found"),
            };
        }
        let resource = path.rsplit('/').next().unwrap_or_default();
        let state = self.state();
        if query.contains("watch=true") {
            drop(state);
            return self.watch(resource);
        }
        let items: Vec<&Value> =
            state.objects.get(resource).into_iter().flat_map(|o| o.values()).collect();
        answer(&json!({
            "kind": "List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": state.revision.to_string()},
            "items": items,
        }))
    }

    fn review(&self, mut review: Value) -> Response<Body> {
        let spec = &review["spec"];
        let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
        let user = text(spec, "user");
        let asked = match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
            (Value::Null, path) => vec![vec![user, text(path, "verb"), text(path, "path")]],
            (resource, _) => {
                let (verb, namespace) = (text(resource, "verb"), text(resource, "namespace"));
                let mut plural = text(resource, "resource");
                if let Some(group) = resource["group"].as_str() {
                    plural = format!("{plural}.{group}");
                }
                let one = format!("{plural}/{}", text(resource, "name"));
                let of = |what| vec![user.clone(), verb.clone(), what, namespace.clone()];
                vec![of(plural), of(one)]
            }
        };
        let state = self.state();
        let is_given = |asked: &Vec<String>| {
            state.rights.iter().any(|right| {
                let words = right.iter().zip(asked);
                right.len() == asked.len()
                    && words.into_iter().all(|(right, asked)| right == "*" || right == asked)
            })
        };
        let allowed = asked.iter().any(is_given);
        drop(state);
        review["status"] = json!({"allowed": allowed});
        answer(&review)
    }

    fn watch(&self, resource: &str) -> Response<Body> {
        let (sender, receiver) = unbounded();
        self.state().watchers.push((resource.to_owned(), sender));
        Response::new(Body::from_stream(receiver.boxed()))
    }
}

impl State {
    fn tell(&mut self, resource: &str, event: &str, object: &Value) {
        let frame = Bytes::from(format!("{}\n", json!({"type": event, "object": object})));
        self.watchers.retain(|(watched, watcher)| {
            watched != resource || watcher.unbounded_send(Ok(frame.clone())).is_ok()
        });
    }
}

fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn answer(body: &Value) -> Response<Body> {
    Response::new(Body::from(body.to_string()))
}

fn failure(status: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    let mut response = answer(&body);
    *response.status_mut() = status;
    response
}
