//! Requests that cannot be upgraded. The expected responses are those of kubelet.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

use crate::world::{PATIENCE, Test, World};

pub const TESTS: &[(&str, Test)] =
    &[("refused_requests_have_the_same_responses", refused_requests_have_the_same_responses)];

const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The response to a request: the status code, the accepted protocols, and the body.
#[derive(Debug)]
struct Response {
    status: u16,
    accepted: Vec<String>,
    body: String,
}

fn request(world: &World, path: &str, headers: &str) -> Result<Response> {
    let mut connection = TcpStream::connect(world.address())?;
    connection.set_read_timeout(Some(PATIENCE))?;
    write!(connection, "GET {path} HTTP/1.1\r\nHost: pod\r\n{headers}\r\n")?;
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).context(line.clone())?.parse()?;
    let (mut length, mut accepted) = (0, Vec::new());
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse()?,
            "x-accepted-stream-protocol-versions" => accepted.push(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Response { status, accepted, body: String::from_utf8(body)? })
}

fn refused_requests_have_the_same_responses(world: &World) -> Result<()> {
    let unknown = "X-Stream-Protocol-Version: v9.channel.k8s.io\r\n\
        X-Stream-Protocol-Version: v8.channel.k8s.io, v7.channel.k8s.io\r\n";
    let unavailable = "Connection: Upgrade\r\nUpgrade: h2c\r\n";
    let version = "X-Stream-Protocol-Version: ";
    let empty = format!("{SPDY}{version}, ,\r\n{version}\r\n");
    let exec = "/exec?command=cat&stdin=1";
    let cases: [(&str, &str, u16, &str, usize); 10] = [
        ("/exec", SPDY, 400, "you must specify at least 1 of stdin, stdout, stderr", 0),
        (
            exec,
            SPDY,
            400,
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with 2 headers",
            0,
        ),
        (
            exec,
            &empty,
            400,
            "unable to upgrade: header X-Stream-Protocol-Version contains [, , ], but no valid protocols",
            0,
        ),
        (
            exec,
            &format!("{SPDY}{unknown}"),
            403,
            "unable to upgrade: unable to negotiate protocol: client supports [v9.channel.k8s.io v8.channel.k8s.io \
             v7.channel.k8s.io], server accepts [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]",
            4,
        ),
        (
            exec,
            &format!("{unavailable}{version}channel.k8s.io\r\n"),
            400,
            "unable to upgrade: missing upgrade headers in request",
            0,
        ),
        (
            "/portforward",
            &format!("{SPDY}{version}x.k8s.io\r\n"),
            403,
            "unable to upgrade: unable to negotiate protocol: client supports [x.k8s.io], server accepts \
             [portforward.k8s.io]",
            1,
        ),
        (
            "/portforward?port=80,http",
            WEBSOCKET,
            400,
            "unable to parse \"80,http\" as a port: strconv.ParseUint: parsing \"http\": invalid syntax",
            0,
        ),
        (
            "/portforward?port=80&port=65536",
            WEBSOCKET,
            400,
            "unable to parse \"65536\" as a port: strconv.ParseUint: parsing \"65536\": value out of range",
            0,
        ),
        ("/portforward?port=80,0", WEBSOCKET, 400, "port \"80,0\" must be > 0", 0),
        ("/portforward", WEBSOCKET, 400, "query parameter \"port\" is required", 0),
    ];
    for (path, headers, status, message, accepted) in cases {
        let response = request(world, path, headers)?;
        let is_expected = response.status == status && response.accepted.len() == accepted;
        ensure!(
            is_expected && response.body.starts_with(message),
            "{path} {headers}: {response:?}"
        );
    }
    Ok(())
}
