use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::*;

type Client = WebSocketStream<DuplexStream>;

const V5: &str = "v5.channel.k8s.io";
const BINARY: [&str; 4] = [V5, "v4.channel.k8s.io", "channel.k8s.io", ""];
const BASE64: [&str; 2] = ["v4.base64.channel.k8s.io", "base64.channel.k8s.io"];

/// Everything that a client received.
#[derive(Debug, Default, PartialEq)]
struct Received {
    first: Option<u8>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    result: Vec<u8>,
    close: Option<u16>,
}

impl Received {
    fn message(&self) -> String {
        match serde_json::from_slice::<Value>(&self.result) {
            Ok(status) => status["message"].as_str().unwrap_or_default().to_owned(),
            Err(_) => String::from_utf8(self.result.clone()).unwrap(),
        }
    }
}

async fn connect(io: DuplexStream) -> Client {
    WebSocketStream::from_raw_socket(io, Role::Client, None).await
}

fn message(protocol: &str, channel: u8, data: &[u8]) -> Message {
    if protocol.contains("base64") {
        return Message::text(format!("{channel}{}", STANDARD.encode(data)));
    }
    Message::binary([&[channel], data].concat())
}

async fn receive_all(client: &mut Client) -> Received {
    let mut received = Received::default();
    while let Some(Ok(message)) = client.next().await {
        let (channel, data) = match message {
            Message::Binary(bytes) => (bytes[0], bytes[1..].to_vec()),
            Message::Text(text) => {
                (text.as_bytes()[0] - b'0', STANDARD.decode(&text[1..]).unwrap())
            }
            Message::Close(frame) => {
                received.close = frame.map(|frame| frame.code.into());
                continue;
            }
            _ => continue,
        };
        received.first.get_or_insert(channel);
        match channel {
            1 => received.stdout.extend(data),
            2 => received.stderr.extend(data),
            3 => received.result.extend(data),
            other => panic!("channel {other}"),
        }
    }
    received
}

fn pending() -> std::future::Pending<Outcome> {
    std::future::pending()
}

#[tokio::test]
async fn v5_echoes_until_the_input_is_closed() {
    let input: Vec<u8> = (0..10 << 20).map(|i: u32| (i % 251) as u8).collect();
    let limits = Limits { stream_bytes: 5000, ..Limits::default() };
    let (outcome, received) =
        session(protocol("websocket", V5), (ALL, limits), pending(), echo, async |io| {
            let (mut sink, source) = connect(io).await.split();
            let send = async {
                for part in input.chunks(32 << 10) {
                    sink.send(message(V5, 0, part)).await.unwrap();
                }
                sink.send(Message::binary(vec![255, 0])).await.unwrap();
                std::future::pending::<()>().await;
            };
            let receive = async {
                let mut source = source;
                let mut received = Received::default();
                while let Some(Ok(message)) = source.next().await {
                    match message {
                        Message::Binary(bytes) if bytes[0] == 1 => {
                            received.stdout.extend(&bytes[1..]);
                        }
                        Message::Binary(bytes) if bytes[0] == 2 => {
                            received.stderr.extend(&bytes[1..]);
                        }
                        Message::Binary(bytes) => received.result.extend(&bytes[1..]),
                        _ => break,
                    }
                }
                received
            };
            tokio::select! { () = send => unreachable!(), received = receive => received }
        })
        .await;
    assert_eq!(outcome.unwrap(), Outcome::ExitCode(3));
    assert!(received.stdout == input, "{} bytes", received.stdout.len());
    assert_eq!(received.stderr, (10 << 20).to_string().into_bytes());
    let status: Value = serde_json::from_slice(&received.result).unwrap();
    assert_eq!(status["details"]["causes"][0]["message"], "3");
}

