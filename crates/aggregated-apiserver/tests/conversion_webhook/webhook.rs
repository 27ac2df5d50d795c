//! A conversion webhook in this process, with all kinds of invalid responses.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The behaviour of the webhook.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Converts all objects except those with the name `bad`.
    Converts,
    /// Never responds.
    Silent,
    /// Responds with this status and this body.
    Answers(StatusCode, String),
    /// Applies this change to the correct response.
    Changes(fn(&mut Value)),
}

pub struct Webhook {
    pub port: u16,
    pub ca_bundle: String,
    pub mode: Arc<Mutex<Mode>>,
    /// The number of objects of each call.
    pub calls: Arc<Mutex<Vec<usize>>>,
    task: JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    pub async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        // Same as `openssl req -x509`: a self-signed certificate that is its own CA.
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(Mutex::new(Mode::Converts));
        let calls: Arc<Mutex<Vec<usize>>> = Arc::default();
        let shared = (Arc::clone(&mode), Arc::clone(&calls));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mode, calls) = shared.clone();
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        answer(request, mode.lock().unwrap().clone(), Arc::clone(&calls))
                    });
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let ca_bundle = STANDARD.encode(certificate.pem());
        Self { port, ca_bundle, mode, calls, task }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}/convert", self.port)
    }

    pub fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// The number of objects of each call since the last call of this function.
    pub fn take_calls(&self) -> Vec<usize> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

async fn answer(
    request: Request<Incoming>,
    mode: Mode,
    calls: Arc<Mutex<Vec<usize>>>,
) -> Result<Response<Body>, Infallible> {
    assert_eq!(request.uri(), "/convert?timeout=30s");
    let body = to_bytes(Body::new(request.into_body()), 8 << 20).await.unwrap();
    let review: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(review["kind"], "ConversionReview");
    let request = &review["request"];
    let objects = request["objects"].as_array().unwrap();
    calls.lock().unwrap().push(objects.len());
    let version = request["desiredAPIVersion"].as_str().unwrap();
    let bad = objects.iter().find(|object| object["metadata"]["name"] == "bad");
    let mut response = match bad {
        Some(_) => json!({"result": {"status": "Failure", "message": "it is bad"}}),
        None => {
            let objects: Vec<Value> = objects.iter().map(|one| convert(one, version)).collect();
            json!({"convertedObjects": objects, "result": {"status": "Success"}})
        }
    };
    response["uid"] = request["uid"].clone();
    let mut review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response,
    });
    let (status, body) = match mode {
        Mode::Converts => (StatusCode::OK, review.to_string()),
        Mode::Silent => std::future::pending().await,
        Mode::Answers(status, body) => (status, body),
        Mode::Changes(change) => {
            change(&mut review);
            (StatusCode::OK, review.to_string())
        }
    };
    Ok(Response::builder().status(status).body(Body::from(body)).unwrap())
}

/// Fields that are numbers in `v1` are strings in `v2`.
fn convert(object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = version.into();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
    if version == "example.com/v1" {
        if let Some(width) = spec.remove("width") {
            let size: i64 = width.as_str().unwrap().trim_end_matches("cm").parse().unwrap();
            spec.insert("size".to_owned(), size.into());
        }
    } else if let Some(size) = spec.remove("size") {
        spec.insert("width".to_owned(), format!("{size}cm").into());
    }
    object
}
