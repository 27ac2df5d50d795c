use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::frame::{CANCEL, Control, Decoder, REFUSED_STREAM, Received, encode_data};
use super::headers::HeaderEncoder;
use super::*;
use crate::Error;

const PATIENCE: Duration = Duration::from_secs(30);

fn named(name: &'static str) -> HeaderMap {
    [(http::HeaderName::from_static("name"), HeaderValue::from_static(name))].into_iter().collect()
}

/// Runs both sides of a connection while `work` runs.
async fn connected<T>(limits: Limits, work: impl AsyncFnOnce(Handle, Handle) -> T) -> T {
    let (near, far) = duplex(10_000);
    let (near, client) = client(near, &limits);
    let (far, server) = server(far, &limits);
    let connection = async {
        let _ = tokio::join!(near, far);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = timeout(PATIENCE, work(client, server)) => done.unwrap(),
        () = connection => unreachable!(),
    }
}

async fn echo(mut stream: Stream) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
}

#[tokio::test]
async fn streams_carry_data_in_both_directions() {
    let limits = Limits { stream_bytes: 1000, ..Limits::default() };
    connected(limits, async |client, server| {
        let serve = async {
            for name in ["first", "second"] {
                let incoming = server.accept().await.unwrap();
                assert_eq!(incoming.headers()["name"], name);
                echo(incoming.accept()).await;
            }
        };
        let call = async {
            for name in ["first", "second"] {
                let sent: Vec<u8> = name.bytes().cycle().take(1 << 20).collect();
                let mut stream = client.open(named(name)).await.unwrap();
                stream.write_all(&sent).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).await.unwrap();
                assert!(received == sent);
            }
        };
        tokio::join!(serve, call);
    })
    .await;
}

