//! Commands over a WebSocket. Channel 0 is the input, 1 the output, 2 the error output, 3 the result, 4 the size.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::stream::SplitStream;
use futures::{FutureExt, StreamExt, future};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use super::protocol::Version;
use super::session::{Output, Session, Stdin};
use super::sizes::{SizeSender, sizes};
use super::{Options, Outcome};
use crate::activity::{Activity, Monitored};
use crate::lifecycle::{finish, run};
use crate::websocket::{Codec, accept, deliver, pump, receive, send};
use crate::{Error, Limits};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
/// The first byte of a message that closes a channel, since v5.
const CLOSE: u8 = 255;

pub(super) async fn serve<Io, End, Handler, Work>(
    io: Io,
    (version, codec, options): (Version, Codec, Options),
    limits: &Limits,
    end: End,
    handler: Handler,
) -> Result<Outcome, Error>
where
    Io: AsyncRead + AsyncWrite + Unpin,
    End: Future<Output = Outcome>,
    Handler: FnOnce(Session) -> Work,
    Work: Future<Output = Outcome>,
{
    let activity = Activity::new();
    let (sink, source) = accept(Monitored::new(io, &activity), limits).await.split();
    let (messages, queue) = mpsc::channel(1);
    let (is_sent, sent) = oneshot::channel();
    let (inputs, outputs, session) = streams(options, limits);

    let receiving = inputs.receive(source, (version, codec), messages.downgrade());
    let sending = send(sink, queue, is_sent);
    let mut connection = pin!(async {
        tokio::select! {
            closed = receiving => closed,
            error = sending => Err(error),
        }
    });
    let mut end = pin!(end.fuse());
    let work = async {
        // An empty message tells the client that the session has begun.
        let _ = messages.send(codec.encode(outputs.first(), &[])).await;
        let finished = CancellationToken::new();
        let handle = async {
            let outcome = handler(session).await;
            finished.cancel();
            outcome
        };
        future::join(handle, outputs.send(codec, &messages, &finished)).await.0
    };
    let ended = run(connection.as_mut(), end.as_mut(), work, (&activity, limits)).await?;
    let outcome = ended.result;
    let last = async {
        let result = outcome.encode(version);
        if !result.is_empty() {
            let _ = messages.send(codec.encode(RESULT, &result)).await;
        }
        drop(messages);
        sent.await.map_err(|_| Error::Disconnected)
    };
    let end = async { if ended.is_ended { None } else { Some(end.await) } };
    finish(connection.as_mut(), end, last, (&activity, limits)).await?;
    Ok(outcome)
}

/// The streams to the handler.
struct Inputs {
    stdin: Option<DuplexStream>,
    /// Whether the client has closed the input.
    is_complete: Arc<AtomicBool>,
    sizes: Option<SizeSender>,
}

/// The streams from the handler.
struct Outputs {
    stdout: Option<DuplexStream>,
    stderr: Option<DuplexStream>,
}

fn streams(options: Options, limits: &Limits) -> (Inputs, Outputs, Session) {
    let pipe =
        |is_wanted: bool| is_wanted.then(|| tokio::io::duplex(limits.stream_bytes.max(1))).unzip();
    let (stdin, stdin_reader) = pipe(options.stdin);
    let (stdout, stdout_writer) = pipe(options.stdout);
    let (stderr, stderr_writer) = pipe(options.stderr);
    let (sizes, sizes_reader) = sizes();
    let is_complete = Arc::new(AtomicBool::new(false));
    let input = stdin_reader.map(|pipe| Input { pipe, is_complete: Arc::clone(&is_complete) });
    let session = Session {
        stdin: Stdin::from_option(input),
        stdout: Output::from_option(stdout_writer),
        stderr: Output::from_option(stderr_writer),
        sizes: sizes_reader,
    };
    let sizes = options.tty.then_some(sizes);
    (Inputs { stdin, is_complete, sizes }, Outputs { stdout, stderr }, session)
}

impl Inputs {
    /// Receives messages until the client closes the WebSocket.
    async fn receive<Io: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        mut source: SplitStream<WebSocketStream<Io>>,
        (version, codec): (Version, Codec),
        messages: mpsc::WeakSender<Message>,
    ) -> Result<(), Error> {
        loop {
            let Some((channel, data)) = receive(&mut source, codec).await? else {
                self.is_complete.store(true, Ordering::Release);
                return Ok(());
            };
            match channel {
                CLOSE if version >= Version::V5 => match *data {
                    [STDIN] => {
                        self.is_complete.store(true, Ordering::Release);
                        self.stdin = None;
                    }
                    [RESIZE] => self.sizes = None,
                    [STDOUT | STDERR | RESULT] => {}
                    _ => return Err(Error::protocol("a close signal without a valid channel")),
                },
                STDIN => deliver(&mut self.stdin, &data, &messages).await,
                RESIZE => {
                    if let Some(sizes) = &mut self.sizes {
                        sizes.receive(&data);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Outputs {
    /// Returns the lowest channel that is written.
    fn first(&self) -> u8 {
        match (&self.stdout, &self.stderr) {
            (Some(_), _) => STDOUT,
            (None, Some(_)) => STDERR,
            (None, None) => RESULT,
        }
    }

    /// Sends the outputs until both have ended.
    async fn send(
        self,
        codec: Codec,
        messages: &mpsc::Sender<Message>,
        finished: &CancellationToken,
    ) {
        let send = |output: Option<DuplexStream>, channel| async move {
            if let Some(output) = output {
                pump(output, (channel, codec), messages.clone(), finished).await;
            }
        };
        future::join(send(self.stdout, STDOUT), send(self.stderr, STDERR)).await;
    }
}

/// The input of a command, which fails instead of ending when the client has not closed it.
struct Input {
    pipe: DuplexStream,
    is_complete: Arc<AtomicBool>,
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, is_empty) = (buffer.filled().len(), buffer.remaining() == 0);
        std::task::ready!(Pin::new(&mut self.pipe).poll_read(cx, buffer))?;
        let is_end = buffer.filled().len() == before && !is_empty;
        if is_end && !self.is_complete.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }
}
