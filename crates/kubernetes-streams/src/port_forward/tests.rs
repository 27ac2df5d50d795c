//! Forwarded connections over each transport, over a connection in memory.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::spdy::{Handle, Stream, client};
use crate::websocket::Codec;

const PATIENCE: Duration = Duration::from_secs(30);

fn streams() -> Protocol {
    protocol("SPDY/3.1", "portforward.k8s.io", "")
}

fn protocol(upgrade: &'static str, name: &'static str, query: &str) -> Protocol {
    let headers: HeaderMap = [
        ("connection", "Upgrade"),
        ("upgrade", upgrade),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", name),
        ("x-stream-protocol-version", name),
    ]
    .into_iter()
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    .collect();
    negotiate(&headers, query).unwrap().protocol
}

/// Connects to a port: 80 echoes one message with a greeting, 81 is refused, 82 never answers.
async fn open(port: u16) -> Result<DuplexStream, String> {
    let (near, mut far) = duplex(1000);
    match port {
        81 => return Err("connection refused".to_owned()),
        82 => return std::future::pending().await,
        _ => {}
    }
    tokio::spawn(async move {
        let mut message = [0; 5];
        far.read_exact(&mut message).await?;
        far.write_all(format!("{port}: ").as_bytes()).await?;
        far.write_all(&message).await
    });
    Ok(near)
}

/// Serves one end of a connection, and calls the other.
async fn forwarded<T>(
    protocol: Protocol,
    end: impl Future<Output = String>,
    call: impl AsyncFnOnce(DuplexStream) -> T,
) -> (Result<(), Error>, T) {
    let (near, far) = duplex(10_000);
    let limits = Limits { setup: Duration::from_secs(2), ..Limits::default() };
    let served = serve(far, &protocol, &limits, end, open);
    timeout(PATIENCE, async { tokio::join!(served, call(near)) }).await.unwrap()
}

/// Serves a client of SPDY.
async fn over_spdy<T>(
    end: impl Future<Output = String>,
    call: impl AsyncFnOnce(&Handle) -> T,
) -> (Result<(), Error>, T) {
    forwarded(streams(), end, async |io| {
        let (connection, handle) = client(io, &Limits::default());
        let connection = async {
            let _ = connection.await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            called = call(&handle) => called,
            () = connection => unreachable!(),
        }
    })
    .await
}

