use http::HeaderName;

use super::*;
use crate::spdy::Handle;

const VERSIONS: [&str; 4] =
    ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

fn pending() -> std::future::Pending<Outcome> {
    std::future::pending()
}

async fn open(handle: &Handle, name: &'static str) -> Stream {
    let name = (HeaderName::from_static("streamtype"), HeaderValue::from_static(name));
    handle.open([name].into_iter().collect()).await.unwrap()
}

/// Runs the connection of a client while `call` uses it.
async fn connected<T>(io: DuplexStream, call: impl AsyncFnOnce(&Handle) -> T) -> T {
    let (connection, handle) = client(io, &Limits::default());
    let connection = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        called = call(&handle) => called,
        () = connection => unreachable!(),
    }
}

async fn read(mut stream: Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn each_version_echoes_until_the_input_is_closed() {
    let input: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
    for name in VERSIONS {
        let set = (ALL, Limits { stream_bytes: 5000, ..Limits::default() });
        let (outcome, (stdout, stderr, result)) =
            session(protocol("SPDY/3.1", name), set, pending(), echo, async |io| {
                connected(io, async |handle| {
                    let result = open(handle, "error").await;
                    let mut stdin = open(handle, "stdin").await;
                    let stdout = open(handle, "stdout").await;
                    let stderr = open(handle, "stderr").await;
                    let send = async {
                        stdin.write_all(&input).await.unwrap();
                        stdin.shutdown().await.unwrap();
                    };
                    let (stdout, stderr, result, ()) =
                        tokio::join!(read(stdout), read(stderr), read(result), send);
                    // The server may have closed the connection already.
                    let _ = handle.close().await;
                    (stdout, stderr, result)
                })
                .await
            })
            .await;
        assert_eq!(outcome.unwrap(), Outcome::ExitCode(3));
        assert!(stdout == input, "{name}: {} bytes", stdout.len());
        assert_eq!(stderr, input.len().to_string().into_bytes());
        assert_eq!(result.starts_with(b"{"), name == VERSIONS[0]);
        assert!(String::from_utf8(result).unwrap().contains("terminated with exit code 3"));
    }
}

#[tokio::test]
async fn terminals_have_a_size_since_v3() {
    for name in VERSIONS {
        let has_size = name.starts_with("v3") || name.starts_with("v4");
        let handler = async |mut session: Session| match session.sizes.next().await {
            Some(size) => Outcome::ExitCode(i32::from(size.width)),
            None => Outcome::Success,
        };
        let set = (TERMINAL, Limits::default());
        let (outcome, _) =
            session(protocol("SPDY/3.1", name), set, pending(), handler, async |io| {
                connected(io, async |handle| {
                    let result = open(handle, "error").await;
                    let (_stdin, _stdout) =
                        (open(handle, "stdin").await, open(handle, "stdout").await);
                    let mut resize = None;
                    if has_size {
                        let stream = resize.insert(open(handle, "resize").await);
                        stream.write_all(b"{\"Width\":80,\"Height\":24}\n").await.unwrap();
                    }
                    let result = read(result).await;
                    // The server may have closed the connection already.
                    let _ = handle.close().await;
                    result
                })
                .await
            })
            .await;
        let expected = if has_size { Outcome::ExitCode(80) } else { Outcome::Success };
        assert_eq!(outcome.unwrap(), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_must_create_its_streams() {
    let set = (ALL, Limits { setup: Duration::from_secs(5), ..Limits::default() });
    let (outcome, ()) =
        session(protocol("SPDY/3.1", VERSIONS[0]), set, pending(), echo, async |io| {
            let _ = timeout(
                Duration::from_secs(10),
                connected(io, async |handle| {
                    let _result = open(handle, "error").await;
                    std::future::pending::<()>().await;
                }),
            )
            .await;
        })
        .await;
    assert!(matches!(outcome, Err(Error::Setup(_))), "{outcome:?}");
}

#[tokio::test]
async fn sessions_are_ended_from_outside() {
    let options = Options { stdout: true, ..Options::default() };
    let set = (options, Limits::default());
    let end = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        stopped()
    };
    let handler = async |mut session: Session| {
        while session.stdout.write_all(&[0; 1000]).await.is_ok() {
            tokio::task::yield_now().await;
        }
        Outcome::Success
    };
    let (outcome, result) =
        session(protocol("SPDY/3.1", VERSIONS[0]), set, end, handler, async |io| {
            connected(io, async |handle| {
                let result = open(handle, "error").await;
                let stdout = open(handle, "stdout").await;
                let (_, result) = tokio::join!(read(stdout), read(result));
                // The server may have closed the connection already.
                let _ = handle.close().await;
                String::from_utf8(result).unwrap()
            })
            .await
        })
        .await;
    assert_eq!(outcome.unwrap(), stopped());
    assert!(result.contains("the server stops"), "{result}");
}

#[tokio::test]
async fn a_lost_connection_breaks_the_input_and_drops_the_handler() {
    let set = (ALL, Limits { close: Duration::from_millis(20), ..Limits::default() });
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let handler = async move |mut session: Session| {
        let error = session.stdin.read_u8().await.unwrap_err();
        sender.send(error.kind()).await.unwrap();
        std::future::pending().await
    };
    let (outcome, ()) =
        session(protocol("SPDY/3.1", VERSIONS[0]), set, pending(), handler, async |io| {
            connected(io, async |handle| {
                for name in ["error", "stdin", "stdout", "stderr"] {
                    std::mem::forget(open(handle, name).await);
                }
            })
            .await;
        })
        .await;
    assert!(matches!(outcome, Err(Error::Disconnected)), "{outcome:?}");
    assert_eq!(receiver.recv().await, Some(std::io::ErrorKind::ConnectionAborted));
    assert_eq!(receiver.recv().await, None);
}
