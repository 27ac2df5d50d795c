//! The handlers of the subresources.

use std::time::Duration;

use aggregated_apiserver::subresource::{
    Ended, Error, Outcome, Parameters, PortForward, RemoteCommand, Session, Subresource,
};
use aggregated_apiserver::{Kind, Kinds};
use axum::body::Body;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::device::{Device, Found, Machine, State, connect};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The limit of a message and of a line of a console, and the buffers of a console, in bytes.
const MESSAGE: usize = 16 << 10;

/// The kind with its subresources.
pub fn kinds() -> Kinds {
    let start = Subresource::new("start").put(start).post(start);
    let log = Subresource::new("log").get(log).long_running(DAY).open_ended();
    let upload = Subresource::new("upload").put(upload).long_running(DAY);
    let machine = Kind::stored::<Machine>()
        .subresource(start.returns::<State>())
        .subresource(log.parameters::<LogOptions>().produces("text/plain"))
        .subresource(Subresource::new("console").connect(console))
        .subresource(Subresource::new("exec").connect(exec))
        .subresource(
            Subresource::new("portforward")
                .connect(async |it: PortForward| it.run(async |port| connect(port))),
        )
        .subresource(upload.body_limit(1 << 30).returns::<State>());
    Kinds::new().kind(machine)
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct LogOptions {
    /// Whether further lines are sent.
    follow: bool,
    /// The number of lines; all by default.
    tail_lines: Option<usize>,
}

/// Starts the machine. The response is 200 if the machine was running, and 202 if it starts.
async fn start(Found(device): Found) -> Result<Response, Error> {
    let was_running = std::mem::replace(&mut device.state().running, true);
    if !was_running {
        device.append("started");
    }
    respond(if was_running { StatusCode::OK } else { StatusCode::ACCEPTED }, &device)
}

/// Sends the log.
async fn log(Found(device): Found, Parameters(options): Parameters<LogOptions>) -> Body {
    let (lines, appended) = device.log(options.tail_lines.unwrap_or(usize::MAX));
    let further = stream::unfold(appended, async |mut appended| {
        Some((next_line(&mut appended).await?, appended))
    });
    let further = further.take(if options.follow { usize::MAX } else { 0 });
    Body::from_stream(stream::iter(lines).chain(further).map(Ok::<_, Error>))
}

/// The next line of a log; `None` after the end of the device.
async fn next_line(appended: &mut Receiver<String>) -> Option<String> {
    match appended.recv().await {
        Ok(line) => Some(line),
        Err(RecvError::Lagged(count)) => Some(format!("[{count} lines were skipped]\n")),
        Err(RecvError::Closed) => None,
    }
}

/// Reads an image while it arrives.
async fn upload(Found(device): Found, body: Body) -> Result<Response, Error> {
    let (mut length, mut sha256) = (0, Sha256::new());
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Error::bad_request(error.to_string()))?;
        length += chunk.len() as u64;
        sha256.update(&chunk);
    }
    let mut state = device.state();
    (state.length, state.sha256) = (length, format!("{:x}", sha256.finalize()));
    drop(state);
    device.append(&format!("image of {length} bytes"));
    respond(StatusCode::OK, &device)
}

/// Opens the console: lines of the client are lines of the log, and lines of the log are sent to the client.
async fn console(Found(device): Found, ended: Ended, upgrade: WebSocketUpgrade) -> Response {
    // A connection uses little memory, whatever the client sends or does not read.
    let upgrade = upgrade.max_message_size(MESSAGE).max_frame_size(MESSAGE);
    let upgrade = upgrade.read_buffer_size(MESSAGE).write_buffer_size(0);
    let upgrade = upgrade.max_write_buffer_size(4 * MESSAGE).protocols(["plain.kubevirt.io"]);
    upgrade.on_upgrade(async move |mut socket| {
        let code = tokio::select! {
            code = converse(&device, &mut socket) => code.unwrap_or(close_code::NORMAL),
            () = ended.wait() => close_code::AWAY,
        };
        let close = CloseFrame { code, reason: "".into() };
        let _ = socket.send(Message::Close(Some(close))).await;
    })
}

/// Serves a console until the client closes it, or sends a line that is too long. Returns the close code of an error.
async fn converse(device: &Device, socket: &mut WebSocket) -> Option<u16> {
    let (_, mut appended) = device.log(0);
    let mut typed = Vec::new();
    while typed.len() <= MESSAGE {
        tokio::select! {
            message = socket.recv() => if let Message::Binary(bytes) = message?.ok()? {
                typed.extend_from_slice(&bytes);
            },
            line = next_line(&mut appended) => {
                socket.send(Message::Binary(line?.into())).await.ok()?;
            }
        }
        while let Some(end) = typed.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = typed.drain(..=end).collect();
            device.append(String::from_utf8_lossy(&line).trim_end());
        }
    }
    Some(close_code::SIZE)
}

/// Executes a command.
async fn exec(command: RemoteCommand) -> Response {
    let words = command.command().to_vec();
    command.run(async move |session| {
        shell(&words, session).await.unwrap_or_else(|error| Outcome::Failed(error.to_string()))
    })
}

/// The commands of the machine.
async fn shell(words: &[String], mut session: Session) -> std::io::Result<Outcome> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cat"] => drop(tokio::io::copy(&mut session.stdin, &mut session.stdout).await?),
        ["echo", ref words @ ..] => session.stdout.write_all(words.join(" ").as_bytes()).await?,
        ["exit", code] => return Ok(Outcome::ExitCode(code.parse().unwrap_or(2))),
        // Prints the size of the terminal whenever it changes, this number of times.
        ["size", count] => {
            let mut sizes = session.sizes.take(count.parse().unwrap_or(1));
            while let Some(size) = sizes.next().await {
                let line = format!("{}x{}\n", size.width, size.height);
                session.stdout.write_all(line.as_bytes()).await?;
            }
        }
        _ => return Ok(Outcome::Failed(format!("no such command: {}", words.join(" ")))),
    }
    Ok(Outcome::Success)
}

/// Responds with the state of a device.
fn respond(status: StatusCode, device: &Device) -> Result<Response, Error> {
    let state = serde_json::to_string(&*device.state()).map_err(Error::internal)?;
    Ok((status, [("content-type", "application/json")], state).into_response())
}
