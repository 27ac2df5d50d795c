//! The thread that sends spans to a collector: OTLP over gRPC without TLS, same as in kube-apiserver. If the collector
//! is unavailable, spans are lost, but requests are not delayed.
//!
//! Messages are encoded by this crate rather than by the libraries of OpenTelemetry. These build three trees of each
//! span before its bytes, which took as much time as a quarter of a GET.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tokio::sync::{mpsc, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::Counts;
use super::protobuf::{Field, Message, fields};
use super::waiting::{BATCH_BYTES, Batch, Waiting};
use crate::log_throttle::{LogThrottle, shown};

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The memory for sending, in bytes: a copy of the batch in a gRPC frame, and a copy on its way to the socket.
pub(super) const SENDING_BYTES: usize = 2 * BATCH_BYTES;
/// The largest response that is read, in bytes.
const ANSWER_BYTES: usize = 64 << 10;
/// The time that spans wait for others before they are sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// The timeout of the collector.
const ANSWER: Duration = Duration::from_secs(10);
/// The interval of HTTP/2 keep-alive pings to the collector.
const ALIVE: Duration = Duration::from_secs(30);

static FAILED: LogThrottle = LogThrottle::at_most(1);

/// The state of the thread.
pub(super) struct Sender {
    waiting: Arc<Waiting>,
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    counts: Arc<Counts>,
}

/// The collector, with the service name and instance that spans carry.
struct Collector {
    grpc: Grpc<Channel>,
    endpoint: String,
    service: String,
    instance: String,
}

impl Sender {
    pub(super) fn new(
        waiting: Arc<Waiting>,
        flushes: mpsc::Receiver<oneshot::Sender<()>>,
        counts: Arc<Counts>,
    ) -> Self {
        Self { waiting, flushes, counts }
    }

    /// Starts the thread. It ends when [`Traces`](super::Traces) is dropped and all spans are sent.
    /// # Errors
    /// Returns an error if the endpoint is invalid or the thread cannot start.
    pub(super) fn begin(
        self,
        endpoint: &str,
        (service, instance): (&str, &str),
    ) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let channel = Endpoint::from_shared(endpoint.to_owned());
        let channel = channel.map_err(|error| format!("endpoint: {endpoint:?}: {error}"))?;
        // A connection whose collector has disappeared is closed and re-established.
        let channel = channel
            .connect_timeout(ANSWER)
            .http2_keep_alive_interval(ALIVE)
            .keep_alive_timeout(ANSWER)
            .keep_alive_while_idle(true);
        let channel = {
            // The channel spawns its tasks on this runtime.
            let _entered = runtime.enter();
            channel.connect_lazy()
        };
        let collector = Collector {
            grpc: Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES),
            endpoint: endpoint.to_owned(),
            service: service.to_owned(),
            instance: instance.to_owned(),
        };
        let thread = thread::Builder::new().name("traces".to_owned());
        let run = move || runtime.block_on(self.run(collector));
        thread.spawn(run).map(drop).map_err(|error| error.to_string())
    }

    async fn run(mut self, mut collector: Collector) {
        // The time at which the waiting spans are sent, even if they are few.
        let mut until = None;
        loop {
            let patience = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            let (all, flush, is_over) = tokio::select! {
                () = self.waiting.changed.notified() => (false, None, false),
                () = patience => (true, None, false),
                asked = self.flushes.recv() => match asked {
                    Some(flush) => (true, Some(flush), false),
                    None => (true, None, true),
                },
            };
            let was_sent = self.send_waiting(&mut collector, all).await;
            if let Some(flush) = flush {
                let _ = flush.send(());
            }
            if is_over {
                return;
            }
            // The remaining spans have arrived since the last batch was sent.
            if self.waiting.is_empty() {
                until = None;
            } else if was_sent || until.is_none() {
                until = Some(Instant::now() + PATIENCE);
            }
        }
    }

    /// Sends all full batches, and also the last one if `all` is true. Returns whether spans were sent.
    async fn send_waiting(&self, collector: &mut Collector, all: bool) -> bool {
        let mut was_sent = false;
        while let Some(batch) = self.waiting.take(false) {
            self.send(collector, batch).await;
            was_sent = true;
        }
        if let Some(batch) = self.waiting.take(all) {
            self.send(collector, batch).await;
            was_sent = true;
        }
        was_sent
    }

    /// Sends a batch. Its spans use their capacity until the collector has responded.
    async fn send(&self, collector: &mut Collector, mut batch: Batch) {
        let (spans, count) = (std::mem::take(&mut batch.spans), batch.count);
        let message = [collector.before(spans.0.len()), spans.0.into()];
        let answer = timeout(ANSWER, collector.export(message)).await;
        self.counted(answer, count, &collector.endpoint);
        self.waiting.give_back(batch);
    }

    /// Counts the result for this number of spans, and reports lost spans in the log.
    fn counted(&self, answer: Result<Result<Answer, Status>, Elapsed>, count: u64, endpoint: &str) {
        let (lost, why) = match answer {
            Ok(Ok(answer)) => {
                let Answer { rejected, message } = answer;
                let rejected = rejected.min(count);
                self.counts.exported.fetch_add(count - rejected, Ordering::Relaxed);
                if rejected == 0 {
                    return;
                }
                (rejected, format!("rejected: {}", shown(message)))
            }
            Ok(Err(status)) => (count, format!("{:?}: {}", status.code(), status.message())),
            Err(_) => (count, "it does not answer".to_owned()),
        };
        let failed = self.counts.failed.fetch_add(lost, Ordering::Relaxed) + lost;
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        FAILED.log(|_| {
            tracing::warn!(
                endpoint = %endpoint,
                failed,
                dropped,
                error = %why,
                "cannot send spans"
            );
        });
    }
}

