//! Port forwarding over SPDY: each forwarded connection is a pair of streams.

use std::pin::pin;

use futures::StreamExt;
use futures::future::Shared;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};

use super::pairs::{Pair, Pairs};
use crate::activity::Activity;
use crate::lifecycle::{finish, overdue, run};
use crate::spdy::{Handle, Stream, server};
use crate::{Error, Limits};

pub(super) async fn serve<Io, End, Open, Opening, Target>(
    io: Io,
    (activity, limits): (&Activity, &Limits),
    end: Shared<End>,
    open: Open,
) -> Result<(), Error>
where
    Io: AsyncRead + AsyncWrite + Unpin,
    End: Future<Output = String>,
    Open: Fn(u16) -> Opening,
    Opening: Future<Output = Result<Target, String>>,
    Target: AsyncRead + AsyncWrite + Unpin,
{
    let (connection, handle) = server(io, limits);
    let mut connection = pin!(connection);
    let work = forward_all(&handle, limits, end.clone(), open);
    let overdue = pin!(overdue(end.clone(), limits));
    run(connection.as_mut(), overdue, work, (activity, limits)).await?;
    let last = async { Ok(handle.close().await?) };
    finish(connection.as_mut(), end, last, (activity, limits)).await
}

enum Task {
    Forward(Pair),
    Report(Stream),
}

/// Forwards connections until the client creates no further streams and all have ended, or `end` is done.
async fn forward_all<End, Open, Opening, Target>(
    handle: &Handle,
    limits: &Limits,
    end: Shared<End>,
    open: Open,
) where
    End: Future<Output = String>,
    Open: Fn(u16) -> Opening,
    Opening: Future<Output = Result<Target, String>>,
    Target: AsyncRead + AsyncWrite + Unpin,
{
    let mut pairs = Pairs::new(limits.setup);
    let mut tasks = FuturesUnordered::new();
    let start = |task| {
        let (open, end) = (&open, end.clone());
        async move {
            match task {
                Task::Forward(pair) => forward(pair, open, end).await,
                Task::Report(mut error) => {
                    let _ = error.write_all(b"timed out waiting for streams").await;
                }
            }
        }
    };
    let mut is_accepting = true;
    while is_accepting || !tasks.is_empty() {
        tokio::select! {
            incoming = handle.accept(), if is_accepting => match incoming {
                Some(incoming) => {
                    tasks.extend(pairs.add(incoming).map(|pair| start(Task::Forward(pair))));
                }
                None => is_accepting = false,
            },
            error = pairs.expired(), if is_accepting => {
                tasks.extend(error.map(|error| start(Task::Report(error))));
            }
            Some(()) = tasks.next() => {}
            _ = end.clone(), if is_accepting => is_accepting = false,
        }
    }
}

/// Forwards a connection until both sides have closed it, or `end` is done.
async fn forward<Open, Opening, Target>(
    Pair { port, mut data, mut error }: Pair,
    open: &Open,
    end: impl Future<Output = String>,
) where
    Open: Fn(u16) -> Opening,
    Opening: Future<Output = Result<Target, String>>,
    Target: AsyncRead + AsyncWrite + Unpin,
{
    let copy = async {
        let mut target = open(port).await?;
        Ok(copy_bidirectional(&mut data, &mut target).await)
    };
    let message = tokio::select! {
        biased;
        message = end => message,
        copied = copy => match copied {
            Ok(Ok(_)) => return,
            Ok(Err(_)) => return data.reset(),
            Err(message) => message,
        },
    };
    // A client that closed this stream does not want the message.
    let _ = error.write_all(message.as_bytes()).await;
    data.reset();
}
