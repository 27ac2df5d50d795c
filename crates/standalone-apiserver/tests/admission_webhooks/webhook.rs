//! A webhook in this process, whose responses a test defines.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::generate_simple_self_signed;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The reply of a webhook.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The `response` of the review; the uid is added.
    Response(Value),
    /// The whole HTTP response: status and body.
    Raw(StatusCode, String),
    /// No reply, ever.
    Silence,
    /// Allows the write after this notification.
    AllowsWhen(Arc<Notify>),
    /// A body without an end.
    Endless,
}

type Answer = Box<dyn Fn(&Value) -> Reply + Send + Sync>;

/// A webhook that runs until it is dropped.
pub struct Webhook {
    port: u16,
    ca_bundle: String,
    asked: Arc<Mutex<Vec<Value>>>,
    calls: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    /// Starts a webhook. `answer` returns the reply for the `request` of a review.
    pub async fn start(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (counter, calls) = watch::channel(0);
        let shared: Arc<(Answer, _, _)> = Arc::new((Box::new(answer), Arc::clone(&asked), counter));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, shared) = (tls.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(|request| answered(request, Arc::clone(&shared)));
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { port, ca_bundle: STANDARD.encode(made.cert.pem()), asked, calls, task }
    }

    /// Returns the `clientConfig` of this webhook.
    pub fn client_config(&self) -> Value {
        let url = format!("https://localhost:{}/ask", self.port);
        json!({"url": url, "caBundle": self.ca_bundle})
    }

    /// Returns a webhook configuration for ConfigMaps, with these additional fields.
    pub fn about_config_maps(&self, more: Value) -> Value {
        let mut webhook = json!({
            "name": "it.example.com",
            "clientConfig": self.client_config(),
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
                "resources": ["configmaps"],
            }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        webhook
    }

    /// Returns the requests since the last call.
    pub fn take_asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Waits until the webhook was called `times` times.
    pub async fn was_asked(&self, times: usize) {
        self.calls.clone().wait_for(|calls| *calls >= times).await.unwrap();
    }
}

type Shared = (Answer, Arc<Mutex<Vec<Value>>>, watch::Sender<usize>);

async fn answered(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let (answer, asked, calls) = &*shared;
    let request = review["request"].clone();
    let mut reply = answer(&request);
    asked.lock().unwrap().push(request.clone());
    calls.send_modify(|calls| *calls += 1);
    if let Reply::AllowsWhen(told) = reply {
        told.notified().await;
        reply = allowing();
    }
    let whole = |status, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
        *response.status_mut() = status;
        response
    };
    Ok(match reply {
        Reply::Response(mut response) => {
            response["uid"] = request["uid"].clone();
            let review = json!({
                "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response,
            });
            whole(StatusCode::OK, review.to_string())
        }
        Reply::Raw(status, text) => whole(status, text),
        Reply::Silence | Reply::AllowsWhen(_) => std::future::pending().await,
        Reply::Endless => {
            let chunk = Bytes::from(vec![b' '; 64 << 10]);
            let chunks = stream::repeat(chunk).map(|chunk| Ok(Frame::data(chunk)));
            Response::new(BodyExt::boxed(StreamBody::new(chunks)))
        }
    })
}

/// Returns a reply with a JSON Patch.
pub fn patching(operations: &Value) -> Reply {
    let patch = STANDARD.encode(operations.to_string());
    Reply::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Returns a reply that allows the write.
pub fn allowing() -> Reply {
    Reply::Response(json!({"allowed": true}))
}
