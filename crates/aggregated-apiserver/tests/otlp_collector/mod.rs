//! A collector of spans: OTLP over gRPC.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use aggregated_apiserver::serving::TracingArgs;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// A tracing configuration that samples `rate` requests per million and sends their spans to this collector.
pub fn tracing(folder: &Path, endpoint: SocketAddr, rate: u32) -> TracingArgs {
    let file = folder.join("tracing.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: '{endpoint}'\nsamplingRatePerMillion: {rate}"
    );
    std::fs::write(&file, text).unwrap();
    let mut args = TracingArgs::default();
    args.tracing_config_file = Some(file);
    args
}

/// The attributes as strings, by name.
pub fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let each = attributes.iter().map(|one| {
        let value = one.value.as_ref().and_then(|value| value.value.as_ref()).unwrap();
        (one.key.clone(), text(value))
    });
    each.collect()
}

/// A collector that forwards its requests to a channel.
struct Collector {
    sent: mpsc::UnboundedSender<ExportTraceServiceRequest>,
    /// The number of spans of each request that the collector reports as rejected.
    rejects: i64,
    /// The collector responds to one request for each permit.
    answers: Arc<Semaphore>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.sent.send(request.into_inner()).unwrap();
        self.answers.acquire().await.unwrap().forget();
        let partial_success = (self.rejects > 0).then(|| ExportTracePartialSuccess {
            rejected_spans: self.rejects,
            error_message: "too many".to_owned(),
        });
        Ok(tonic::Response::new(ExportTraceServiceResponse { partial_success }))
    }
}

/// Starts a collector. Returns its address and a channel of its requests.
pub async fn collector() -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    collector_that_rejects(0).await
}

pub async fn collector_that_rejects(
    rejects: i64,
) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    collector_that_answers(rejects, Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))).await
}

pub async fn collector_that_answers(
    rejects: i64,
    answers: Arc<Semaphore>,
) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, sent) = mpsc::unbounded_channel();
    let service = TraceServiceServer::new(Collector { sent: sender, rejects, answers });
    let serving = Server::builder().add_service(service);
    tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
    (address, sent)
}
