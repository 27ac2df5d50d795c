//! The audit log and traces of the last requests before the program receives SIGTERM, while many clients send requests.
//! No audit event and no span may be missing.

#![allow(clippy::unwrap_used, clippy::panic)] // all of it is a test

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::Request;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use serde_json::Value as Json;
use test_cluster::Standalone;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\nomitStages: [RequestReceived]";
const CLIENTS: usize = 8;
/// The number of requests with a response before the program receives SIGTERM.
const BEFORE: usize = 200;
/// The maximum number of requests. The span buffer has capacity for this many, however late they are exported.
const MOST: usize = 1_500;

/// A collector that stores the audit ids of the requests whose spans it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<HashSet<String>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let sent = request.into_inner().resource_spans.into_iter();
        let spans = sent.flat_map(|sent| sent.scope_spans).flat_map(|scope| scope.spans);
        let ids = spans.flat_map(|span| span.attributes).filter(|one| one.key == "audit-id");
        let mut known = self.0.lock().unwrap();
        for id in ids {
            match id.value.unwrap().value.unwrap() {
                Value::StringValue(id) => known.insert(id),
                other => panic!("{other:?}"),
            };
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
        address
    }
}

/// The program, with an audit log and traces of all requests. Dropping it kills the program.
struct Program {
    server: Standalone,
    client: Client,
}

impl Program {
    async fn start(collector: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("policy.yaml"), POLICY).unwrap();
        let tracing = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {collector}\nsamplingRatePerMillion: 1000000"
        );
        fs::write(file("tracing.yaml"), tracing).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_farm-operator"));
        command.args(["--standalone", "--secure-port=0", "--shutdown-delay-duration=500ms"]);
        for (flag, name) in [
            ("--audit-policy-file", "policy.yaml"),
            ("--audit-log-path", "audit.log"),
            ("--tracing-config-file", "tracing.yaml"),
            ("--write-kubeconfig", "kubeconfig"),
        ] {
            command.arg(flag).arg(file(name));
        }
        let server = Standalone::spawn(command, folder).unwrap();
        let client = test_server::client(&server.kubeconfig).await.unwrap();
        Self { server, client }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.path().join(name)
    }

    fn terminate(&self) {
        self.server.process.terminate().unwrap();
    }

    async fn wait(mut self) -> (Self, ExitStatus) {
        let waited = tokio::task::spawn_blocking(move || {
            let status = self.server.process.wait().unwrap();
            (self, status)
        });
        waited.await.unwrap()
    }

    /// The log of the program.
    fn log(&self) -> String {
        self.server.process.printed()
    }
}

/// The audit id of a completed request; `None` if the server no longer responds.
async fn ask(client: &Client) -> Option<String> {
    let request = Request::get("/apis/farm.example.com/v1/llamas").body(Body::empty()).unwrap();
    let response = client.send(request).await.ok()?;
    let id = response.headers().get("audit-id").unwrap().to_str().unwrap().to_owned();
    response.into_body().collect().await.ok()?;
    Some(id)
}

/// The audit ids of requests whose end is in the audit log.
fn audited(program: &Program) -> HashSet<String> {
    let text = fs::read_to_string(program.file("audit.log")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let ends = events.filter(|event| event["stage"] == "ResponseComplete");
    ends.map(|event| event["auditID"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_requests_are_in_audit_log_and_traces_after_shutdown() {
    let collector = Collector::default();
    let program = Program::start(collector.start().await).await;
    let (asked, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let enough = Arc::new(Notify::new());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = program.client.clone();
            let (asked, answered) = (Arc::clone(&asked), Arc::clone(&answered));
            let enough = Arc::clone(&enough);
            tokio::spawn(async move {
                let mut ids = Vec::new();
                while asked.fetch_add(1, Ordering::Relaxed) < MOST {
                    let Some(id) = ask(&client).await else { break };
                    ids.push(id);
                    if answered.fetch_add(1, Ordering::Relaxed) + 1 == BEFORE {
                        enough.notify_one();
                    }
                }
                ids
            })
        })
        .collect();
    enough.notified().await;
    program.terminate();
    let (program, status) = program.wait().await;
    let mut all = HashSet::new();
    for client in clients {
        all.extend(client.await.unwrap());
    }
    assert!(status.success(), "{status}: {}", program.log());
    assert!(all.len() > BEFORE, "it was not busy: {}", all.len());
    let of_log = audited(&program);
    let missing = all.difference(&of_log).count();
    assert_eq!(missing, 0, "of {} in the audit log: {}", all.len(), program.log());
    let of_collector = collector.0.lock().unwrap();
    let missing = all.difference(&of_collector).count();
    assert_eq!(missing, 0, "of {} at the collector: {}", all.len(), program.log());
}

#[tokio::test]
async fn spans_not_exported_at_shutdown_are_counted_in_the_log() {
    let program = Program::start(([127, 0, 0, 1], 1).into()).await;
    ask(&program.client).await.unwrap();
    program.terminate();
    let (program, status) = program.wait().await;
    assert!(status.success(), "{status}");
    let log = program.log();
    let said = log.lines().find(|line| line.contains("spans were not sent before the exit"));
    let lost = said.and_then(|line| line.split_once("lost=")?.1.split_whitespace().next());
    let lost = lost.and_then(|count| count.parse::<u64>().ok());
    assert!(lost.is_some_and(|lost| lost > 1), "{log}");
}
