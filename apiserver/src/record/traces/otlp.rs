//! The thread that sends spans to a collector: OTLP over gRPC, without TLS, as kube-apiserver does.
//! A collector that is away costs what waits for it, and nobody else's time.
//!
//! What is sent is written by us, and not by the libraries of OpenTelemetry: they make three trees of each span before
//! its bytes, which took as much time as a quarter of a GET.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::protobuf::{Field, Message, fields};
use super::{Counts, Left, Place, spans};
use crate::occasionally::{Occasionally, shown};

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Requests whose spans are sent at a time, and bytes after which no more are added: collectors take 4 MiB.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// The room with which a batch begins, so that it seldom grows.
const BEGINNING: usize = 384 << 10;
/// What the spans of a request may take as they are sent: its texts are cut.
const OF_REQUEST: usize = 32 << 10;
/// What is sent is there as it is written, while that grows, and as gRPC frames it.
pub(super) const SENDING_BYTES: usize = 3 * (BATCH_BYTES + OF_REQUEST);
/// What of an answer is read.
const ANSWER_BYTES: usize = 64 << 10;
/// How often it is looked for requests that are over: to wake the thread for each costs more than to write its spans. A user's
/// share of the queue is full in twice that time at 50,000 requests a second.
const GATHER: Duration = Duration::from_millis(20);
/// How long spans wait for others to be sent with.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the collector may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How often it is asked whether it is still there.
const ALIVE: Duration = Duration::from_secs(30);

static FAILED: Occasionally = Occasionally::at_most(1);

/// What the thread has.
pub(super) struct Sender {
    waiting: mpsc::Receiver<Left>,
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    counts: Arc<Counts>,
}

/// Where spans are sent, and whose they are.
struct Collector {
    grpc: Grpc<Channel>,
    endpoint: String,
    service: String,
    instance: String,
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
        let channel = Endpoint::from_shared(endpoint.to_owned());
        let channel = channel.map_err(|error| format!("endpoint: {endpoint:?}: {error}"))?;
        // A collector that is gone without a word is looked for anew.
        let channel = channel
            .connect_timeout(ANSWER)
            .http2_keep_alive_interval(ALIVE)
            .keep_alive_timeout(ANSWER)
            .keep_alive_while_idle(true);
        let channel = {
            // It is of this runtime.
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
        while let Some((mut batch, mut flush)) = self.first().await {
            let until = Instant::now() + PATIENCE;
            while !self.gather(&mut batch) && flush.is_none() && Instant::now() < until {
                tokio::select! {
                    () = sleep(GATHER) => {}
                    Some(asked) = self.flushes.recv() => flush = Some(asked),
                }
            }
            while batch.count > 0 {
                self.send(&mut collector, std::mem::take(&mut batch)).await;
                if flush.is_some() {
                    self.gather(&mut batch);
                }
            }
            if let Some(flush) = flush {
                let _ = flush.send(());
            }
        }
    }

    /// Waits until there is something to do: a request, or somebody who waits until all are sent. Nothing when there will be
    /// neither.
    async fn first(&mut self) -> Option<(Batch, Option<oneshot::Sender<()>>)> {
        let mut batch = Batch::default();
        tokio::select! {
            left = self.waiting.recv() => {
                batch.add(left?);
                Some((batch, None))
            }
            Some(flush) = self.flushes.recv() => {
                self.gather(&mut batch);
                Some((batch, Some(flush)))
            }
        }
    }

    /// Adds what has come, without waiting; whether there is no more to wait for.
    fn gather(&mut self, batch: &mut Batch) -> bool {
        while !batch.is_full() {
            match self.waiting.try_recv() {
                Ok(left) => batch.add(left),
                Err(error) => return error == TryRecvError::Disconnected,
            }
        }
        true
    }

    /// Sends spans; their requests have their room until then.
    async fn send(&self, collector: &mut Collector, batch: Batch) {
        let Batch { places, spans, count, .. } = batch;
        let message = [collector.before(spans.0.len()), spans.0.into()];
        let (lost, why) = match timeout(ANSWER, collector.export(message)).await {
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
        drop(places);
        let failed = self.counts.failed.fetch_add(lost, Ordering::Relaxed) + lost;
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        let endpoint = &collector.endpoint;
        FAILED.log(|_| {
            tracing::warn!(
                "spans cannot be sent to {endpoint}, {failed} until now, and {dropped} found no room: {why}"
            );
        });
    }
}

/// Requests whose spans are sent together.
#[derive(Default)]
struct Batch {
    requests: usize,
    /// What they take of the room, until they are sent.
    places: Vec<Place>,
    spans: Message,
    count: u64,
}

impl Batch {
    fn add(&mut self, left: Left) {
        if self.spans.0.capacity() == 0 {
            self.spans.0.reserve(BEGINNING);
        }
        spans::write(&left.ended, &mut self.spans);
        self.requests += 1;
        self.count += left.place.spans;
        match self.places.last_mut() {
            Some(last) if last.is_of(&left.place) => last.add(left.place),
            _ => self.places.push(left.place),
        }
    }

    fn is_full(&self) -> bool {
        self.requests >= BATCH || self.spans.0.len() >= BATCH_BYTES
    }
}

impl Collector {
    /// What stands before spans of so many bytes: whose they are, and what has made them.
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

/// An error with all that has led to it.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// What a collector answers: how many spans it has not taken, and why.
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
                // A negative number is none.
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

/// Messages that are bytes already, in two pieces, and their answers.
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