async fn stream(handle: &Handle, headers: &[(&'static str, &str)]) -> std::io::Result<Stream> {
    let header = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    handle.open(headers.iter().map(header).collect()).await
}

async fn pair(handle: &Handle, port: &str, id: &str) -> (Stream, Stream) {
    let headers = |kind| [("streamtype", kind), ("port", port), ("requestid", id)];
    let error = stream(handle, &headers("error")).await.unwrap();
    (stream(handle, &headers("data")).await.unwrap(), error)
}

async fn read(stream: &mut Stream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn pairs_of_streams_are_forwarded() {
    let (served, ()) = over_spdy(std::future::pending(), async |handle| {
        for id in ["1", "2"] {
            let (mut data, mut error) = pair(handle, "80", id).await;
            data.write_all(b"hello").await.unwrap();
            assert_eq!(read(&mut data).await, "80: hello");
            data.shutdown().await.unwrap();
            assert_eq!(read(&mut error).await, "");
        }
    })
    .await;
    served.unwrap();
}

#[tokio::test]
async fn old_clients_send_no_request_id() {
    over_spdy(std::future::pending(), async |handle| {
        let _error = stream(handle, &[("streamtype", "error"), ("port", "80")]).await.unwrap();
        let mut data = stream(handle, &[("streamtype", "data"), ("port", "80")]).await.unwrap();
        data.write_all(b"hello").await.unwrap();
        assert_eq!(read(&mut data).await, "80: hello");
    })
    .await
    .0
    .unwrap();
}

#[tokio::test]
async fn errors_are_sent_on_the_stream_for_errors() {
    over_spdy(std::future::pending(), async |handle| {
        let (mut data, mut error) = pair(handle, "81", "1").await;
        assert_eq!(read(&mut error).await, "connection refused");
        let reset = data.read_u8().await.unwrap_err();
        assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    })
    .await
    .0
    .unwrap();
}

#[tokio::test]
async fn streams_with_invalid_headers_are_refused() {
    over_spdy(std::future::pending(), async |handle| {
        let invalid: [&[_]; 5] = [
            &[],
            &[("streamtype", "data")],
            &[("streamtype", "data"), ("port", "0"), ("requestid", "1")],
            &[("streamtype", "data"), ("port", "http"), ("requestid", "1")],
            &[("streamtype", "stdin"), ("port", "80"), ("requestid", "1")],
        ];
        for headers in invalid {
            assert!(stream(handle, headers).await.is_err(), "{headers:?}");
        }
        let valid = [("streamtype", "data"), ("port", "80"), ("requestid", "1")];
        let _first = stream(handle, &valid).await.unwrap();
        assert!(stream(handle, &valid).await.is_err(), "a second stream of the same type");
    })
    .await
    .0
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_its_pair_is_closed() {
    over_spdy(std::future::pending(), async |handle| {
        let headers = [("streamtype", "error"), ("port", "80"), ("requestid", "1")];
        let mut error = stream(handle, &headers).await.unwrap();
        assert_eq!(read(&mut error).await, "timed out waiting for streams");
        let headers = [("streamtype", "data"), ("port", "80"), ("requestid", "2")];
        let mut data = stream(handle, &headers).await.unwrap();
        assert_eq!(read(&mut data).await, "");
    })
    .await
    .0
    .unwrap();
}

#[tokio::test]
async fn connections_are_ended_from_outside() {
    let end = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        "the server stops".to_owned()
    };
    let (served, ()) = over_spdy(end, async |handle| {
        let (_idle, mut first) = pair(handle, "80", "1").await;
        let (_opening, mut second) = pair(handle, "82", "2").await;
        assert_eq!(read(&mut first).await, "the server stops");
        assert_eq!(read(&mut second).await, "the server stops");
        assert!(handle.accept().await.is_none());
    })
    .await;
    served.unwrap();
}

/// A client that reads nothing cannot delay the end.
#[tokio::test(start_paused = true)]
async fn unread_connections_are_ended_from_outside() {
    let end = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        "the server stops".to_owned()
    };
    let connect = async |_| {
        let (near, mut far) = duplex(1000);
        tokio::spawn(async move { while far.write_all(&[0; 1000]).await.is_ok() {} });
        Ok::<_, String>(near)
    };
    let (near, far) = duplex(1000);
    let (protocol, limits) = (streams(), Limits::default());
    let served = serve(far, &protocol, &limits, end, connect);
    let (connection, handle) = client(near, &limits);
    // The client fills its stream, and then reads nothing.
    let call = async {
        let _unread = pair(&handle, "80", "1").await;
        std::future::pending::<()>().await;
    };
    let work = async {
        tokio::select! {
            result = served => result,
            () = call => unreachable!(),
            _ = connection => unreachable!(),
        }
    };
    let result = timeout(Duration::from_secs(90), work).await.unwrap();
    assert!(matches!(result, Err(Error::Close(_))), "{result:?}");
}

#[tokio::test]
async fn spdy_is_tunnelled_through_a_websocket() {
    let tunnel = protocol("websocket", "SPDY/3.1+portforward.k8s.io", "");
    let (served, closed) = forwarded(tunnel, std::future::pending(), async |io| {
        let socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
        let (mut sink, mut source) = socket.split();
        let (near, far) = duplex(1000);
        let (connection, handle) = client(near, &Limits::default());
        let (mut from_spdy, mut to_spdy) = tokio::io::split(far);
        let send = async {
            let mut part = [0; 100];
            while let Ok(count @ 1..) = from_spdy.read(&mut part).await {
                sink.send(Message::binary(part[..count].to_vec())).await.unwrap();
            }
            sink.close().await.unwrap();
        };
        let receive = async {
            while let Some(Ok(message)) = source.next().await {
                match message {
                    Message::Binary(data) => to_spdy.write_all(&data).await.unwrap(),
                    message => return message.is_close(),
                }
            }
            false
        };
        let call = async {
            let (mut data, _error) = pair(&handle, "80", "1").await;
            data.write_all(b"hello").await.unwrap();
            assert_eq!(read(&mut data).await, "80: hello");
            handle.close().await.unwrap();
        };
        let work = async { tokio::join!(call, send, receive).2 };
        tokio::select! {
            closed = work => closed,
            _ = async { let _ = connection.await; std::future::pending::<()>().await } => false,
        }
    })
    .await;
    served.unwrap();
    assert!(closed);
}

#[tokio::test]
async fn ports_of_the_query_have_channels() {
    for (name, codec) in
        [("v4.channel.k8s.io", Codec::Binary), ("v4.base64.channel.k8s.io", Codec::Base64)]
    {
        let channels = protocol("websocket", name, "port=80&port=81,83");
        let (served, received) = forwarded(channels, std::future::pending(), async |io| {
            let mut socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
            socket.send(codec.encode(0, b"hello")).await.unwrap();
            socket.send(codec.encode(4, b"other")).await.unwrap();
            socket.send(codec.encode(9, b"ignored")).await.unwrap();
            let mut received = vec![Vec::new(); 6];
            let mut is_closed = false;
            while let Some(Ok(message)) = socket.next().await {
                is_closed |= message.is_close();
                if message.is_close() {
                    continue;
                }
                let (channel, data) = codec.decode(message.into_data()).unwrap().unwrap();
                received[usize::from(channel)].extend_from_slice(&data);
            }
            assert!(is_closed);
            received
        })
        .await;
        served.unwrap();
        let expected: [&[u8]; 6] = [
            b"P\x0080: hello",
            b"P\0",
            b"Q\0",
            b"Q\0connection refused",
            b"S\x0083: other",
            b"S\0",
        ];
        assert_eq!(received, expected);
    }
}

#[tokio::test]
async fn random_bytes_end_the_connection() {
    fastrand::seed(5);
    let names = [
        ("SPDY/3.1", "portforward.k8s.io"),
        ("websocket", "SPDY/3.1+portforward.k8s.io"),
        ("websocket", "v4.channel.k8s.io"),
    ];
    for (upgrade, name) in names {
        for _ in 0..200 {
            let protocol = protocol(upgrade, name, "port=80");
            let limits = Limits { close: Duration::ZERO, ..Limits::default() };
            let (mut near, far) = duplex(10_000);
            let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(200).collect();
            near.write_all(&bytes).await.unwrap();
            drop(near);
            let served = serve(far, &protocol, &limits, std::future::pending(), open);
            let _ = timeout(PATIENCE, served).await.unwrap();
        }
    }
}

/// Everything that a connection uses is dropped with the future.
#[tokio::test]
async fn dropping_the_future_closes_the_connections() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<DuplexStream>(1);
    let connect = async |_| {
        let (near, far) = duplex(10);
        sender.send(far).await.unwrap();
        Ok::<_, String>(near)
    };
    let (near, far) = duplex(10_000);
    let (protocol, limits) = (streams(), Limits::default());
    let served = serve(far, &protocol, &limits, std::future::pending(), connect);
    let (connection, handle) = client(near, &limits);
    let call = async {
        let _pair = pair(&handle, "80", "1").await;
        receiver.recv().await.unwrap()
    };
    let mut target = tokio::select! {
        target = call => target,
        _ = served => panic!("the connection ended"),
        _ = connection => panic!("the connection ended"),
    };
    assert_eq!(target.read(&mut [0]).await.unwrap(), 0);
}