impl Collector {
    /// Encodes the part of a message before its spans, which have this number of bytes: the resource and the
    /// instrumentation scope.
    fn before(&self, spans: usize) -> Bytes {
        let mut scope = Message::default();
        scope.message(1, |scope| scope.text(1, env!("CARGO_PKG_NAME")));
        let mut of_resource = Message::default();
        of_resource.message(1, |resource| {
            let said = [("service.name", &self.service), ("service.instance.id", &self.instance)];
            for (name, text) in said {
                resource.message(1, |attribute| {
                    attribute.text(1, name);
                    attribute.message(2, |value| value.text(1, text));
                });
            }
        });
        of_resource.begin(2, scope.0.len() + spans);
        of_resource.0.append(&mut scope.0);
        let mut all = Message::default();
        all.begin(1, of_resource.0.len() + spans);
        all.0.append(&mut of_resource.0);
        all.0.into()
    }

    async fn export(&mut self, message: [Bytes; 2]) -> Result<Answer, Status> {
        self.grpc.ready().await.map_err(|error| Status::unavailable(in_full(&error)))?;
        let path = PathAndQuery::from_static(EXPORT);
        let answer = self.grpc.unary(Request::new(message), path, Written).await;
        answer.map(tonic::Response::into_inner).map_err(|status| {
            match std::error::Error::source(&status) {
                Some(source) => Status::new(status.code(), in_full(source)),
                None => status,
            }
        })
    }
}

/// Formats an error with all its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The response of a collector: the number of rejected spans, and the reason.
#[derive(Default)]
struct Answer {
    rejected: u64,
    message: String,
}

impl Answer {
    fn read(answer: &[u8]) -> Self {
        let mut read = Self::default();
        let partial = fields(answer).filter_map(|field| match field {
            (1, Field::Bytes(partial)) => Some(partial),
            _ => None,
        });
        for field in partial.flat_map(fields) {
            match field {
                // A negative number counts as 0.
                (1, Field::Number(rejected)) => {
                    read.rejected = i64::try_from(rejected).map_or(0, |_| rejected);
                }
                (2, Field::Bytes(message)) => {
                    read.message = String::from_utf8_lossy(message).into_owned();
                }
                _ => {}
            }
        }
        read
    }
}

/// A codec for messages that are already encoded, in two pieces, and for their responses.
struct Written;

impl Codec for Written {
    type Encode = [Bytes; 2];
    type Decode = Answer;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Written {
    type Item = [Bytes; 2];
    type Error = Status;

    fn encode(&mut self, message: [Bytes; 2], to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(message.iter().map(Bytes::len).sum());
        message.into_iter().for_each(|piece| to.put(piece));
        Ok(())
    }
}

impl Decoder for Written {
    type Item = Answer;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Answer>, Status> {
        let answer = from.copy_to_bytes(from.remaining());
        Ok(Some(Answer::read(&answer)))
    }
}
