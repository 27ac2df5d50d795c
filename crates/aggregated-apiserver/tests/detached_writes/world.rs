//! A server with a delayed store. The namespace `n` has a quota, and all users are allowed to do everything.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionPlugin, AdmissionRequest,
};
use aggregated_apiserver::serving::{AdmissionPluginName, AuditArgs, TracingArgs};
use aggregated_apiserver::store::Store;
use aggregated_apiserver::{ApiServer, InProcess, Kinds};
use axum::body::Body;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde_json::{Value, json};
use test_server::ask_as;
use tokio::sync::{Mutex, mpsc};

use crate::store::{Behaviour, DelayedStore};

/// A kind that is always served.
const BARS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bars.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Bar, plural: bars}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// The quota of foos, and of bars.
pub const QUOTA: usize = 4;

pub fn path(plural: &str) -> String {
    format!("/apis/example.com/v1/namespaces/n/{plural}")
}

/// The definition of foos with this number. Each foo must contain the number.
pub fn foos(number: u64) -> CustomResourceDefinition {
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {"spec": {
            "type": "object", "required": ["epoch"], "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"epoch": {"type": "integer", "enum": [number]}},
        }},
    });
    let definition = json!({
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

pub fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": "n"});
    json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// A plugin that delays writes before they are validated, like a webhook.
struct SlowPlugin(Duration);

impl AdmissionPlugin for SlowPlugin {
    fn handles(&self, _: &AdmissionRequest<'_>) -> bool {
        !self.0.is_zero()
    }

    fn mutate<'a>(
        &'a self,
        _: &'a AdmissionRequest<'_>,
        _: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        Box::pin(async {
            let longest = u64::try_from(self.0.as_millis()).unwrap();
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=longest))).await;
            Ok(())
        })
    }
}

pub struct World {
    pub server: InProcess,
    pub store: Arc<DelayedStore>,
}

/// The watch events of namespaces of a cluster.
type Events = Arc<Mutex<mpsc::UnboundedReceiver<Value>>>;

impl World {
    pub async fn new(seed: u64, behaviour: Behaviour, slow: Duration) -> Self {
        Self::with(seed, behaviour, slow, None, |server| server).await
    }

    /// Same as `new`, with a namespace that can be deleted. The test sends watch events of namespaces to the returned
    /// channel.
    pub async fn with_namespace(behaviour: Behaviour) -> (Self, mpsc::UnboundedSender<Value>) {
        let (sender, events) = mpsc::unbounded_channel();
        let events = Arc::new(Mutex::new(events));
        let world = Self::with(1, behaviour, Duration::ZERO, Some(events), |server| server);
        (world.await, sender)
    }

    /// Same as `new`, with an audit log, traces or both.
    pub async fn told(behaviour: Behaviour, audit: &AuditArgs, traces: &TracingArgs) -> Self {
        let configure =
            |server: ApiServer| server.with_audit(audit).unwrap().with_traces(traces).unwrap();
        Self::with(1, behaviour, Duration::ZERO, None, configure).await
    }

    async fn with(
        seed: u64,
        behaviour: Behaviour,
        slow: Duration,
        namespaces: Option<Events>,
        configure: impl FnOnce(ApiServer) -> ApiServer,
    ) -> Self {
        let store = DelayedStore::new(seed, behaviour);
        let kinds = Kinds::new().with_admission_plugin(SlowPlugin(slow));
        let kinds = kinds.merge(Kinds::new().crds_from_yaml(BARS).unwrap());
        let server = test_server::without_webhooks(ApiServer::new("foos", kinds));
        let mut server = server.with_store(Arc::clone(&store) as Arc<dyn Store>);
        if namespaces.is_none() {
            server = server.without_admission_plugin(AdmissionPluginName::NamespaceLifecycle);
        }
        let server = configure(server);
        let cluster = tower::service_fn(move |request| cluster(request, namespaces.clone()));
        let server = server.in_process(Client::new(cluster, "default"));
        Self { server: server.await.unwrap(), store }
    }

    /// Sends a request of a user and returns the response.
    pub async fn ask(
        &self,
        user: &str,
        (method, path): (&str, &str),
        body: &Value,
    ) -> (StatusCode, Value) {
        ask_as(&self.server, test_server::user(user), method, path, body).await
    }

    /// The names of the listed objects.
    pub async fn names(&self, plural: &str) -> Vec<String> {
        let (status, list) = self.ask("reader", ("GET", &path(plural)), &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The namespace `n`.
pub fn namespace() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "n", "uid": "n", "resourceVersion": "2"}, "status": {"phase": "Active"},
    })
}

async fn cluster(
    request: Request<kube::client::Body>,
    namespaces: Option<Events>,
) -> Result<Response<Body>, Infallible> {
    let allowed = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {},
        "status": {"allowed": true},
    });
    let hard = json!({"count/foos.example.com": QUOTA.to_string(), "count/bars.example.com": QUOTA.to_string()});
    let quotas = json!({
        "apiVersion": "v1", "kind": "ResourceQuotaList", "metadata": {"resourceVersion": "1"},
        "items": [{
            "metadata": {"name": "q", "namespace": "n", "uid": "q", "resourceVersion": "1"},
            "spec": {"hard": hard},
        }],
    });
    let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
    let list = json!({
        "apiVersion": "v1", "kind": "NamespaceList", "metadata": {"resourceVersion": "1"},
        "items": [namespace()],
    });
    Ok(match request.uri().path() {
        "/api/v1/namespaces" if is_watch => {
            let lines = futures::stream::unfold(namespaces, |events| async move {
                let event = events.as_ref()?.lock().await.recv().await?;
                Some((Ok::<_, Infallible>(format!("{event}\n")), events))
            });
            Response::new(Body::from_stream(lines.boxed()))
        }
        "/api/v1/namespaces" => Response::new(Body::from(list.to_string())),
        "/api/v1/resourcequotas" if is_watch => {
            let nothing = futures::stream::pending::<Result<String, Infallible>>();
            Response::new(Body::from_stream(nothing.boxed()))
        }
        "/api/v1/resourcequotas" => Response::new(Body::from(quotas.to_string())),
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            Response::new(Body::from(allowed.to_string()))
        }
        _ => {
            let mut response = Response::new(Body::from("{}"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    })
}
