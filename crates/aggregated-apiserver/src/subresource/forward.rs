//! Forwarding of requests to another server.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{
    CONNECTION, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::{Ended, Error};

/// The size of each of the two buffers of an upgraded connection, in bytes.
const BUFFER: usize = 16 << 10;

/// The size of the buffer of the connection to the other server, in bytes.
const READ_BUFFER: usize = 64 << 10;
/// The time for the farewell of the other server after the end of a request.
const FAREWELL: Duration = Duration::from_secs(5);
/// The protocols that are forwarded. With another one, such as HTTP/2, a client could send further requests.
const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];

/// The headers that belong to one connection, and are not forwarded.
const OF_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Forwards a request over a connection to another server with HTTP/1.1, and returns the response. Bodies are forwarded
/// while they arrive. If the other server upgrades its connection, the bytes of both connections are forwarded, too:
/// WebSockets and SPDY.
///
/// The target of the request is sent as it is: set its URI to the path and the query on the other server, the header
/// `Host`, and the credentials. A handler of a [proxy](super::Subresource::proxy) gets the path as
/// [`SubPath`](super::SubPath).
///
/// ```
/// use aggregated_apiserver::subresource::{Error, SubPath, Subresource, forward};
/// use axum::extract::Request;
/// use axum::response::Response;
/// use tokio::net::TcpStream;
///
/// async fn proxy(SubPath(path): SubPath, mut request: Request) -> Result<Response, Error> {
///     let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
///     *request.uri_mut() = format!("/{path}{query}").parse().map_err(Error::internal)?;
///     let connection = TcpStream::connect("10.0.0.1:80").await.map_err(Error::unavailable)?;
///     forward(request, connection).await
/// }
///
/// let proxy = Subresource::new("proxy").proxy(proxy);
/// ```
///
/// # Errors
/// 503 if the other server closes the connection. The reason is logged, and clients do not get it. The time until the
/// response is limited by the idle timeout of the subresource alone.
pub async fn forward<Io>(mut request: Request, connection: Io) -> Result<Response, Error>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = request.extensions_mut().remove::<OnUpgrade>();
    let ended = request.extensions().get::<Ended>().cloned().unwrap_or_default();
    let upgrade = request.headers().get(UPGRADE).cloned().filter(|_| client.is_some());
    let is_known = |protocol: &&str, value: &HeaderValue| {
        value.to_str().is_ok_and(|value| value.eq_ignore_ascii_case(protocol))
    };
    let upgrade =
        upgrade.filter(|value| PROTOCOLS.iter().any(|protocol| is_known(protocol, value)));
    remove_of_connection(request.headers_mut());
    request.headers_mut().remove(EXPECT);
    if let Some(protocol) = upgrade {
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol);
    }
    *request.version_mut() = Version::HTTP_11;
    if !request.headers().contains_key(HOST) {
        request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    }
    let http = http1::Builder::new().max_buf_size(READ_BUFFER).handshake(TokioIo::new(connection));
    let (mut sender, http) = http.await.map_err(Error::unavailable)?;
    // The task ends with the request, also if the other server does not read.
    let connection = AbortOnDropHandle::new(tokio::spawn(http.with_upgrades()));
    let mut response = sender.send_request(request).await.map_err(Error::unavailable)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        remove_of_connection(response.headers_mut());
        return Ok(response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &connection;
                frame
            }))
        }));
    }
    let Some(client) = client else {
        let why = "the other server upgrades a connection that the client has not asked to upgrade";
        return Err(Error::unavailable(why));
    };
    let server = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let _connection = connection;
        let (Ok(client), Ok(server)) = futures::join!(client, server) else { return };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        let copied = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER);
        let ended = async {
            ended.wait().await;
            sleep(FAREWELL).await;
        };
        tokio::select! {
            copied = copied => if let Err(error) = copied {
                tracing::debug!(%error, "a forwarded connection has ended");
            },
            () = ended => {}
        }
    });
    Ok(response.map(|_| Body::empty()))
}

/// Removes the headers that belong to one connection. The headers of the client that its `Connection` names are removed
/// before the handler is called, so they cannot be headers of the handler.
fn remove_of_connection(headers: &mut HeaderMap) {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}
