//! The steps of a script.
//!
//! ```text
//! # A comment.
//! allow jane list llamas.farm.example.com default     adds a permission
//! allow jane get /apis                  another one
//! put pods {"metadata": {…}}            creates or replaces an object of the cluster
//! gone pods default/web-1               deletes this object
//! away / back                           makes the cluster unavailable / available
//! clock 1m                              advances the clock of the server
//! wait 1m                               waits for this time, on the paused clock
//! GET /apis as jane                     a request, with headers, then a body; `$etag`
//!                                       is the last ETag of a response
//! Accept: application/json
//! {"kind": …}
//! => 200 application/json               the response, up to an empty line; `$age` is any number
//! …
//! ```

use aggregated_apiserver::encoding::read_protobuf;
use aggregated_apiserver::types::Types;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aggregated_apiserver::{ApiServer, Clock, InProcess, User};
use axum::body::Body;
use farm_operator::{NAME, kinds};
use http::{Request, Response};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::fake_cluster::FakeCluster;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The initial clock of every script: 2026-01-01T00:00:00Z.
const BEGIN: i64 = 1_767_225_600;

/// Headers that are always the same and carry no information.
const UNSHOWN: [&str; 3] = ["content-type", "audit-id", "content-length"];

/// Runs a script. Returns its text with the actual responses.
pub fn play(script: &str) -> Outcome<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // The clock is paused.
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let stage = Stage::build().await?;
        let mut played = String::new();
        let mut lines = script.lines().peekable();
        while let Some(line) = lines.next() {
            writeln!(played, "{line}")?;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let word = line.split(' ').next().unwrap_or_default();
            if !word.chars().all(|character| character.is_ascii_uppercase()) {
                stage.arrange(line).await?;
                continue;
            }
            let mut headers = Vec::new();
            let mut body = String::new();
            while let Some(line) = lines.next_if(|line| !line.is_empty() && !line.starts_with("=>"))
            {
                writeln!(played, "{line}")?;
                match line.split_once(": ") {
                    Some((name, value)) if !line.starts_with(['{', '[', '"']) => {
                        headers.push((name.to_owned(), value.to_owned()));
                    }
                    _ => body.push_str(line),
                }
            }
            while lines.next_if(|line| !line.is_empty()).is_some() {}
            let answer = stage.ask(line, &headers, body).await?;
            played.push_str(&answer);
        }
        Ok(played)
    })
}

/// A server and its cluster.
struct Stage {
    server: InProcess,
    cluster: FakeCluster,
    clock: Arc<AtomicI64>,
    /// The last ETag, which `$etag` stands for.
    etag: Mutex<String>,
}

impl Stage {
    async fn build() -> Outcome<Self> {
        let seconds = Arc::new(AtomicI64::new(BEGIN));
        let uids = AtomicU64::new(1);
        let clock = Clock::new(
            {
                let seconds = Arc::clone(&seconds);
                move || Timestamp::from_second(seconds.load(Ordering::SeqCst)).unwrap_or_default()
            },
            move || Uuid::from_u64_pair(0, uids.fetch_add(1, Ordering::SeqCst)),
            || 0,
        );
        let cluster = FakeCluster::default();
        cluster.put("namespaces", serde_json::json!({"metadata": {"name": "default"}}));
        let server = ApiServer::new(NAME, kinds()).with_clock(clock);
        let server = server.in_process(cluster.client()).await?;
        Ok(Self { server, cluster, clock: seconds, etag: Mutex::default() })
    }

    /// Runs a step that is not a request.
    async fn arrange(&self, line: &str) -> Outcome<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "allow" => self.cluster.allow(rest),
            "put" => {
                let (resource, object) = rest.split_once(' ').ok_or("put RESOURCE OBJECT")?;
                self.cluster.put(resource, serde_json::from_str(object)?);
            }
            "gone" => {
                let (resource, key) = rest.split_once(' ').ok_or("gone RESOURCE KEY")?;
                self.cluster.remove(resource, key);
            }
            "away" => self.cluster.set_away(true),
            "back" => self.cluster.set_away(false),
            "clock" => {
                let seconds = rest.parse::<SignedDuration>()?.as_secs();
                self.clock.fetch_add(seconds, Ordering::SeqCst);
            }
            "wait" => {
                let wait = Duration::try_from(rest.parse::<SignedDuration>()?)?;
                tokio::time::sleep(wait).await;
            }
            other => return Err(format!("no step is called {other:?}").into()),
        }
        // The paused clock advances when all tasks wait, so all work is done then.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    async fn ask(&self, line: &str, headers: &[(String, String)], body: String) -> Outcome<String> {
        let (request, user) = line.split_once(" as ").unwrap_or((line, "admin"));
        let (method, path) = request.split_once(' ').ok_or("METHOD PATH")?;
        let etag = self.etag.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let filled = |text: &str| text.replace("$etag", etag.trim_matches('"'));
        let mut request = Request::builder().method(method).uri(filled(path));
        for (name, value) in headers {
            request = request.header(name, filled(value));
        }
        let user = match user {
            "admin" => test_server::admin(),
            name => User {
                name: name.into(),
                groups: vec!["system:authenticated".into()],
                ..User::default()
            },
        };
        let response = self.server.respond(user, request.body(Body::from(body))?).await;
        if let Some(etag) = response.headers().get("etag") {
            let mut last = self.etag.lock().unwrap_or_else(PoisonError::into_inner);
            etag.to_str()?.clone_into(&mut last);
        }
        show(response).await
    }
}

/// The text with a placeholder for the age of a view, which depends on the time of the last retry and varies.
fn without_age(text: &str) -> String {
    const BEFORE: &str = "shown as they were ";
    match text.split_once(BEFORE) {
        Some((before, after)) => {
            let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{before}{BEFORE}$age{after}")
        }
        None => text.to_owned(),
    }
}

async fn show(response: Response<Body>) -> Outcome<String> {
    let (head, body) = response.into_parts();
    let mut text = format!("=> {}", head.status.as_u16());
    if let Some(content_type) = head.headers.get("content-type") {
        write!(text, " {}", content_type.to_str()?)?;
    }
    text.push('\n');
    for (name, value) in &head.headers {
        let is_default = name == "cache-control" && value == "no-cache, private";
        if !is_default && !UNSHOWN.contains(&name.as_str()) {
            writeln!(text, "{name}: {}", without_age(value.to_str()?))?;
        }
    }
    let body = body.collect().await?.to_bytes();
    if text.contains("application/vnd.kubernetes.protobuf\n") {
        // Scripts must be readable, so protobuf is converted to JSON.
        let object = read_protobuf(&body, Types::meta()).map_err(anyhow::Error::msg)?;
        text.push_str(&object.to_string());
    } else {
        text.push_str(std::str::from_utf8(&body)?);
    }
    if !body.is_empty() && !body.ends_with(b"\n") {
        text.push('\n');
    }
    Ok(text)
}