#[tokio::test]
async fn each_version_gets_its_result_and_an_orderly_close() {
    for name in BINARY.into_iter().chain(BASE64) {
        let handler = async |mut session: Session| {
            let mut line = [0; 6];
            session.stdin.read_exact(&mut line).await.unwrap();
            session.stdout.write_all(&line).await.unwrap();
            session.stderr.write_all(b"warning").await.unwrap();
            Outcome::ExitCode(3)
        };
        let set = (ALL, Limits::default());
        let (outcome, received) =
            session(protocol("websocket", name), set, pending(), handler, async |io| {
                let mut client = connect(io).await;
                client.send(message(name, 0, b"llama\n")).await.unwrap();
                receive_all(&mut client).await
            })
            .await;
        assert_eq!(outcome.unwrap(), Outcome::ExitCode(3));
        assert_eq!(received.stdout, b"llama\n", "{name}");
        assert_eq!(received.stderr, b"warning", "{name}");
        assert_eq!((received.first, received.close), (Some(1), Some(1000)), "{name}");
        let expected =
            "command terminated with non-zero exit code: command terminated with exit code 3";
        assert_eq!(received.message(), expected, "{name}");
        assert_eq!(received.result.starts_with(b"{"), name.contains("v4") || name.contains("v5"));
    }
}

#[tokio::test]
async fn a_command_without_output_reports_success() {
    let options = Options { stdin: true, ..Options::default() };
    for (name, result) in [(V5, &b"{\"metadata\":{},\"status\":\"Success\"}"[..]), ("", b"")] {
        let set = (options, Limits::default());
        let handler = async |_| Outcome::Success;
        let call = async |io| receive_all(&mut connect(io).await).await;
        let protocol = protocol("websocket", name);
        let (_, received) = session(protocol, set, pending(), handler, call).await;
        assert_eq!((received.first, received.result), (Some(3), result.to_vec()));
    }
}

#[tokio::test]
async fn sizes_before_the_start_are_known() {
    let handler = async |mut session: Session| {
        let size = session.sizes.next().await.unwrap();
        Outcome::Failed(format!("{}x{}", size.width, size.height))
    };
    let set = (TERMINAL, Limits::default());
    let (_, received) = session(protocol("websocket", V5), set, pending(), handler, async |io| {
        let mut client = connect(io).await;
        client.send(message(V5, 4, b"{\"Width\":80,\"Height\":24}\n")).await.unwrap();
        receive_all(&mut client).await
    })
    .await;
    assert_eq!(received.message(), "Internal error occurred: 80x24");
}

#[tokio::test]
async fn sessions_are_ended_from_outside() {
    for name in BINARY {
        let set = (ALL, Limits::default());
        let end = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            stopped()
        };
        let handler = |_| std::future::pending();
        let call = async |io| receive_all(&mut connect(io).await).await;
        let (outcome, received) =
            session(protocol("websocket", name), set, end, handler, call).await;
        assert_eq!(outcome.unwrap(), stopped());
        assert_eq!(received.message(), "the server stops");
        assert_eq!(received.close, Some(1000));
    }
}

#[tokio::test]
async fn a_closed_socket_ends_the_input_and_a_lost_one_breaks_it() {
    for is_orderly in [true, false] {
        let (sender, mut read) = tokio::sync::mpsc::channel(1);
        let handler = async move |mut session: Session| {
            let mut input = Vec::new();
            let result = session.stdin.read_to_end(&mut input).await;
            sender.send((input, result.is_ok())).await.unwrap();
            Outcome::Success
        };
        let set = (ALL, Limits::default());
        let (outcome, ()) =
            session(protocol("websocket", ""), set, pending(), handler, async |io| {
                let mut client = connect(io).await;
                client.send(message("", 0, b"all of it")).await.unwrap();
                if is_orderly {
                    client.close(None).await.unwrap();
                    while client.next().await.is_some() {}
                }
            })
            .await;
        assert!(outcome.is_err(), "{outcome:?}");
        assert_eq!(read.recv().await.unwrap(), (b"all of it".to_vec(), is_orderly));
    }
}

#[tokio::test]
async fn a_client_that_closes_the_socket_while_it_receives_is_disconnected() {
    let handler = async |mut session: Session| {
        while session.stdout.write_all(&[0; 1000]).await.is_ok() {}
        Outcome::Success
    };
    let set = (ALL, Limits::default());
    let (outcome, ()) = session(protocol("websocket", V5), set, pending(), handler, async |io| {
        let mut client = connect(io).await;
        client.next().await.unwrap().unwrap();
        client.close(None).await.unwrap();
        while client.next().await.is_some() {}
    })
    .await;
    assert!(matches!(outcome, Err(Error::Disconnected)), "{outcome:?}");
}

