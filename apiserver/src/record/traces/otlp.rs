//! The thread that sends spans to a collector: OTLP over gRPC, without TLS, as kube-apiserver does.
//! A collector that is away costs what waits for it, and nobody else's time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::context::Remote;
use super::span::{Span, Value};
use super::{Counts, Left};
use crate::occasionally::Occasionally;

/// Spans that are sent at a time; as the libraries of OpenTelemetry.
const BATCH: usize = 512;
/// How long spans wait for others to be sent with.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the collector may take.
const ANSWER: Duration = Duration::from_secs(10);

static FAILED: Occasionally = Occasionally::at_most(1);

/// What the thread has.
pub(super) struct Sender {
    waiting: mpsc::Receiver<Left>,
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    counts: Arc<Counts>,
}

impl Sender {
    pub(super) fn new(
        (waiting, flushes): (mpsc::Receiver<Left>, mpsc::Receiver<oneshot::Sender<()>>),
        counts: Arc<Counts>,
    ) -> Self {
        Self { waiting, flushes, counts }
    }

    /// Begins the thread, which ends when nothing can come any more.
    ///
    /// # Errors
    /// When the collector cannot be called so.
    pub(super) fn begin(
        self,
        endpoint: &str,
        (service, instance): (&str, &str),
    ) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let exporter = {
            // The channel is of this runtime.
            let _entered = runtime.enter();
            let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
            exporter.with_timeout(ANSWER).build()
        };
        let mut exporter = exporter.map_err(|error| format!("endpoint: {endpoint:?}: {error}"))?;
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", service.to_owned()),
            KeyValue::new("service.instance.id", instance.to_owned()),
        ]);
        exporter.set_resource(&resource.build());
        let endpoint = endpoint.to_owned();
        let thread = thread::Builder::new().name("traces".to_owned());
        let run = move || runtime.block_on(self.run(&exporter, &endpoint));
        thread.spawn(run).map(drop).map_err(|error| error.to_string())
    }

    async fn run(mut self, exporter: &SpanExporter, endpoint: &str) {
        let mut done: Option<oneshot::Sender<()>> = None;
        loop {
            let mut batch = Vec::new();
            match &done {
                None => tokio::select! {
                    spans = self.waiting.recv() => match spans {
                        Some(left) => batch = left.take(),
                        None => return,
                    },
                    Some(flush) = self.flushes.recv() => done = Some(flush),
                },
                // What has come until then is sent at once.
                Some(_) => match self.waiting.try_recv() {
                    Ok(left) => batch = left.take(),
                    Err(_) => {
                        if let Some(done) = done.take() {
                            let _ = done.send(());
                        }
                        continue;
                    }
                },
            }
            let until = Instant::now() + PATIENCE;
            while batch.len() < BATCH && !batch.is_empty() {
                if done.is_some() {
                    let Ok(left) = self.waiting.try_recv() else { break };
                    batch.extend(left.take());
                    continue;
                }
                tokio::select! {
                    spans = timeout_at(until, self.waiting.recv()) => match spans {
                        Ok(Some(left)) => batch.extend(left.take()),
                        _ => break,
                    },
                    Some(flush) = self.flushes.recv() => done = Some(flush),
                }
            }
            if !batch.is_empty() {
                self.send(exporter, endpoint, batch).await;
            }
        }
    }

    async fn send(&self, exporter: &SpanExporter, endpoint: &str, batch: Vec<Span>) {
        let count = batch.len() as u64;
        let batch = batch.into_iter().map(encode).collect();
        let why = match timeout(ANSWER, exporter.export(batch)).await {
            Ok(Ok(())) => {
                self.counts.exported.fetch_add(count, Ordering::Relaxed);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        let failed = self.counts.failed.fetch_add(count, Ordering::Relaxed) + count;
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        FAILED.log(|_| {
            tracing::warn!(
                "spans cannot be sent to {endpoint}, {failed} until now, and {dropped} found no room: {why}"
            );
        });
    }
}

fn context(trace: u128, span: u64, is_remote: bool) -> SpanContext {
    let (trace, span) = (TraceId::from(trace), SpanId::from(span));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, is_remote, TraceState::NONE)
}

fn encode(span: Span) -> SpanData {
    let attributes = span.attributes.into_iter().map(|(name, value)| match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
    });
    let mut links = SpanLinks::default();
    if let Some(Remote { trace, span, .. }) = span.link {
        links.links.push(Link::with_context(context(trace, span, true)));
    }
    SpanData {
        span_context: context(span.trace, span.span, false),
        parent_span_id: SpanId::from(span.parent),
        parent_span_is_remote: span.is_parent_remote,
        span_kind: if span.is_request { SpanKind::Server } else { SpanKind::Internal },
        name: span.name,
        start_time: span.start,
        end_time: span.end,
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: if span.is_error { Status::error("") } else { Status::Unset },
        instrumentation_scope: InstrumentationScope::builder(env!("CARGO_PKG_NAME")).build(),
    }
}
