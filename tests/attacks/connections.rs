//! Attacks with connections: many, slow, and unfinished.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use crate::Held;
use crate::wire::{PREFACE, Wire, many};
use crate::world::{Who, World, llamas};

/// The pause between the pieces of a slow transfer.
const SLOWLY: Duration = Duration::from_millis(200);

/// The duration of an attack that repeats without end.
pub fn long() -> Duration {
    Duration::from_secs(if crate::wants_all() { 10 } else { 3 })
}

pub async fn silent(world: Arc<World>, count: usize) -> Result<Held> {
    let open = many(count, |_| world.tcp(Who::Stranger)).await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

pub async fn stalled_handshakes(world: Arc<World>, count: usize) -> Result<Held> {
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 200]].concat();
    let open = many(count, async |_| {
        let mut tcp = world.tcp(Who::Stranger).await?;
        tcp.write_all(&hello).await?;
        Ok(tcp)
    });
    let open = open.await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

pub async fn idle(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let open = many(count, |_| world.tls(who, "h2")).await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

/// Idle connections of an authenticated client.
pub async fn idle_after_a_request(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let open = many(count, async |_| {
        let mut client = world.client(who).await?;
        client.ask("GET", &llamas("default"), "").await?;
        Ok(client)
    });
    let open = open.await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

pub async fn half_prefaces(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let open = many(count, async |_| {
        let mut stream = world.tls(who, "h2").await?;
        stream.write_all(&PREFACE[..16]).await?;
        stream.flush().await?;
        Ok(stream)
    });
    let open = open.await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

/// Sends the bytes of a connection preface one by one.
pub async fn slow_prefaces(world: Arc<World>, count: usize) -> Result<Held> {
    let mut open = many(count, |_| world.tls(Who::Stranger, "h2")).await;
    for byte in PREFACE {
        for stream in &mut open {
            let _ = stream.write_all(&[*byte]).await;
            let _ = stream.flush().await;
        }
        sleep(SLOWLY).await;
    }
    Ok(Held::new(format!("{} open", open.len()), open))
}

/// Repeats handshakes without end.
pub async fn handshakes(world: Arc<World>, who: Who) -> Result<Held> {
    let deadline = Instant::now() + long();
    let one = async || {
        let mut done = 0;
        while Instant::now() < deadline {
            done += usize::from(world.tls(who, "h2").await.is_ok());
        }
        done
    };
    let done = futures::future::join_all((0..16).map(|_| one())).await;
    Ok(Held::new(format!("{} handshakes", done.iter().sum::<usize>()), ()))
}

/// Repeatedly opens a connection, sends a request and drops the connection.
pub async fn come_and_go(world: Arc<World>, who: Who) -> Result<Held> {
    let deadline = Instant::now() + long();
    let one = async || {
        let mut done = 0;
        while Instant::now() < deadline {
            if let Ok(mut stream) = world.tls(who, "http/1.1").await {
                let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
                done += usize::from(stream.write_all(request).await.is_ok());
            }
        }
        done
    };
    let done = futures::future::join_all((0..16).map(|_| one())).await;
    Ok(Held::new(format!("{} connections", done.iter().sum::<usize>()), ()))
}

/// Sends HTTP/1.1 heads without their end.
pub async fn unfinished_heads(
    world: Arc<World>,
    who: Who,
    count: usize,
    size: usize,
) -> Result<Held> {
    let headers = format!("X-A: {}\r\n", "a".repeat(990)).repeat(size / 1_000);
    let head =
        format!("GET {}?watch=1 HTTP/1.1\r\nHost: localhost\r\n{headers}", llamas("default"));
    let open = many(count, async |_| {
        let mut stream = world.tls(who, "http/1.1").await?;
        timeout(Duration::from_secs(5), stream.write_all(head.as_bytes())).await??;
        stream.flush().await?;
        Ok(stream)
    });
    let open = open.await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

/// Sends bodies byte by byte.
pub async fn slow_bodies(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n{{",
        llamas("pasture")
    );
    let mut open = many(count, async |_| {
        let mut stream = world.tls(who, "http/1.1").await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&[b' '; 60_000]).await?;
        stream.flush().await?;
        Ok(stream)
    })
    .await;
    for _ in 0..25 {
        for stream in &mut open {
            let _ = timeout(SLOWLY, stream.write_all(b" ")).await;
            let _ = timeout(SLOWLY, stream.flush()).await;
        }
        sleep(SLOWLY).await;
    }
    Ok(Held::new(format!("{} open", open.len()), open))
}

/// Sends pipelined requests and reads nothing of the responses.
pub async fn pipelined(
    world: Arc<World>,
    who: Who,
    count: usize,
    path: String,
    times: usize,
) -> Result<Held> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(times);
    let open = many(count, async |_| {
        let mut stream = world.tls(who, "http/1.1").await?;
        let _ = timeout(Duration::from_secs(1), stream.write_all(request.as_bytes())).await;
        let _ = timeout(Duration::from_secs(1), stream.flush()).await;
        Ok(stream)
    });
    let open = open.await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

/// Opens connections whose sending side the client has closed.
pub async fn half_closed(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let head = format!("GET {}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", llamas("default"));
    let open = many(count, async |_| {
        let mut stream = world.tls(who, "http/1.1").await?;
        stream.write_all(head.as_bytes()).await?;
        stream.shutdown().await?;
        Ok(stream)
    });
    let open = open.await;
    Ok(Held::new(format!("{} open", open.len()), open))
}

/// Opens HTTP/2 connections and sends only the settings.
pub async fn only_settings(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let open = many(count, |_| Wire::open(&world, who, &[])).await;
    Ok(Held::new(format!("{} open", open.len()), open))
}
