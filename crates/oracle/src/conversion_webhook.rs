//! A conversion webhook that kube-apiserver calls for herds. It calls the conversion functions of our server.

use std::net::Ipv4Addr;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;

use aggregated_apiserver::Convert;
use aggregated_apiserver::versions::ConversionError;
use anyhow::Result;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::CustomResourceExt;
use kube::core::crd::merge_crds;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use test_cluster::Authority;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::admission_webhook;
use crate::herd::{v1, v1alpha};

/// The largest size of a review, in bytes.
const BODY_LIMIT: usize = 8 << 20;

/// A webhook server that runs until it is dropped.
pub struct ConversionWebhook {
    port: u16,
    certificates: String,
    task: JoinHandle<()>,
}

impl Drop for ConversionWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ConversionWebhook {
    /// Starts a webhook on a free port, with a certificate of this authority.
    pub async fn start(authority: &Authority, folder: &Path) -> Result<Self> {
        let certificate = authority.server(folder, "conversion-webhook", &["localhost"])?;
        let chain = vec![CertificateDer::from_pem_file(&certificate.certificate)?];
        let key = PrivateKeyDer::from_pem_file(&certificate.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(answer);
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let certificates = STANDARD.encode(std::fs::read(&authority.file)?);
        Ok(Self { port, certificates, task })
    }

    /// Returns the URL of the admission webhooks and their CA bundle in base64.
    pub fn admission(&self) -> (String, String) {
        let url = format!("https://localhost:{}{}", self.port, admission_webhook::ROOT);
        (url.trim_end_matches('/').to_owned(), self.certificates.clone())
    }

    /// Returns the CustomResourceDefinition of herds, whose versions this webhook converts.
    pub fn definition(&self) -> Result<Value> {
        let merged = merge_crds(vec![v1::Herd::crd(), v1alpha::Herd::crd()], "v1")?;
        let mut definition = serde_json::to_value(merged)?;
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {
                "url": format!("https://localhost:{}/convert", self.port),
                "caBundle": self.certificates,
            },
        }});
        Ok(definition)
    }
}

async fn answer(request: Request<hyper::body::Incoming>) -> Result<Response<Body>> {
    let path = request.uri().path().to_owned();
    let body = to_bytes(Body::new(request.into_body()), BODY_LIMIT).await?;
    let review: Value = serde_json::from_slice(&body)?;
    if let Some(behaviour) = path.strip_prefix(admission_webhook::ROOT) {
        if behaviour == "slow" {
            tokio::time::sleep(admission_webhook::SLOW).await;
        }
        return Ok(admission_webhook::answer(behaviour, &review));
    }
    let request = &review["request"];
    let version = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().cloned().unwrap_or_default();
    let converted: Result<Vec<Value>, String> =
        objects.into_iter().map(|object| convert(object, version)).collect();
    let mut response = match converted {
        Ok(objects) => json!({"convertedObjects": objects, "result": {"status": "Success"}}),
        Err(why) => json!({"result": {"status": "Failure", "message": why}}),
    };
    response["uid"] = request["uid"].clone();
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response,
    });
    Ok(Response::builder()
        .header("content-type", "application/json")
        .body(Body::from(review.to_string()))?)
}

/// Converts an object in the same way as a webhook in Go: missing fields have zero values, null fields are omitted, and
/// whole numbers have no fraction.
fn convert(mut object: Value, version: &str) -> Result<Value, String> {
    let nothing = match version {
        "example.com/v1" => json!({"weight": 0, "heads": 0}),
        _ => json!({"grams": 0, "size": {"heads": 0}}),
    };
    complete(&mut object, &json!({"spec": nothing}));
    let text = |failure: ConversionError| failure.to_string();
    let convert = move || match version {
        "example.com/v1" => {
            let herd: v1alpha::Herd = serde_json::from_value(object).map_err(|e| e.to_string())?;
            let herd: v1::Herd = herd.into_hub().map_err(text)?;
            serde_json::to_value(herd).map_err(|error| error.to_string())
        }
        _ => {
            let herd: v1::Herd = serde_json::from_value(object).map_err(|e| e.to_string())?;
            let herd = v1alpha::Herd::from_hub(herd).map_err(text)?;
            serde_json::to_value(herd).map_err(|error| error.to_string())
        }
    };
    catch_unwind(std::panic::AssertUnwindSafe(convert))
        .unwrap_or_else(|_| Err("the conversion panicked".to_owned()))
        .map(without_fractions)
        .map(without_nulls)
        .map(|object| labelled(object, version))
}

/// Adds a label with the target version to objects with the name `labelled`.
fn labelled(mut object: Value, version: &str) -> Value {
    if object["metadata"]["name"] == "labelled" {
        let version = version.rsplit('/').next().unwrap_or_default();
        object["metadata"]["labels"]["made"] = version.into();
    }
    object
}

fn without_nulls(mut object: Value) -> Value {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.retain(|_, value| !value.is_null());
    }
    object
}

fn complete(value: &mut Value, missing: &Value) {
    let (Value::Object(members), Value::Object(missing)) = (value, missing) else { return };
    for (name, missing) in missing {
        complete(members.entry(name.as_str()).or_insert_with(|| missing.clone()), missing);
    }
}

fn without_fractions(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, without_fractions(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_fractions).collect(),
        #[allow(clippy::cast_possible_truncation)] // it is whole
        Value::Number(number) => match number.as_f64().filter(|float| float.fract() == 0.0) {
            Some(float) if number.is_f64() => json!(float as i64),
            _ => Value::Number(number),
        },
        other => other,
    }
}
