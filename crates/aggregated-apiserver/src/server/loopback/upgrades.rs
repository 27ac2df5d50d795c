//! Requests within the process that upgrade their connections. Each has a connection of its own, through memory.

use std::convert::Infallible;
use std::sync::Weak;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::TokioIo;
use kube::client::Body as KubeBody;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex, split};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::request::{Activity, Close, ConnectionHandle, Handler, Peer, StreamReset, refuse};
use crate::user::User;

/// The number of bytes that wait in each direction.
const BUFFER: usize = 64 << 10;

/// A connection through memory has no socket to close: cancelling its token ends it.
struct NoSocket;

impl Close for NoSocket {
    fn close(&self) {}
}

/// Sends a request over a connection of its own.
pub(super) async fn respond(
    handler: Weak<Handler>,
    user: User,
    request: Request<KubeBody>,
) -> hyper::Result<Response<Body>> {
    let ((near, of_client), (of_server, far)) = (duplex(BUFFER), duplex(BUFFER));
    let connection = ConnectionHandle {
        ended: CancellationToken::new(),
        activity: Activity::default(),
        stream: Weak::<NoSocket>::new(),
    };
    tokio::spawn(bridge(of_client, of_server, connection.clone()));
    let service = service_fn(move |request: Request<Incoming>| {
        handled(handler.clone(), user.clone(), connection.clone(), request)
    });
    let serving = server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service);
    tokio::spawn(serving.with_upgrades());
    let (mut sender, sending) = client::conn::http1::handshake(TokioIo::new(near)).await?;
    tokio::spawn(sending.with_upgrades());
    Ok(sender.send_request(request).await?.map(Body::new))
}

async fn handled(
    handler: Weak<Handler>,
    user: User,
    connection: ConnectionHandle,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let Some(handler) = handler.upgrade() else {
        return Ok(refuse(&ApiError::internal("the server in this process has ended")));
    };
    let answer = handler.answers().begin(StreamReset::of_connection(connection));
    Ok(handler.handle(&Peer::InProcess(user), &answer, request.map(Body::new)).await)
}

/// Copies the bytes of both directions, until both sides or the server end the connection.
async fn bridge(client: DuplexStream, server: DuplexStream, connection: ConnectionHandle) {
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    let activity = &connection.activity;
    let copies = async {
        tokio::join!(copy(from_client, to_server, activity), copy(from_server, to_client, activity))
    };
    connection.ended.run_until_cancelled(copies).await;
    connection.ended.cancel();
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) {
    let mut buffer = vec![0; BUFFER / 4];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..count) else { break };
        if to.write_all(bytes).await.is_err() {
            break;
        }
        activity.note();
    }
    let _ = to.shutdown().await;
}
