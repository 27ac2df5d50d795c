//! Forwarding of requests to another server.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{CONNECTION, EXPECT, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};

use super::Error;

/// The size of each of the two buffers of an upgraded connection, in bytes.
const BUFFER: usize = 16 << 10;

/// The headers that belong to one connection, and are not forwarded.
const OF_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
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
/// 503 if the other server does not answer. The reason is logged, and clients do not get it.
pub async fn forward<Io>(mut request: Request, connection: Io) -> Result<Response, Error>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = request.extensions_mut().remove::<OnUpgrade>();
    let upgrade = request.headers().get(UPGRADE).cloned().filter(|_| client.is_some());
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
    let handshake = http1::handshake(TokioIo::new(connection)).await;
    let (mut sender, http) = handshake.map_err(Error::unavailable)?;
    // The task ends with the response: hyper closes a connection whose response is dropped.
    tokio::spawn(http.with_upgrades());
    let mut response = sender.send_request(request).await.map_err(Error::unavailable)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        remove_of_connection(response.headers_mut());
        return Ok(response.map(Body::new));
    }
    let Some(client) = client else {
        let why = "the other server upgrades a connection that the client has not asked to upgrade";
        return Err(Error::unavailable(why));
    };
    let server = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let (Ok(client), Ok(server)) = futures::join!(client, server) else { return };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        let copied = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER);
        if let Err(error) = copied.await {
            tracing::debug!(%error, "a forwarded connection has ended");
        }
    });
    Ok(response.map(|_| Body::empty()))
}

/// Removes the headers that belong to one connection: the known ones, and those that `Connection` names.
fn remove_of_connection(headers: &mut HeaderMap) {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(','));
    let named: Vec<HeaderName> = names.filter_map(|name| name.trim().parse().ok()).collect();
    for name in OF_CONNECTION.into_iter().chain(named) {
        headers.remove(name);
    }
}
