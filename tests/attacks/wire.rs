//! A minimal HTTP/2 client that can send frames which no library sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::world::{Who, World};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const HEADER_TABLE_SIZE: u16 = 1;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// The timeout for sending, if the server reads nothing.
const SEND: Duration = Duration::from_secs(5);
/// The number of connections that are opened concurrently.
const AT_A_TIME: usize = 32;
/// The largest frame that may be sent without negotiation, in bytes.
pub const FRAME: usize = 16 << 10;

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(9 + payload.len());
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    frame.extend_from_slice(&length[1..]);
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in values {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// An encoded head.
#[derive(Clone, Default)]
pub struct Head(pub Vec<u8>);

impl Head {
    pub fn of(method: &str, path: &str, who: Who) -> Self {
        let head = Self::default().with(":method", method).with(":scheme", "https");
        let head = head.with(":authority", "localhost").with(":path", path);
        match who {
            Who::FrontProxy => head.with("x-remote-user", "eve"),
            _ => head,
        }
    }

    /// Appends a literal header.
    pub fn with(self, name: &str, value: &str) -> Self {
        self.literal(0, name, value)
    }

    /// Appends a literal header that the server adds to its HPACK table, as entry 62.
    pub fn remembered(self, name: &str, value: &str) -> Self {
        self.literal(0x40, name, value)
    }

    /// Appends entry 62 this many times.
    pub fn repeated(mut self, times: usize) -> Self {
        self.0.resize(self.0.len() + times, 0x80 | 62);
        self
    }

    fn literal(mut self, kind: u8, name: &str, value: &str) -> Self {
        self.0.push(kind);
        for text in [name, value] {
            length(&mut self.0, text.len());
            self.0.extend_from_slice(text.as_bytes());
        }
        self
    }

    /// Encodes HEADERS, and CONTINUATION as far as needed.
    pub fn frames(&self, stream: u32, end_stream: bool) -> Vec<u8> {
        let mut frames = self.unfinished(stream, end_stream);
        let last = frames.last_mut();
        if let Some(last) = last {
            last[4] |= END_HEADERS;
        }
        frames.concat()
    }

    /// Same as `frames`, without the end of the head.
    pub fn unfinished(&self, stream: u32, end_stream: bool) -> Vec<Vec<u8>> {
        let flags = if end_stream { END_STREAM } else { 0 };
        let parts = self.0.chunks(FRAME).enumerate();
        let parts = parts.map(|(at, part)| match at {
            0 => frame(HEADERS, flags, stream, part),
            _ => frame(CONTINUATION, 0, stream, part),
        });
        parts.collect()
    }
}

/// Encodes a length: a prefix of seven bits, and further bytes as needed.
fn length(out: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        out.push(u8::try_from(length).unwrap_or_default());
        return;
    };
    out.push(127);
    while rest >= 128 {
        out.push(u8::try_from(rest % 128).unwrap_or_default() | 128);
        rest /= 128;
    }
    out.push(u8::try_from(rest).unwrap_or_default());
}

/// Counters of the frames that came back.
#[derive(Debug, Default)]
pub struct Back {
    pub heads: AtomicUsize,
    pub bytes: AtomicUsize,
    pub resets: AtomicUsize,
    pub pings: AtomicUsize,
    /// The codes of the last RST_STREAM and GOAWAY, plus one.
    pub last_reset: AtomicU32,
    pub goaway: AtomicU32,
    pub closed: AtomicUsize,
}

impl Back {
    pub fn said(&self) -> String {
        let number = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        let code = |code: &AtomicU32| match code.load(Ordering::Relaxed) {
            0 => "-".to_owned(),
            code => (code - 1).to_string(),
        };
        format!(
            "{} heads, {} kB, {} resets (code {}), {} pings, goaway {}, {} closed",
            number(&self.heads),
            number(&self.bytes) / 1000,
            number(&self.resets),
            code(&self.last_reset),
            number(&self.pings),
            code(&self.goaway),
            number(&self.closed),
        )
    }
}

/// A connection for raw frames.
pub struct Wire {
    write: WriteHalf<TlsStream<TcpStream>>,
    read: Option<ReadHalf<TlsStream<TcpStream>>>,
    reader: Option<JoinHandle<()>>,
    pub next: u32,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

impl Wire {
    pub async fn open(world: &World, who: Who, values: &[(u16, u32)]) -> Result<Self> {
        let stream = world.tls(who, "h2").await?;
        let (read, write) = tokio::io::split(stream);
        let mut wire = Self { write, read: Some(read), reader: None, next: 1 };
        wire.send(&[PREFACE, &settings(values)].concat()).await?;
        Ok(wire)
    }

    /// Sends bytes, as far as the server reads them.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        timeout(SEND, async {
            self.write.write_all(bytes).await?;
            self.write.flush().await
        })
        .await??;
        Ok(())
    }

    /// Sends a request. Returns the number of its stream.
    pub async fn request(&mut self, head: &Head) -> Result<u32> {
        let stream = self.stream();
        self.send(&head.frames(stream, true)).await?;
        Ok(stream)
    }

    /// The number of a new stream.
    pub fn stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// Starts to read frames. Settings are never acknowledged.
    pub fn read(&mut self, back: &Arc<Back>) {
        let Some(read) = self.read.take() else { return };
        let back = Arc::clone(back);
        self.reader = Some(tokio::spawn(async move {
            let _ = note(read, &back).await;
            back.closed.fetch_add(1, Ordering::Relaxed);
        }));
    }
}

async fn note(mut read: ReadHalf<TlsStream<TcpStream>>, back: &Back) -> Result<()> {
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 9];
        read.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        payload.resize(length, 0);
        read.read_exact(&mut payload).await?;
        back.bytes.fetch_add(9 + length, Ordering::Relaxed);
        let code = |at: usize| {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u32::from_be_bytes(bytes.unwrap_or_default()) + 1
        };
        match head[3] {
            HEADERS => {
                back.heads.fetch_add(1, Ordering::Relaxed);
            }
            RST_STREAM => {
                back.resets.fetch_add(1, Ordering::Relaxed);
                back.last_reset.store(code(0), Ordering::Relaxed);
            }
            PING => {
                back.pings.fetch_add(1, Ordering::Relaxed);
            }
            GOAWAY => back.goaway.store(code(4), Ordering::Relaxed),
            _ => {}
        }
    }
}

/// Runs a function `count` times concurrently, and collects the successful results.
pub async fn many<T, F: Future<Output = Result<T>>>(
    count: usize,
    one: impl Fn(usize) -> F,
) -> Vec<T> {
    let all = futures::stream::iter((0..count).map(one)).buffer_unordered(AT_A_TIME);
    all.filter_map(async |one| one.ok()).collect().await
}
