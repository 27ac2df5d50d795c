//! Attacks with small requests that cause much work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::body::Bytes;
use futures::future::join_all;
use futures::stream::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::Held;
use crate::connections::long;
use crate::unread::change;
use crate::wire::{Back, Head, Wire, many};
use crate::world::{Client, Who, World, llama, llamas};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// A little less than the maximum size of a body, in bytes.
const BODY: usize = 3_000_000;

/// A request that is sent many times concurrently.
#[derive(Clone)]
pub struct Sent {
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub accept: &'static str,
    pub body: Bytes,
}

impl Sent {
    pub fn get(path: String, accept: &'static str) -> Self {
        Self { method: "GET", path, content_type: JSON, accept, body: Bytes::new() }
    }

    fn post(content_type: &'static str, body: String) -> Self {
        let path = format!("{}?dryRun=All", llamas("pasture"));
        Self { method: "POST", path, content_type, accept: JSON, body: body.into() }
    }

    fn patch(content_type: &'static str, body: String) -> Self {
        let path = format!("{}/small?dryRun=All", llamas("pasture"));
        Self { method: "PATCH", path, content_type, accept: JSON, body: body.into() }
    }
}

async fn ask(client: &Client, sent: &Sent) -> Result<u16> {
    let mut client = client.clone();
    let mut request = client.request(sent.method, &sent.path, sent.body.clone())?;
    let headers = request.headers_mut();
    headers.insert("content-type", sent.content_type.parse()?);
    headers.insert("accept", sent.accept.parse()?);
    Ok(client.send(request).await?.0)
}

/// Repeats `count` concurrent requests for some seconds, on ten connections or those of a crowd.
pub async fn at_once(world: Arc<World>, who: Who, count: usize, sent: Sent) -> Result<Held> {
    let mut client = world.client(Who::FrontProxy).await?;
    client.ask("POST", &llamas("pasture"), llama("small", 0)).await?;
    world.begin()?;
    let deadline = Instant::now() + long();
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    while Instant::now() < deadline {
        let connections = if who == Who::Crowd { 100 } else { 10 };
        let clients = many(connections, |_| world.client(who)).await;
        let all = (0..count).map(|at| ask(&clients[at % clients.len()], &sent));
        // A request without a response in time is counted as status 0.
        let all = all.map(|asked| timeout(2 * long(), asked));
        for status in join_all(all).await {
            let status = status.ok().and_then(Result::ok).unwrap_or_default();
            *statuses.entry(status).or_default() += 1;
        }
    }
    Ok(Held::new(format!("{statuses:?}"), ()))
}

/// Same as `at_once`, with a store full of large objects.
pub async fn on_a_full_store(world: Arc<World>, count: usize, sent: Sent) -> Result<Held> {
    world.fill("pasture", 100, 1_000_000).await?;
    world.begin()?;
    at_once(world, Who::Eve, count, sent).await
}

