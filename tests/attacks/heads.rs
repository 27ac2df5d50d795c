//! Attacks with heads of requests: large, unfinished, repeated, and unusual.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{sleep, timeout};

use crate::Held;
use crate::wire::{
    Back, CONTINUATION, DATA, FRAME, HEADER_TABLE_SIZE, HEADERS, Head, Wire, frame, many,
};
use crate::world::{Who, World, llamas};

/// The size of a header value, in bytes, so that its entry still fits into the HPACK table of the server.
const REMEMBERED: usize = 3_900;

/// Repeats one header of 4 kB by its index, in a head without its end.
pub async fn repeated(world: Arc<World>, who: Who, count: usize, times: usize) -> Result<Held> {
    let head = Head::of("GET", &llamas("default"), who).remembered("x", &"x".repeat(REMEMBERED));
    let frames = head.repeated(times).unfinished(1, true).concat();
    unfinished(world, who, count, frames).await
}

/// Sends so many small headers that their overhead dominates.
pub async fn small(world: Arc<World>, who: Who, count: usize, times: usize) -> Result<Held> {
    let head = Head::of("GET", &llamas("default"), who).remembered("a", "");
    unfinished(world, who, count, head.repeated(times).unfinished(1, true).concat()).await
}

/// Sends literal headers up to this size, in a head without its end.
pub async fn spelt_out(world: Arc<World>, who: Who, count: usize, size: usize) -> Result<Held> {
    let mut head = Head::of("GET", &llamas("default"), who);
    for number in 0..size / 1_000 {
        head = head.with(&format!("x-{number}"), &"a".repeat(990));
    }
    unfinished(world, who, count, head.unfinished(1, true).concat()).await
}

async fn unfinished(world: Arc<World>, who: Who, count: usize, frames: Vec<u8>) -> Result<Held> {
    let back = Arc::new(Back::default());
    let open = many(count, async |_| {
        let mut wire = Wire::open(&world, who, &[]).await?;
        wire.read(&back);
        let _ = wire.send(&frames).await;
        Ok(wire)
    });
    let open = open.await;
    Ok(Held::new(format!("{} open; {}", open.len(), back.said()), open))
}

/// Sends CONTINUATION frames with this content, without end.
pub async fn continuations(world: Arc<World>, who: Who, piece: Vec<u8>) -> Result<Held> {
    let back = Arc::new(Back::default());
    let mut piece = frame(CONTINUATION, 0, 1, &piece);
    if piece.len() < 1_000 {
        piece = piece.repeat(1_000);
    }
    let open = many(32, async |_| {
        let mut wire = Wire::open(&world, who, &[]).await?;
        wire.read(&back);
        wire.send(&frame(HEADERS, 1, 1, &Head::of("GET", "/", who).0)).await?;
        let mut sent = 0;
        while sent < 64 << 20 && wire.send(&piece).await.is_ok() {
            sent += piece.len();
        }
        Ok((wire, sent))
    });
    let open = open.await;
    let sent = open.iter().map(|(_, sent)| sent).sum::<usize>() >> 20;
    Ok(Held::new(format!("{sent} MiB sent; {}", back.said()), open))
}

/// Sends complete heads of requests whose body does not arrive.
pub async fn waiting(
    world: Arc<World>,
    who: Who,
    connections: usize,
    streams: usize,
    size: usize,
) -> Result<Held> {
    let mut head =
        Head::of("POST", &llamas("pasture"), who).with("content-type", "application/json");
    // The HPACK table contains a part of the head, so that few bytes are sent.
    head = head.remembered("x", &"x".repeat(REMEMBERED)).repeated(size / REMEMBERED);
    heads(world, who, connections, streams, head, false).await
}

/// Sends the same head on many streams.
pub async fn heads(
    world: Arc<World>,
    who: Who,
    connections: usize,
    streams: usize,
    head: Head,
    end_stream: bool,
) -> Result<Held> {
    let back = Arc::new(Back::default());
    let open = many(connections, async |_| {
        let mut wire = Wire::open(&world, who, &[]).await?;
        wire.read(&back);
        for _ in 0..streams {
            let stream = wire.stream();
            if wire.send(&head.frames(stream, end_stream)).await.is_err() {
                break;
            }
        }
        Ok(wire)
    });
    let open = open.await;
    sleep(Duration::from_secs(1)).await;
    Ok(Held::new(format!("{} open; {}", open.len(), back.said()), open))
}

/// Sends a head with a part that is too long, on the connection of the front proxy. The requests of others on the
/// connection must continue.
pub async fn beside_others(world: Arc<World>, head: Head) -> Result<Held> {
    let back = Arc::new(Back::default());
    let mut wire = Wire::open(&world, Who::FrontProxy, &[]).await?;
    wire.read(&back);
    let watch = format!("{}?watch=1", llamas("default"));
    wire.request(&Head::of("GET", &watch, Who::FrontProxy)).await?;
    let heads = async |count: usize| {
        while back.heads.load(Ordering::Relaxed) + back.resets.load(Ordering::Relaxed) < count {
            ensure!(back.closed.load(Ordering::Relaxed) == 0, "closed: {}", back.said());
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    timeout(Duration::from_secs(20), heads(1)).await.context("the watch")??;
    let stream = wire.stream();
    let taken = wire.send(&head.frames(stream, true)).await;
    let answered = timeout(Duration::from_secs(20), heads(2)).await;
    let said = back.said();
    let answered = answered.with_context(|| format!("no answer: {taken:?}, {said}"))?;
    answered.with_context(|| format!("the long one: {taken:?}"))?;
    wire.request(&Head::of("GET", "/readyz", Who::FrontProxy)).await?;
    let after = timeout(Duration::from_secs(20), heads(3)).await;
    after.with_context(|| format!("others are not answered any more: {said}"))??;
    Ok(Held::new(back.said(), wire))
}

/// Changes the size of the HPACK table again and again.
pub async fn table_sizes(world: Arc<World>, who: Who) -> Result<Held> {
    let back = Arc::new(Back::default());
    let mut wire = Wire::open(&world, who, &[]).await?;
    wire.read(&back);
    let sizes =
        [0, 4_096, u32::MAX].map(|size| crate::wire::settings(&[(HEADER_TABLE_SIZE, size)]));
    let sizes = sizes.concat().repeat(300);
    let deadline = std::time::Instant::now() + crate::connections::long();
    while std::time::Instant::now() < deadline && wire.send(&sizes).await.is_ok() {}
    Ok(Held::new(back.said(), wire))
}

/// Sends a head in pieces of one byte.
pub async fn dribbled(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let head = Head::of("GET", &llamas("default"), who).0;
    let mut frames = frame(HEADERS, 1, 1, &head[..1]);
    for byte in &head[1..] {
        frames.extend_from_slice(&frame(CONTINUATION, 0, 1, &[*byte]));
    }
    unfinished(world, who, count, frames).await
}

/// Sends a frame that announces more bytes than follow.
pub async fn announced(world: Arc<World>, who: Who, count: usize) -> Result<Held> {
    let mut frames = frame(HEADERS, 0, 1, &Head::of("POST", &llamas("pasture"), who).0);
    frames[4] |= crate::wire::END_HEADERS;
    let mut data = frame(DATA, 0, 1, &[b' '; FRAME]);
    data.truncate(FRAME - 100);
    frames.extend_from_slice(&data);
    unfinished(world, who, count, frames).await
}
