//! A small HTTP server with a "Pod": a few commands, and the ports of this machine.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;

use futures::StreamExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kubernetes_streams::remote_command::{self, Options, Outcome, Session};
use kubernetes_streams::{Limits, Refused, port_forward};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Accepts connections until it is dropped.
pub async fn run(listener: TcpListener) -> std::io::Result<()> {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (connection, _) = listener.accept().await?;
        // Small frames are sent at once.
        connection.set_nodelay(true)?;
        connections.spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            let service = service_fn(|request| ready(Ok::<_, Infallible>(route(request))));
            let io = TokioIo::new(connection);
            let _ = builder.serve_connection_with_upgrades(io, service).await;
        });
    }
}

/// Listens on a free port.
pub async fn listen() -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn route(request: Request<Incoming>) -> Response<String> {
    let upgraded = match request.uri().path() {
        "/exec" => exec(request),
        "/portforward" => forward(request),
        _ => {
            let mut response = Response::new("not found\n".to_owned());
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            return response;
        }
    };
    match upgraded {
        Ok(response) => response.map(|()| String::new()),
        Err(refused) => refused.into_response(),
    }
}

fn exec(mut request: Request<Incoming>) -> Result<Response<()>, Refused> {
    let query = request.uri().query().unwrap_or_default();
    let options = Options::from_query(query)?;
    let command: Vec<String> = form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| name == "command")
        .map(|(_, value)| value.into_owned())
        .collect();
    let upgrade = remote_command::negotiate(request.headers())?;
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(io) = upgraded.await else { return };
        let (limits, end) = (Limits::default(), std::future::pending());
        let handler = |session| execute(command, session);
        let io = TokioIo::new(io);
        let result =
            remote_command::serve(io, upgrade.protocol, options, &limits, end, handler).await;
        eprintln!("exec over {:?}: {result:?}", upgrade.protocol.name());
    });
    Ok(upgrade.response)
}

/// The commands of the Pod.
async fn execute(command: Vec<String>, mut session: Session) -> Outcome {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let written = match command[..] {
        ["cat"] => tokio::io::copy(&mut session.stdin, &mut session.stdout).await.map(drop),
        ["echo", text] => session.stdout.write_all(text.as_bytes()).await,
        ["warn", text] => session.stderr.write_all(text.as_bytes()).await,
        ["size"] => {
            let size = session.sizes.next().await.unwrap_or_default();
            let text = format!("{}x{}", size.width, size.height);
            session.stdout.write_all(text.as_bytes()).await
        }
        ["exit", code] => match code.parse() {
            Ok(code) => return Outcome::ExitCode(code),
            Err(_) => Err(std::io::Error::other("not a number")),
        },
        _ => return Outcome::Failed(format!("no such command: {}", command.join(" "))),
    };
    match written {
        Ok(()) => Outcome::Success,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn forward(mut request: Request<Incoming>) -> Result<Response<()>, Refused> {
    let query = request.uri().query().unwrap_or_default();
    let upgrade = port_forward::negotiate(request.headers(), query)?;
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(io) = upgraded.await else { return };
        let (limits, end) = (Limits::default(), std::future::pending());
        let open = async |port| {
            let opened = connect(port).await;
            opened.map_err(|error| format!("cannot connect to port {port}: {error}"))
        };
        let io = TokioIo::new(io);
        let result = port_forward::serve(io, &upgrade.protocol, &limits, end, open).await;
        eprintln!("port forwarding over {:?}: {result:?}", upgrade.protocol.name());
    });
    Ok(upgrade.response)
}

async fn connect(port: u16) -> std::io::Result<TcpStream> {
    let connection = TcpStream::connect(("127.0.0.1", port)).await?;
    connection.set_nodelay(true)?;
    Ok(connection)
}