fn nested(depth: usize) -> String {
    format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

fn spec(value: &str) -> String {
    format!(
        r#"{{"apiVersion":"farm.example.com/v1alpha","kind":"Llama","metadata":{{"name":"a"}},"spec":{value}}}"#
    )
}

pub fn dense_json() -> Sent {
    Sent::post(JSON, spec(&format!("{{\"a\":[{}]}}", vec![nested(100); 450].join(","))))
}

pub fn deep_json() -> Sent {
    Sent::post(JSON, spec(&nested(500_000)))
}

pub fn escapes() -> Sent {
    Sent::post(JSON, spec(&format!("\"{}\"", "\\u0000".repeat(BODY / 6))))
}

pub fn duplicates() -> Sent {
    Sent::post(JSON, spec(&format!("{{{}\"b\":0}}", "\"a\":0,".repeat(BODY / 6))))
}

pub fn unknown_fields() -> Sent {
    let fields: Vec<String> = (0..45_000).map(|number| format!("\"f{number}\":0")).collect();
    let mut sent = Sent::post(JSON, spec(&format!("{{{}}}", fields.join(","))));
    sent.path.push_str("&fieldValidation=Strict");
    sent
}

pub fn long_name() -> Sent {
    Sent::post(JSON, llama(&"a".repeat(BODY - 100_000), 0))
}

pub fn metadata(member: &str) -> Sent {
    let values: Vec<String> = (0..40_000)
        .map(|number| format!("\"k{number}.example.com/x\":\"{}\"", "v".repeat(30)))
        .collect();
    let body = llama("a", 0)
        .replace(r#""name":"a""#, &format!(r#""name":"a","{member}":{{{}}}"#, values.join(",")));
    Sent::post(JSON, body)
}

pub fn finalizers() -> Sent {
    let values: Vec<String> =
        (0..40_000).map(|number| format!("\"example.com/f{number}\"")).collect();
    let body = llama("a", 0)
        .replace(r#""name":"a""#, &format!(r#""name":"a","finalizers":[{}]"#, values.join(",")));
    Sent::post(JSON, body)
}

pub fn managed_fields() -> Sent {
    let entry = r#"{"manager":"m","operation":"Update","apiVersion":"farm.example.com/v1alpha","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:weight":{}}}}"#;
    let body = llama("a", 0).replace(
        r#""name":"a""#,
        &format!(r#""name":"a","managedFields":[{}]"#, vec![entry; 3_000].join(",")),
    );
    Sent::post(JSON, body)
}

pub fn large_yaml() -> Sent {
    Sent::post(YAML, spec(&format!("{{\"a\":[{}]}}", vec![nested(100); 450].join(","))))
}

pub fn yaml_text() -> Sent {
    Sent::post(YAML, format!("{}\na: |\n{}", spec("{}"), "  x\n".repeat(BODY / 4)))
}

pub fn yaml_lists() -> Sent {
    Sent::post(YAML, "- - - - - - - - - - - - - - - - - - - - - - - - - - - - - -\n".repeat(48_000))
}

pub fn yaml_flow() -> Sent {
    Sent::post(YAML, "[".repeat(BODY))
}

/// YAML anchors that refer to each other.
pub fn yaml_aliases() -> Sent {
    let mut laughs = format!("a0: &a0 [{}]\n", "x,".repeat(10));
    for level in 1..30 {
        let below = format!("*a{},", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    Sent::post(YAML, laughs)
}

pub fn merge_patch() -> Sent {
    let body = format!("{{\"spec\":{{\"a\":[{}]}}}}", vec![nested(100); 450].join(","));
    Sent::patch("application/merge-patch+json", body)
}

/// Copy operations that copy earlier copies.
pub fn json_patch_copies() -> Sent {
    let copies = (0..5_000).map(|number| {
        format!("{{\"op\":\"copy\",\"from\":\"/spec\",\"path\":\"/spec/c{number}\"}}")
    });
    let value = format!("[{}]", vec![nested(100); 400].join(","));
    let copies: Vec<String> = copies.collect();
    Sent::patch(
        "application/json-patch+json",
        format!("[{{\"op\":\"add\",\"path\":\"/spec/a\",\"value\":{value}}},{}]", copies.join(",")),
    )
}

/// Operations that insert at the front of a long list.
pub fn json_patch_fronts() -> Sent {
    let operation = "{\"op\":\"add\",\"path\":\"/spec/a/0\",\"value\":0}";
    Sent::patch(
        "application/json-patch+json",
        format!(
            "[{{\"op\":\"add\",\"path\":\"/spec/a\",\"value\":[0{}]}},{}]",
            ",0".repeat(40_000),
            vec![operation; 9_900].join(",")
        ),
    )
}

pub fn json_patch_tests() -> Sent {
    let value = format!("[{}]", vec![nested(50); 100].join(","));
    let test = format!("{{\"op\":\"test\",\"path\":\"/spec/a\",\"value\":{value}}}");
    Sent::patch(
        "application/json-patch+json",
        format!(
            "[{{\"op\":\"add\",\"path\":\"/spec/a\",\"value\":{value}}},{}]",
            vec![test; 60].join(",")
        ),
    )
}

/// Opens many watches with a large head.
pub async fn watches(
    world: Arc<World>,
    who: Who,
    (connections, streams): (usize, usize),
    query: String,
    accept: &'static str,
    filled: usize,
) -> Result<Held> {
    if filled > 0 {
        world.fill("pasture", filled, 1_000_000).await?;
        world.begin()?;
    }
    let path = format!("{}?watch=1&{query}", llamas("pasture"));
    let head = Head::of("GET", &path, who).with("accept", accept);
    let back = Arc::new(Back::default());
    let open = many(connections, async |_| {
        let mut wire = Wire::open(&world, who, &[]).await?;
        wire.read(&back);
        for _ in 0..streams {
            if wire.request(&head).await.is_err() {
                break;
            }
        }
        Ok(wire)
    });
    let open = open.await;
    sleep(Duration::from_secs(2)).await;
    Ok(Held::new(format!("{} open; {}", open.len(), back.said()), open))
}

/// Many clients read all pages of a list with a limit of one object.
pub async fn pages(world: Arc<World>) -> Result<Held> {
    world.fill("pasture", 50, 500_000).await?;
    world.begin()?;
    let deadline = Instant::now() + long();
    let clients = many(10, |_| world.client(Who::Eve)).await;
    let one = async |mut client: Client| {
        let (mut pages, mut token) = (0, String::new());
        while Instant::now() < deadline {
            let path = format!("{}?limit=1&continue={token}", llamas("pasture"));
            let (_, page) = client.ask("GET", &path, "").await?;
            let page: serde_json::Value = serde_json::from_slice(&page)?;
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            pages += 1;
        }
        anyhow::Ok(pages)
    };
    let all = clients.iter().cycle().take(100).map(|client| one(client.clone()));
    let pages = join_all(all).await.into_iter().flatten().sum::<usize>();
    Ok(Held::new(format!("{pages} pages"), clients))
}

/// Creates objects until the store rejects them, the last ones small. Another user must then still be able to write.
pub async fn full_store(world: Arc<World>, sizes: &'static [usize]) -> Result<Held> {
    let clients = many(10, |_| world.client(Who::Eve)).await;
    let deadline = Instant::now() + 3 * long();
    let one = async |at: usize, size: usize| {
        let mut client = clients[at % clients.len()].clone();
        let mut created = 0;
        loop {
            let body = llama(&format!("x-{size}-{at}-{created}"), size);
            let (status, _) = client.ask("POST", &llamas("pasture"), body).await?;
            match status {
                201 => created += 1,
                429 => sleep(Duration::from_millis(50)).await,
                _ => return anyhow::Ok((created, status)),
            }
            if Instant::now() > deadline {
                return Ok((created, status));
            }
        }
    };
    let mut note = String::new();
    for &size in sizes {
        let all = join_all((0..20).map(|at| one(at, size))).await;
        let all: Vec<(usize, u16)> = all.into_iter().flatten().collect();
        let created = all.iter().map(|(created, _)| created).sum::<usize>();
        let last = all.first().map_or(0, |(_, status)| *status);
        note.push_str(&format!("{created} of {size} bytes, then {last}; "));
    }
    let mut honest = world.client(Who::Honest).await?;
    let path = llamas("meadow");
    let (made, _) = honest.ask("POST", &path, llama("during", 0)).await?;
    let (removed, _) = honest.ask("DELETE", &format!("{path}/honest-4"), "").await?;
    note.push_str(&format!("honest POST {made}, DELETE {removed}"));
    let (again, _) = honest.ask("POST", &path, llama("honest-4", 0)).await?;
    honest.ask("DELETE", &format!("{path}/during"), "").await?;
    ensure!((made, removed, again) == (201, 200, 201), "{note}, POST {again}");
    Ok(Held::new(note, clients))
}

/// Many clients change one object without end.
pub async fn changes(world: Arc<World>, size: usize) -> Result<Held> {
    world.fill("pasture", 1, size).await?;
    world.begin()?;
    let clients = many(10, |_| world.client(Who::Eve)).await;
    let deadline = Instant::now() + long();
    let path = format!("{}/large-0", llamas("pasture"));
    let one = async |at: usize| {
        let mut client = clients[at % clients.len()].clone();
        let mut changed = 0;
        while Instant::now() < deadline {
            let body = format!("{{\"spec\":{{\"weight\":{}}}}}", at * 10_000 + changed + 1);
            let mut request = client.request("PATCH", &path, body)?;
            request.headers_mut().insert("content-type", "application/merge-patch+json".parse()?);
            client.send(request).await?;
            changed += 1;
        }
        anyhow::Ok(changed)
    };
    let all = join_all((0..100).map(one)).await;
    let changed = all.into_iter().flatten().sum::<usize>();
    Ok(Held::new(format!("{changed} changes"), clients))
}

fn upgrade(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// Opens watches over WebSockets without reading them, and sends frames that announce more bytes than follow.
pub async fn websockets(world: Arc<World>, count: usize, sent: Vec<u8>) -> Result<Held> {
    world.fill("pasture", 1, 1_000_000).await?;
    world.begin()?;
    let path = format!("{}?watch=1&resourceVersion=0", llamas("pasture"));
    let open = many(count, async |_| {
        let mut stream = world.tls(Who::Eve, "http/1.1").await?;
        stream.write_all(upgrade(&path).as_bytes()).await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        stream.write_all(&sent).await?;
        stream.flush().await?;
        Ok((stream, answer))
    });
    let open = open.await;
    let upgraded = open.iter().filter(|(_, answer)| answer.ends_with(b"101")).count();
    change(&world, 20).await?;
    Ok(Held::new(format!("{} open, {upgraded} upgraded", open.len()), open))
}

/// Opens and closes watches without end.
pub async fn short_watches(world: Arc<World>) -> Result<Held> {
    world.fill("pasture", 20, 1_000_000).await?;
    world.begin()?;
    let clients = many(10, |_| world.client(Who::Eve)).await;
    let deadline = Instant::now() + long();
    let path = format!("{}?watch=1&resourceVersion=0", llamas("pasture"));
    let asked =
        futures::stream::iter(0..).take_while(|_| std::future::ready(Instant::now() < deadline));
    let asked = asked.map(|at: usize| {
        let mut client = clients[at % clients.len()].clone();
        let path = &path;
        async move {
            let request = client.request("GET", path, "")?;
            client.sender.send_request(request).await?;
            anyhow::Ok(())
        }
    });
    let count = asked.buffer_unordered(200).count().await;
    Ok(Held::new(format!("{count} watches"), clients))
}