#[tokio::test]
async fn streams_that_outlive_the_handler_are_closed() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let handler = async move |mut session: Session| {
        session.stdout.write_all(b"first").await.unwrap();
        sender.send(session.stdout).await.unwrap();
        Outcome::Success
    };
    let set = (ALL, Limits::default());
    let (outcome, received) =
        session(protocol("websocket", V5), set, pending(), handler, async |io| {
            receive_all(&mut connect(io).await).await
        })
        .await;
    assert_eq!((outcome.unwrap(), received.stdout), (Outcome::Success, b"first".to_vec()));
    assert!(receiver.recv().await.unwrap().write_all(b"late").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn silent_clients_are_disconnected() {
    let set = (ALL, Limits::default());
    let served = async {
        let (near, far) = duplex(100);
        let result = serve(far, protocol("websocket", V5), set.0, &set.1, pending(), echo).await;
        drop(near);
        result
    };
    let result = timeout(Duration::from_secs(5 * 60 * 60), served).await.unwrap();
    assert!(matches!(result, Err(Error::Idle(limit)) if limit == set.1.idle), "{result:?}");
}

/// A client may read the last bytes slowly, but not after the session was ended.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_holds_an_ended_session_for_a_short_time() {
    let (_near, far) = duplex(100);
    let handler = async |mut session: Session| {
        session.stdout.write_all(&[0; 100_000]).await.unwrap();
        Outcome::Success
    };
    let end = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        stopped()
    };
    let limits = Limits::default();
    let served = serve(far, protocol("websocket", V5), ALL, &limits, end, handler);
    let result = timeout(Duration::from_secs(75), served).await.unwrap();
    assert!(matches!(result, Err(Error::Close(_))), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn unread_input_does_not_time_out_clients() {
    let handler = async |session: Session| {
        tokio::time::sleep(Duration::from_secs(40)).await;
        drop(session);
        Outcome::Success
    };
    let limits = Limits { stream_bytes: 10, ..Limits::default() };
    let (near, far) = duplex(100_000);
    let served = serve(far, protocol("websocket", V5), ALL, &limits, pending(), handler);
    let call = async {
        let mut client = connect(near).await;
        client.send(message(V5, 0, &[0; 1000])).await.unwrap();
        let mut pongs = 0;
        while let Some(Ok(message)) = client.next().await {
            pongs += u32::from(message.is_pong());
        }
        pongs
    };
    let (outcome, pongs) = tokio::join!(served, call);
    assert_eq!((outcome.unwrap(), pongs), (Outcome::Success, 2));
}

#[tokio::test]
async fn invalid_messages_end_the_session() {
    let invalid = [
        (V5, Message::binary(vec![255])),
        (V5, Message::binary(vec![255, 9])),
        (V5, Message::binary(vec![0; 2 << 20])),
        ("base64.channel.k8s.io", Message::text("0%%%")),
    ];
    for (name, invalid) in invalid {
        let set = (ALL, Limits { close: Duration::ZERO, ..Limits::default() });
        let (outcome, ()) =
            session(protocol("websocket", name), set, pending(), echo, async |io| {
                let mut client = connect(io).await;
                let _ = client.send(invalid.clone()).await;
                while let Some(Ok(_)) = client.next().await {}
            })
            .await;
        assert!(matches!(outcome, Err(Error::Protocol(_))), "{invalid:.20?}: {outcome:?}");
    }
}

#[tokio::test]
async fn ignored_messages_change_nothing() {
    let set = (Options { stdout: true, ..Options::default() }, Limits::default());
    let (outcome, received) =
        session(protocol("websocket", V5), set, pending(), echo, async |io| {
            let mut client = connect(io).await;
            for ignored in
                [vec![], vec![9, 1], vec![1, 1], vec![0; 100_000], vec![4, b'{'], vec![255, 1]]
            {
                // The session ends at once, because it has no input.
                let _ = client.send(Message::binary(ignored)).await;
            }
            receive_all(&mut client).await
        })
        .await;
    assert_eq!(outcome.unwrap(), Outcome::ExitCode(3));
    assert_eq!(received.close, Some(1000));
}

#[tokio::test]
async fn random_bytes_end_the_session() {
    fastrand::seed(4);
    for _ in 0..500 {
        let set = (ALL, Limits { close: Duration::ZERO, ..Limits::default() });
        session(protocol("websocket", V5), set, pending(), echo, async |mut io| {
            let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(200).collect();
            let _ = io.write_all(&bytes).await;
        })
        .await
        .0
        .unwrap_err();
    }
}
