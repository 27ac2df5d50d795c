//! Sessions in each protocol version, over a connection in memory.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::spdy::{Stream, client};

#[path = "tests/spdy.rs"]
mod over_spdy;
#[path = "tests/websocket.rs"]
mod over_websocket;

const PATIENCE: Duration = Duration::from_secs(30);
const ALL: Options = Options { stdin: true, stdout: true, stderr: true, tty: false };
const TERMINAL: Options = Options { stdin: true, stdout: true, stderr: false, tty: true };

fn protocol(upgrade: &'static str, name: &'static str) -> Protocol {
    let headers: HeaderMap = [
        ("connection", "Upgrade"),
        ("upgrade", upgrade),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", name),
        ("x-stream-protocol-version", name),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    .collect();
    negotiate(&headers).unwrap().protocol
}

/// Echoes the input, reports the number of bytes as error output, and ends with an exit code.
async fn echo(mut session: Session) -> Outcome {
    let mut buffer = vec![0; 10_000];
    let mut total = 0;
    loop {
        match session.stdin.read(&mut buffer).await {
            Ok(0) => break,
            Ok(count) => {
                total += count;
                if session.stdout.write_all(&buffer[..count]).await.is_err() {
                    return Outcome::Failed("the output is closed".to_owned());
                }
            }
            Err(error) => return Outcome::Failed(error.to_string()),
        }
    }
    let _ = session.stderr.write_all(total.to_string().as_bytes()).await;
    Outcome::ExitCode(3)
}

/// Serves one end of a connection, and calls the other.
async fn session<T, End, Work>(
    protocol: Protocol,
    (options, limits): (Options, Limits),
    end: End,
    handler: impl FnOnce(Session) -> Work,
    call: impl AsyncFnOnce(DuplexStream) -> T,
) -> (Result<Outcome, Error>, T)
where
    End: Future<Output = Outcome>,
    Work: Future<Output = Outcome>,
{
    let (near, far) = duplex(10_000);
    let served = serve(far, protocol, options, &limits, end, handler);
    timeout(PATIENCE, async { tokio::join!(served, call(near)) }).await.unwrap()
}

fn stopped() -> Outcome {
    let (reason, message) = ("ServiceUnavailable".to_owned(), "the server stops".to_owned());
    Outcome::Error { code: 503, reason, message }
}