#[tokio::test]
async fn streams_above_the_limit_are_refused() {
    let limits = Limits { streams: 2, ..Limits::default() };
    connected(limits, async |client, server| {
        let mut streams = Vec::new();
        let serve = async {
            loop {
                streams.push(server.accept().await.unwrap().accept());
            }
        };
        let call = async {
            let first = client.open(named("first")).await.unwrap();
            let _second = client.open(named("second")).await.unwrap();
            assert!(client.open(named("third")).await.is_err());
            first
        };
        let first = tokio::select! { () = serve => unreachable!(), first = call => first };
        // Both sides close the first stream.
        drop(first);
        drop(streams.remove(0));
        let accept = async { server.accept().await.unwrap().accept() };
        let (opened, _) = tokio::join!(client.open(named("fourth")), accept);
        opened.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_dropped_stream_is_refused() {
    connected(Limits::default(), async |client, server| {
        let refuse = async { drop(server.accept().await.unwrap()) };
        let (opened, ()) = tokio::join!(client.open(named("unwanted")), refuse);
        assert_eq!(opened.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    })
    .await;
}

#[tokio::test]
async fn a_reset_stream_cannot_be_used() {
    connected(Limits::default(), async |client, server| {
        let accept = async { server.accept().await.unwrap().accept() };
        let (opened, mut stream) = tokio::join!(client.open(named("reset")), accept);
        opened.unwrap().reset();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(stream.write_all(b"x").await.is_err());
    })
    .await;
}

#[tokio::test]
async fn an_unread_stream_stops_the_sender() {
    let limits = Limits { stream_bytes: 1000, ..Limits::default() };
    connected(limits, async |client, server| {
        let accept = async { server.accept().await.unwrap().accept() };
        let (opened, mut stream) = tokio::join!(client.open(named("full")), accept);
        let mut opened = opened.unwrap();
        let data = vec![7; 10 << 20];
        let mut sending = std::pin::pin!(async {
            opened.write_all(&data).await.unwrap();
            opened.shutdown().await.unwrap();
        });
        assert!(timeout(Duration::from_millis(100), sending.as_mut()).await.is_err());
        let mut received = Vec::new();
        let (read, ()) = tokio::join!(stream.read_to_end(&mut received), sending);
        assert_eq!(read.unwrap(), 10 << 20);
    })
    .await;
}

#[tokio::test]
async fn closing_ends_streams_after_their_data() {
    connected(Limits::default(), async |client, server| {
        let accept = async { server.accept().await.unwrap().accept() };
        let (opened, mut stream) = tokio::join!(client.open(named("last")), accept);
        stream.write_all(b"last words").await.unwrap();
        server.close().await.unwrap();
        assert!(stream.write_all(b"more").await.is_err());
        let mut received = String::new();
        opened.unwrap().read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "last words");
        assert!(client.open(named("late")).await.is_err());
        assert!(client.accept().await.is_none());
    })
    .await;
}

/// Sends bytes to a server that echoes its streams, and returns what it sent until it ended.
async fn answer(bytes: &[u8], limits: Limits) -> (Vec<Control>, Result<(), Error>) {
    let (mut peer, io) = duplex(1 << 20);
    let (connection, handle) = server(io, &limits);
    let serve = async {
        while let Some(incoming) = handle.accept().await {
            let mut stream = incoming.accept();
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes).await;
        }
        std::future::pending::<()>().await;
    };
    let send = async {
        peer.write_all(bytes).await.unwrap();
        peer.shutdown().await.unwrap();
        received(&mut peer).await
    };
    let run = async {
        tokio::select! {
            result = connection => result,
            () = serve => unreachable!(),
        }
    };
    timeout(PATIENCE, async { tokio::join!(send, run) }).await.unwrap()
}

async fn received(peer: &mut DuplexStream) -> Vec<Control> {
    let (mut bytes, mut decoder) = (bytes::BytesMut::new(), Decoder::new(100_000));
    let mut controls = Vec::new();
    while peer.read_buf(&mut bytes).await.unwrap() > 0 {}
    while let Some(frame) = decoder.decode(&mut bytes).unwrap() {
        match frame {
            Received::Control(control) => controls.push(control),
            Received::Data { length, .. } => drop(bytes.split_to(length)),
        }
    }
    controls
}

fn frames(controls: &[Control]) -> bytes::BytesMut {
    let (mut encoder, mut bytes) = (HeaderEncoder::default(), bytes::BytesMut::new());
    controls.iter().for_each(|control| control.encode(&mut encoder, &mut bytes));
    bytes
}

fn opened(id: u32) -> Control {
    Control::SynStream { id, fin: false, unidirectional: false, headers: named("raw") }
}

#[tokio::test]
async fn pings_of_the_client_are_answered() {
    let sent = frames(&[Control::Ping(1), Control::Ping(2), Control::Ping(3), Control::Ignored]);
    let (received, result) = answer(&sent, Limits::default()).await;
    assert_eq!(received, [Control::Ping(1), Control::Ping(3)]);
    result.unwrap();
}

#[tokio::test]
async fn stream_numbers_must_be_odd_and_grow() {
    for ids in [&[2][..], &[3, 1], &[1, 1]] {
        let sent: Vec<Control> = ids.iter().map(|&id| opened(id)).collect();
        let (received, result) = answer(&frames(&sent), Limits::default()).await;
        assert!(matches!(result, Err(Error::Protocol(_))), "{result:?}");
        assert!(matches!(received.last(), Some(Control::GoAway { status: 1, .. })));
    }
}

#[tokio::test]
async fn data_of_unknown_streams_is_discarded() {
    let mut sent = frames(&[opened(1), Control::RstStream { id: 1, status: CANCEL }]);
    encode_data(1, true, &[0; 100_000], &mut sent);
    encode_data(77, false, &[0; 100_000], &mut sent);
    sent.extend_from_slice(&frames(&[Control::Ping(9)]));
    let (received, result) = answer(&sent, Limits::default()).await;
    assert_eq!(received.last(), Some(&Control::Ping(9)));
    result.unwrap();
}

#[tokio::test]
async fn refused_streams_do_not_break_the_compression() {
    let sent: Vec<Control> = [1, 3, 5, 7].map(opened).into();
    let limits = Limits { streams: 1, ..Limits::default() };
    let (received, result) = answer(&frames(&sent), limits).await;
    result.unwrap();
    let refused = |id| Control::RstStream { id, status: REFUSED_STREAM };
    for id in [3, 5, 7] {
        assert!(received.contains(&refused(id)), "{received:?}");
    }
}

/// Sends frames without reading the responses, until the server stops reading. Returns the number of sent bytes.
async fn flood(mut next: impl FnMut(u32) -> bytes::BytesMut) -> usize {
    let (mut peer, io) = duplex(1000);
    let (connection, handle) = server(io, &Limits::default());
    let mut written = 0;
    let flood = async {
        for round in 0.. {
            let frames = next(round);
            peer.write_all(&frames).await.unwrap();
            written += frames.len();
            assert!(written < 10 << 20, "the flood is not stopped");
        }
    };
    let accept = async {
        while let Some(incoming) = handle.accept().await.map(Incoming::accept) {
            drop(incoming);
        }
    };
    tokio::select! {
        flooded = timeout(Duration::from_millis(300), flood) => assert!(flooded.is_err()),
        ended = connection => panic!("the connection ended: {ended:?}"),
        () = accept => unreachable!(),
    }
    written
}

#[tokio::test]
async fn unread_responses_to_pings_stop_the_connection() {
    let written = flood(|_| frames(&[Control::Ping(1)])).await;
    assert!(written < 300_000, "{written} bytes");
}

#[tokio::test]
async fn unread_responses_to_streams_stop_the_connection() {
    let mut encoder = HeaderEncoder::default();
    let written = flood(|round| {
        let (id, mut bytes) = (2 * round + 1, bytes::BytesMut::new());
        for control in [opened(id), Control::RstStream { id, status: CANCEL }] {
            control.encode(&mut encoder, &mut bytes);
        }
        bytes
    })
    .await;
    assert!(written < 1 << 20, "{written} bytes");
}

#[tokio::test]
async fn random_and_mutated_bytes_end_the_connection() {
    fastrand::seed(3);
    let mut valid = frames(&[opened(1), opened(3), Control::Ping(1)]);
    encode_data(1, false, b"some data", &mut valid);
    encode_data(3, true, b"other data", &mut valid);
    valid.extend_from_slice(&frames(&[Control::GoAway { last: 0, status: 0 }]));
    for round in 0..3000 {
        let mut sent = valid.to_vec();
        if round % 3 == 0 {
            sent = std::iter::repeat_with(|| fastrand::u8(..)).take(200).collect();
        }
        for _ in 0..fastrand::usize(1..5) {
            let at = fastrand::usize(..sent.len());
            sent[at] = fastrand::u8(..);
        }
        let limits = Limits { streams: 4, stream_bytes: 100, ..Limits::default() };
        let _ = answer(&sent, limits).await;
    }
}
