//! Port forwarding.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use anyhow::{Context, Result, anyhow, ensure};
use test_cluster::echo;

use crate::world::{FAILED, Test, World};

pub const TESTS: &[(&str, Test)] = &[
    ("each_dialer_forwards_many_connections", each_dialer_forwards_many_connections),
    ("connections_that_are_not_read_are_closed", connections_that_are_not_read_are_closed),
];

/// Tests that kubelet does not always pass: it may reset a stream before the client knows that the stream was accepted,
/// and the message is lost.
pub const OURS: &[(&str, Test)] =
    &[("a_refused_connection_is_reported", a_refused_connection_is_reported)];

const DIALERS: [&str; 3] = ["spdy", "tunnel", "fallback"];

/// A server that echoes its connections. It stops with the process.
fn echo_server() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut input = connection.try_clone()?;
                std::io::copy(&mut input, &mut &connection)?;
                connection.shutdown(Shutdown::Write)
            });
        }
    });
    Ok(port)
}

fn each_dialer_forwards_many_connections(world: &World) -> Result<()> {
    let port = echo_server()?;
    let data: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    for dialer in DIALERS {
        let (program, address) = world.forward(dialer, port)?;
        for _ in 0..300 {
            echo(address, b"a short message").context(dialer)?;
        }
        std::thread::scope(|scope| {
            let echoes: Vec<_> = (0..10).map(|_| scope.spawn(|| echo(address, &data))).collect();
            echoes
                .into_iter()
                .try_for_each(|echo| echo.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
        .context(dialer)?;
        let (code, stderr) = program.end()?;
        ensure!(code == 0 && stderr.is_empty(), "{dialer}: {code} {stderr}");
    }
    Ok(())
}

/// A client that closes a connection early must not end the others.
fn connections_that_are_not_read_are_closed(world: &World) -> Result<()> {
    let port = echo_server()?;
    for dialer in DIALERS {
        let (program, address) = world.forward(dialer, port)?;
        for _ in 0..20 {
            let mut connection = TcpStream::connect(address)?;
            connection.write_all(&[1; 100_000])?;
            drop(connection);
        }
        echo(address, b"still here").context(dialer)?;
        let (code, stderr) = program.end()?;
        ensure!(code == 0, "{dialer}: {code} {stderr}");
    }
    Ok(())
}

fn a_refused_connection_is_reported(world: &World) -> Result<()> {
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    for dialer in DIALERS {
        let (program, address) = world.forward(dialer, free)?;
        let mut received = Vec::new();
        TcpStream::connect(address)?.read_to_end(&mut received)?;
        // client-go stops forwarding after an error.
        let (code, stderr) = program.ended()?;
        let is_reported = stderr.contains("onnection refused");
        ensure!(code == FAILED && is_reported, "{dialer}: {code} {stderr}");
    }
    Ok(())
}
