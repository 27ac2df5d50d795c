//! Attacks on authentication: reviews that the cluster answers late or never.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt;
use test_cluster::Authority;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use crate::Held;
use crate::connections::long;
use crate::wire::many;
use crate::world::{Who, World, llamas};

/// The number of requests in flight on one connection.
const IN_FLIGHT: usize = 100;
/// The number of bytes that a program may log during an attack.
const PRINTED: usize = 256 << 10;

/// Sends requests that need a review, while the cluster answers reviews late for all but honest users. Each request
/// comes from `who`, with a different token or none, for a different path.
pub async fn questions(
    world: Arc<World>,
    who: Who,
    (connections, each): (usize, usize),
    has_token: bool,
) -> Result<Held> {
    world.cluster.hang();
    let asked = many(connections, async |connection| {
        let client = world.client(who).await?;
        let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
        let one = |number: usize| {
            let mut client = client.clone();
            async move {
                let path = format!("{}/x-{connection}-{number}", llamas("default"));
                let mut request = client.request("GET", &path, "")?;
                if has_token {
                    let token = format!("Bearer token-{connection}-{number}");
                    request.headers_mut().insert("authorization", token.parse()?);
                }
                anyhow::Ok(client.send(request).await?.0)
            }
        };
        let answers = futures::stream::iter((0..each).map(one)).buffer_unordered(IN_FLIGHT);
        let answers = answers.for_each(|status| {
            *statuses.entry(status.unwrap_or_default()).or_default() += 1;
            std::future::ready(())
        });
        let _ = timeout(2 * long(), answers).await;
        Ok((client, statuses))
    });
    let asked = asked.await;
    let mut all: BTreeMap<u16, usize> = BTreeMap::new();
    for (status, count) in asked.iter().flat_map(|(_, statuses)| statuses) {
        *all.entry(*status).or_default() += count;
    }
    Ok(Held::new(format!("{all:?}"), asked))
}

/// Connects sequentially with certificates of an unknown CA, and checks the log.
pub async fn made_up_certificates(world: Arc<World>, count: usize) -> Result<Held> {
    let folder = world.files.path();
    let made_up = Authority::new("made-up", &folder.join("made-up.crt"))?;
    let deadline = Instant::now() + 2 * long();
    let mut tried = 0;
    for number in 0..count {
        if Instant::now() > deadline {
            break;
        }
        let name = format!("made-up-{number} {}", "x".repeat(1_000));
        let certificate = made_up.client(folder, "made-up-client", &name, None)?;
        let config = world.config(Some(&certificate))?;
        if let Ok(mut stream) = world.tls_with(Who::Stranger, &config, "http/1.1").await {
            let _ = stream.write_all(b"GET /apis HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            let _ = stream.flush().await;
        }
        tried += 1;
    }
    Ok(Held::new(format!("{tried} tried"), ()))
}

/// Sends rejected requests without pause: they must not fill the log.
pub async fn refused(world: Arc<World>, who: Who, header: (&'static str, String)) -> Result<Held> {
    let deadline = Instant::now() + long();
    let (name, value) = header;
    let asked = many(10, async |_| {
        let client = world.client(who).await?;
        let mut count = 0;
        while Instant::now() < deadline {
            let one = |number: usize| {
                let mut client = client.clone();
                let value = value.clone();
                async move {
                    let path = format!("{}/y-{count}-{number}", llamas("default"));
                    let mut request = client.request("DELETE", &path, "")?;
                    request.headers_mut().insert(name, value.parse()?);
                    client.send(request).await
                }
            };
            let all = futures::future::join_all((0..IN_FLIGHT).map(one)).await;
            if all.iter().all(Result::is_err) {
                break;
            }
            count += 1;
        }
        Ok(count * IN_FLIGHT)
    });
    let asked = asked.await;
    Ok(Held::new(format!("{} requests", asked.iter().sum::<usize>()), ()))
}

/// Fails if the program logs more than a disk should store.
pub async fn quietly(
    world: Arc<World>,
    attack: impl Future<Output = Result<Held>>,
) -> Result<Held> {
    let before = world.printed().len();
    let held = attack.await?;
    // Suppressed log lines are counted, and the count is logged periodically.
    sleep(Duration::from_secs(1)).await;
    let printed = world.printed().len() - before;
    anyhow::ensure!(printed < PRINTED, "{} printed, {}", printed, held.note);
    Ok(Held::new(format!("{printed} bytes printed; {}", held.note), held))
}
