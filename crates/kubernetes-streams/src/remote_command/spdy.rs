//! Commands over SPDY: the client creates a stream for the result and for each input and output.

use std::pin::pin;

use futures::{FutureExt, future};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::protocol::Version;
use super::session::{Output, Session, Stdin};
use super::sizes::{SizeSender, Sizes, sizes};
use super::{Options, Outcome};
use crate::activity::{Activity, Monitored};
use crate::lifecycle::{finish, run};
use crate::spdy::{Handle, Stream, server};
use crate::{Error, Limits};

/// The header with the type of a stream. Its names are lower-case in SPDY.
const STREAM_TYPE: &str = "streamtype";

pub(super) async fn serve<Io, End, Handler, Work>(
    io: Io,
    (version, options): (Version, Options),
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
    let (connection, handle) = server(Monitored::new(io, &activity), limits);
    let mut connection = pin!(connection);
    let mut end = pin!(end.fuse());
    let streams = tokio::select! {
        biased;
        streams = timeout(limits.setup, accept_streams(&handle, options, version)) => {
            streams.map_err(|_| Error::Setup(limits.setup))?
        }
        closed = connection.as_mut() => return Err(closed.err().unwrap_or(Error::Disconnected)),
        outcome = end.as_mut() => {
            // There may be no stream yet for the outcome.
            let last = async { Ok(handle.close().await?) };
            let end = future::ready(());
            finish(connection.as_mut(), end, last, (&activity, limits)).await?;
            return Ok(outcome);
        }
    };
    let (sender, sizes) = sizes();
    let (result, resize, session) = streams.split(options, sizes);
    let aside = async {
        future::join(receive_sizes(resize, sender), refuse_streams(&handle)).await;
        future::pending().await
    };
    let mut connection = pin!(async {
        tokio::select! {
            closed = connection => closed,
            closed = aside => closed,
        }
    });
    let work = handler(session);
    let ended = run(connection.as_mut(), end.as_mut(), work, (&activity, limits)).await?;
    let outcome = ended.result;
    let last = async {
        if let Some(mut result) = result {
            // A client that closed this stream does not want the result.
            let _ = result.write_all(&outcome.encode(version)).await;
        }
        Ok(handle.close().await?)
    };
    let end = async { if ended.is_ended { None } else { Some(end.await) } };
    finish(connection.as_mut(), end, last, (&activity, limits)).await?;
    Ok(outcome)
}

/// The streams of a client.
#[derive(Default)]
struct Streams {
    result: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    fn by_type(&mut self, name: &[u8]) -> Option<&mut Option<Stream>> {
        match name {
            b"error" => Some(&mut self.result),
            b"stdin" => Some(&mut self.stdin),
            b"stdout" => Some(&mut self.stdout),
            b"stderr" => Some(&mut self.stderr),
            b"resize" => Some(&mut self.resize),
            _ => None,
        }
    }

    /// Whether the client has created all streams that it asked for.
    fn is_complete(&self, options: Options, version: Version) -> bool {
        let wanted = [
            (&self.result, true),
            (&self.stdin, options.stdin),
            (&self.stdout, options.stdout),
            (&self.stderr, options.stderr),
            (&self.resize, options.tty && version >= Version::V3),
        ];
        wanted.iter().all(|(stream, is_wanted)| stream.is_some() || !is_wanted)
    }

    /// Returns the stream for the result, the stream with sizes, and the streams of the handler.
    fn split(self, options: Options, sizes: Sizes) -> (Option<Stream>, Option<Stream>, Session) {
        let session = Session {
            stdin: Stdin::from_option(self.stdin.filter(|_| options.stdin)),
            stdout: Output::from_option(self.stdout.filter(|_| options.stdout)),
            stderr: Output::from_option(self.stderr.filter(|_| options.stderr)),
            sizes,
        };
        (self.result, self.resize.filter(|_| options.tty), session)
    }
}

/// Accepts streams until the client has created all that it asked for. Others are refused.
async fn accept_streams(handle: &Handle, options: Options, version: Version) -> Streams {
    let mut streams = Streams::default();
    while !streams.is_complete(options, version) {
        let Some(incoming) = handle.accept().await else { return future::pending().await };
        let name = incoming.headers().get(STREAM_TYPE).map(|name| name.as_bytes().to_vec());
        let stream = streams.by_type(&name.unwrap_or_default());
        if let Some(stream) = stream.filter(|stream| stream.is_none()) {
            *stream = Some(incoming.accept());
        }
    }
    streams
}

async fn refuse_streams(handle: &Handle) {
    while let Some(incoming) = handle.accept().await {
        drop(incoming);
    }
}

async fn receive_sizes(stream: Option<Stream>, mut sender: SizeSender) {
    let Some(mut stream) = stream else { return };
    let mut buffer = [0; 512];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        sender.receive(buffer.get(..count).unwrap_or_default());
    }
}
