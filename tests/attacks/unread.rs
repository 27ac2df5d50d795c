//! Attacks with responses that the client does not read.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use tokio::time::sleep;

use crate::Held;
use crate::wire::{Back, Head, INITIAL_WINDOW_SIZE, Wire, many};
use crate::world::{Who, World, llama, llamas};

/// Almost the maximum size of an object, in bytes.
pub const LARGE: usize = 1_400_000;
/// A megabyte.
const MEGABYTE: usize = 1_000_000;

/// A set of unread requests: the client, the numbers of connections and streams, and the stream window.
#[derive(Clone, Copy)]
pub struct Unread {
    pub who: Who,
    pub connections: usize,
    pub streams: usize,
    pub window: u32,
    /// Whether the client reads the bytes of the connection.
    pub is_read: bool,
}

/// The maximum number of streams on one connection.
pub const ONE: Unread =
    Unread { who: Who::Eve, connections: 1, streams: 1_000, window: 0, is_read: true };
/// Many connections.
pub const MANY: Unread =
    Unread { who: Who::Eve, connections: 100, streams: 100, window: 1, is_read: true };
/// Many connections from which the client reads nothing.
pub const DEAF: Unread =
    Unread { who: Who::Eve, connections: 100, streams: 100, window: 1 << 30, is_read: false };

impl Unread {
    pub async fn ask(self, world: &Arc<World>, head: &Head) -> Result<Held> {
        let back = Arc::new(Back::default());
        let open = many(self.connections, async |_| {
            let values = [(INITIAL_WINDOW_SIZE, self.window)];
            let mut wire = Wire::open(world, self.who, &values).await?;
            if self.is_read {
                wire.read(&back);
            }
            for _ in 0..self.streams {
                let stream = wire.stream();
                if wire.send(&head.frames(stream, true)).await.is_err() {
                    break;
                }
            }
            Ok(wire)
        });
        let open = open.await;
        sleep(Duration::from_secs(2)).await;
        Ok(Held::new(format!("{} open; {}", open.len(), back.said()), open))
    }
}

pub async fn objects(world: Arc<World>, how: Unread) -> Result<Held> {
    world.fill("pasture", 1, LARGE).await?;
    world.begin()?;
    let path = format!("{}/large-0", llamas("pasture"));
    how.ask(&world, &Head::of("GET", &path, how.who)).await
}

/// Lists a full namespace with this Accept header.
pub async fn lists(world: Arc<World>, how: Unread, accept: &'static str) -> Result<Held> {
    world.fill("pasture", 20, MEGABYTE).await?;
    world.begin()?;
    let head = Head::of("GET", &llamas("pasture"), how.who).with("accept", accept);
    how.ask(&world, &head).await
}

pub async fn compressed_lists(world: Arc<World>, how: Unread) -> Result<Held> {
    world.fill("pasture", 20, MEGABYTE).await?;
    world.begin()?;
    let head = Head::of("GET", &llamas("pasture"), how.who).with("accept-encoding", "gzip");
    how.ask(&world, &head).await
}

/// Requests a path, whatever the response.
pub async fn path(world: Arc<World>, how: Unread, path: String) -> Result<Held> {
    how.ask(&world, &Head::of("GET", &path, how.who)).await
}

/// Watches an object that changes repeatedly.
pub async fn watches(
    world: Arc<World>,
    how: Unread,
    accept: &'static str,
    size: usize,
) -> Result<Held> {
    world.fill("pasture", 1, size).await?;
    world.begin()?;
    let path = format!("{}?watch=1&resourceVersion=0", llamas("pasture"));
    let held = how.ask(&world, &Head::of("GET", &path, how.who).with("accept", accept)).await?;
    change(&world, 30).await?;
    Ok(held)
}

/// Changes the large object as an honest user.
pub async fn change(world: &World, times: usize) -> Result<()> {
    let mut client = world.client(Who::HonestFrontProxy).await?;
    let path = format!("{}/large-0", llamas("pasture"));
    for number in 0..times {
        let body = format!(r#"{{"spec":{{"weight":{}}}}}"#, number + 2);
        let mut request = client.request("PATCH", &path, body)?;
        request.headers_mut().insert("content-type", "application/merge-patch+json".parse()?);
        let (status, answer) = client.send(request).await?;
        ensure!(status == 200, "{status} {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// Sends requests with large bodies, and reads one byte of the responses.
pub async fn creations(world: Arc<World>, connections: usize, streams: usize) -> Result<Held> {
    let body = Bytes::from(llama("a", MEGABYTE));
    bodies(
        world,
        (connections, streams),
        ("POST", format!("{}?dryRun=All", llamas("pasture"))),
        body,
    )
    .await
}

pub async fn deletions(world: Arc<World>, connections: usize, streams: usize) -> Result<Held> {
    world.fill("pasture", 20, MEGABYTE).await?;
    world.begin()?;
    let path = format!("{}?dryRun=All", llamas("pasture"));
    bodies(world, (connections, streams), ("DELETE", path), Bytes::new()).await
}

async fn bodies(
    world: Arc<World>,
    (connections, streams): (usize, usize),
    (method, path): (&'static str, String),
    body: Bytes,
) -> Result<Held> {
    let open = many(connections, async |_| {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1);
        let mut client = world.client_with(Who::Eve, builder).await?;
        let mut answers = Vec::new();
        for _ in 0..streams {
            let request = client.request(method, &path, body.clone())?;
            client.sender.ready().await?;
            answers.push(tokio::spawn(client.sender.send_request(request)));
        }
        Ok((client, answers))
    });
    let open = open.await;
    sleep(Duration::from_secs(5)).await;
    let answers = open.iter().flat_map(|(_, answers)| answers);
    let answered = answers.filter(|answer| answer.is_finished()).count();
    Ok(Held::new(format!("{} open, {answered} answered", open.len()), open))
}
