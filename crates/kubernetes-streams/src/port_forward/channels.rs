//! Port forwarding over a WebSocket: each port has one connection, with a channel for its data and one for its error.

use std::pin::pin;

use futures::StreamExt;
use futures::future::{Shared, join_all, pending};
use futures::stream::SplitStream;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadHalf, WriteHalf, copy, split};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::lifecycle::{finish, overdue, run};
use crate::websocket::{Codec, accept, deliver, pump, receive, send};
use crate::{Error, Limits};

pub(super) async fn serve<Io, End, Open, Opening, Target>(
    io: Io,
    (codec, ports): (Codec, &[u16]),
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
    if ports.len() * 2 > limits.streams {
        return Err(Error::protocol(format!("more than {} channels", limits.streams)));
    }
    let (sink, source) = accept(io, limits).await.split();
    let (messages, queue) = mpsc::channel(1);
    let (is_sent, sent) = oneshot::channel();
    let (mut inputs, mut forwards) = (Vec::new(), Vec::new());
    for (index, &port) in ports.iter().enumerate() {
        let (client, server) = tokio::io::duplex(limits.stream_bytes.max(1));
        let (output, input) = split(client);
        inputs.push(Some(input));
        let channel = u8::try_from(2 * index).map_err(|_| Error::protocol("too many ports"))?;
        let channels = Channels { port, data: channel, error: channel + 1, codec };
        forwards.push(channels.forward((output, server), &messages, end.clone(), &open));
    }
    let receiving = receive_all(source, codec, inputs, messages.downgrade());
    let sending = send(sink, queue, is_sent);
    let mut connection = pin!(async {
        tokio::select! {
            closed = receiving => closed,
            error = sending => Err(error),
        }
    });
    let work = async {
        join_all(forwards).await;
    };
    let overdue = pin!(overdue(end.clone(), limits));
    run(connection.as_mut(), overdue, work, (activity, limits)).await?;
    let last = async {
        drop(messages);
        sent.await.map_err(|_| Error::Disconnected)
    };
    finish(connection.as_mut(), end, last, (activity, limits)).await
}

/// The channels of a port.
struct Channels {
    port: u16,
    data: u8,
    error: u8,
    codec: Codec,
}

impl Channels {
    /// Forwards the connection of a port until the port closes it, because the protocol cannot close a channel.
    async fn forward<Open, Opening, Target>(
        self,
        (output, stream): (ReadHalf<DuplexStream>, DuplexStream),
        messages: &mpsc::Sender<Message>,
        end: impl Future<Output = String>,
        open: &Open,
    ) where
        Open: Fn(u16) -> Opening,
        Opening: Future<Output = Result<Target, String>>,
        Target: AsyncRead + AsyncWrite + Unpin,
    {
        // Both channels begin with the number of the port.
        for channel in [self.data, self.error] {
            let port = self.codec.encode(channel, &self.port.to_le_bytes());
            let _ = messages.send(port).await;
        }
        let finished = CancellationToken::new();
        let forward = async {
            let result = copy_until_closed(stream, open(self.port)).await;
            finished.cancel();
            result
        };
        let pump = pump(output, (self.data, self.codec), messages.clone(), &finished);
        let message = tokio::select! {
            biased;
            message = end => message,
            (result, ()) = futures::future::join(forward, pump) => match result {
                Ok(()) => return,
                Err(message) => message,
            },
        };
        let _ = messages.send(self.codec.encode(self.error, message.as_bytes())).await;
    }
}

/// Copies data in both directions until the target closes its direction.
async fn copy_until_closed<Target: AsyncRead + AsyncWrite + Unpin>(
    stream: DuplexStream,
    opening: impl Future<Output = Result<Target, String>>,
) -> Result<(), String> {
    let (mut target_output, mut target_input) = split(opening.await?);
    let (mut from_client, mut to_client) = split(stream);
    let input = async {
        if copy(&mut from_client, &mut target_input).await.is_ok() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        _ = copy(&mut target_output, &mut to_client) => {}
        () = input => {}
    }
    Ok(())
}

/// Receives messages until the client closes the WebSocket.
async fn receive_all<Io: AsyncRead + AsyncWrite + Unpin>(
    mut source: SplitStream<WebSocketStream<Io>>,
    codec: Codec,
    mut inputs: Vec<Option<WriteHalf<DuplexStream>>>,
    messages: mpsc::WeakSender<Message>,
) -> Result<(), Error> {
    while let Some((channel, data)) = receive(&mut source, codec).await? {
        let input = inputs.get_mut(usize::from(channel / 2)).filter(|_| channel % 2 == 0);
        if let Some(input) = input {
            deliver(input, &data, &messages).await;
        }
    }
    Ok(())
}
