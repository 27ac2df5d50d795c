//! Honest users, who must not be affected by an attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::world::{Client, GROUP, Who, World, llama, llamas};

/// The namespace of honest users.
const NAMESPACE: &str = "meadow";
/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between rounds.
const PAUSE: Duration = Duration::from_millis(50);
const OBJECTS: usize = 5;

/// The observations of honest users.
#[derive(Debug, Default)]
pub struct Seen {
    pub longest: Duration,
    pub waited_for: String,
    pub rounds: usize,
    /// The first few errors.
    pub faults: Vec<String>,
}

/// Honest users that send requests on a thread of their own until `end` is called.
pub struct Honest {
    thread: JoinHandle<Result<Seen>>,
    ending: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
}

impl Honest {
    /// Starts the users. Returns after the first round.
    pub async fn start(world: &Arc<World>) -> Result<Self> {
        let (ending, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (world, end, done) = (Arc::clone(world), Arc::clone(&ending), Arc::clone(&rounds));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || runtime.block_on(work(&world, &end, &done)));
        let honest = Self { thread, ending, rounds };
        honest.wait_for_rounds(2).await;
        Ok(honest)
    }

    /// Waits for this number of further rounds, or until the users have stopped.
    pub async fn wait_for_rounds(&self, count: usize) {
        let wanted = self.rounds.load(Ordering::Relaxed) + count;
        while self.rounds.load(Ordering::Relaxed) < wanted && !self.thread.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops the users after a final check. Returns their observations.
    pub async fn end(self) -> Result<Seen> {
        self.ending.store(true, Ordering::Relaxed);
        let joined = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        joined.map_err(|_| anyhow::anyhow!("the honest client panicked"))?
    }
}

async fn work(world: &World, ending: &AtomicBool, rounds: &AtomicUsize) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut kept = world.client(Who::HonestFrontProxy).await?;
    let mut own = world.client(Who::Honest).await?;
    for number in 0..OBJECTS {
        let body = llama(&format!("honest-{number}"), 0);
        let (status, _) = kept.ask("POST", &llamas(NAMESPACE), body).await?;
        ensure!(status == 201, "{status}");
    }
    let mut watches = [watch(&mut kept).await?, watch(&mut own).await?];
    while !ending.load(Ordering::Relaxed) {
        for (client, name) in [(&mut kept, "the front proxy's"), (&mut own, "the user's own")] {
            ask_everything(client, name, &mut seen).await;
        }
        for who in [Who::HonestFrontProxy, Who::Honest] {
            let began = Instant::now();
            match timeout(PATIENCE, world.client(who)).await {
                Ok(Ok(mut fresh)) => {
                    seen.note(&format!("a new connection of {who:?}"), began, Ok(()));
                    ask_everything(&mut fresh, &format!("a new one of {who:?}"), &mut seen).await;
                }
                Ok(Err(error)) => {
                    seen.note(&format!("a new connection of {who:?}"), began, Err(error));
                }
                Err(late) => {
                    seen.note(&format!("a new connection of {who:?}"), began, Err(late.into()));
                }
            }
        }
        // The token is new to the server.
        let (began, token) = (Instant::now(), format!("Bearer honest-{}-token", seen.rounds));
        let asked = async {
            let mut client = world.client(Who::HonestWithToken).await?;
            let mut request = client.request("GET", &llamas(NAMESPACE), "")?;
            request.headers_mut().insert("authorization", token.parse()?);
            let (status, _) = client.send(request).await?;
            ensure!(status == 200, "{status}");
            Ok(())
        };
        let asked = timeout(PATIENCE, asked).await.map_err(anyhow::Error::from);
        seen.note("a user with a new token", began, asked.and_then(|asked| asked));
        seen.rounds += 1;
        rounds.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    // No object was lost, and watches continue.
    let mut last = world.client(Who::HonestFrontProxy).await.context("afterwards")?;
    let (status, list) = last.ask("GET", &llamas(NAMESPACE), "").await.context("afterwards")?;
    let list: serde_json::Value = serde_json::from_slice(&list)?;
    let count = list["items"].as_array().map_or(0, Vec::len);
    ensure!(status == 200 && count == OBJECTS, "{status}: {count} objects are left");
    let began = Instant::now();
    let (status, answer) = last.ask("POST", &llamas(NAMESPACE), llama("last", 0)).await?;
    ensure!(status == 201, "afterwards: {status} {}", String::from_utf8_lossy(&answer));
    for (watch, whose) in watches.iter_mut().zip(["the front proxy's", "the user's own"]) {
        let event = timeout(PATIENCE, until_last(watch)).await.map_err(anyhow::Error::from);
        seen.note(&format!("the event of {whose} watch"), began, event.and_then(|event| event));
    }
    let (status, _) = last.ask("GET", "/readyz", "").await?;
    ensure!(status == 200, "/readyz: {status}");
    Ok(seen)
}

async fn watch(client: &mut Client) -> Result<Incoming> {
    let path = format!("{}?watch=1&timeoutSeconds=3000", llamas(NAMESPACE));
    let request = client.request("GET", &path, "")?;
    Ok(client.sender.send_request(request).await?.into_body())
}

async fn until_last(watch: &mut Incoming) -> Result<()> {
    let mut tail = Vec::new();
    loop {
        let frame =
            watch.frame().await.context("the watch has ended")?.context("a watch was cut")?;
        tail.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        if tail.windows(13).any(|part| part == br#""name":"last""#) {
            return Ok(());
        }
    }
}

async fn ask_everything(client: &mut Client, name: &str, seen: &mut Seen) {
    let llama = format!("{}/honest-0", llamas(NAMESPACE));
    for path in [&llama, "/readyz", GROUP] {
        let began = Instant::now();
        let outcome = match timeout(PATIENCE, client.ask("GET", path, "")).await {
            Ok(Ok((200, _))) => Ok(()),
            Ok(Ok((status, answer))) => Err(anyhow::anyhow!(
                "{status} {}",
                String::from_utf8_lossy(&answer[..answer.len().min(200)])
            )),
            Ok(Err(error)) => Err(error),
            Err(late) => Err(late.into()),
        };
        seen.note(&format!("GET {path} on {name} connection"), began, outcome);
    }
}

impl Seen {
    fn note(&mut self, what: &str, began: Instant, outcome: Result<()>) {
        let took = began.elapsed();
        if took > self.longest {
            self.longest = took;
            what.clone_into(&mut self.waited_for);
        }
        if let Err(error) = outcome
            && self.faults.len() < 3
        {
            self.faults.push(format!("{what}: {error:#}"));
        }
    }
}
