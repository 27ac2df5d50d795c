//! Members of etcd and replicas are suspended, killed, restarted and disconnected, while many clients read, write and
//! watch. etcd compacts revisions that are some seconds old. One replica has a clock that is an hour off.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use farm_operator::v1alpha::Llama;
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::core::ObjectList;
use kube::{Api, ResourceExt};
use test_cluster::{Etcd, Past, free_port};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::history::{Answer, Ask, Change, Listed, Record, Seen, check, merge};
use crate::installation::{Installation, Replica};
use crate::link::{Link, State};
use crate::llama;

const REPLICAS: usize = 3;
/// The replica with the wrong clock.
const WRONG: usize = 2;
const HOUR: i64 = 3_600;
const WRITERS: u64 = 32;
const NAMES: u64 = 12;
/// The timeout for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// The timeout of a request. The outcome of a request without a response in this time is unknown.
const REQUEST: Duration = Duration::from_secs(10);
/// etcd compacts revisions that were replaced longer ago than this interval, at the latest after twice the interval.
const FORGETS: [&str; 2] = ["--etcd-compaction-interval", "2s"];
/// The largest delay between the compaction in one member and in another.
const LAG: Duration = Duration::from_secs(1);

/// The shared state of all tasks.
struct World {
    apis: Vec<Api<Llama>>,
    past: Past,
    /// The log file of each replica.
    logs: Vec<PathBuf>,
    records: Mutex<Vec<Record>>,
    saying: AtomicU64,
    is_over: AtomicBool,
}

impl World {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Sends a request to a replica, and records its result.
    async fn ask(&self, replica: usize, name: &str, ask: Ask) -> Answer {
        let api = &self.apis[replica];
        let asked = Instant::now();
        let answer = timeout(REQUEST, answer(api, name, ask)).await.unwrap_or(Answer::Unknown);
        let record = Record { name: name.to_owned(), ask, answer, asked, answered: Instant::now() };
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        answer
    }
}

#[allow(clippy::cast_precision_loss, reason = "what is said is small")]
fn saying(name: &str, says: u64) -> Llama {
    llama(name, says as f64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what is said is small")]
fn found(llama: &Llama) -> Result<(u64, u64)> {
    let number = llama.resource_version().context("no version")?.parse()?;
    Ok((number, llama.spec.weight as u64))
}

async fn answer(api: &Api<Llama>, name: &str, ask: Ask) -> Answer {
    let params = PostParams::default();
    let done = match ask {
        Ask::Get => match api.get_opt(name).await {
            Ok(None) => return Answer::Found(None),
            Ok(Some(llama)) => {
                return found(&llama).map_or(Answer::Unknown, |found| Answer::Found(Some(found)));
            }
            Err(error) => Err(error),
        },
        Ask::Create(says) => api.create(&params, &saying(name, says)).await.map(Some),
        Ask::Replace(at, says) => {
            let mut llama = saying(name, says);
            llama.metadata.resource_version = Some(at.to_string());
            api.replace(name, &params, &llama).await.map(Some)
        }
        Ask::Delete(at) => {
            let resource_version = Some(at.to_string());
            let preconditions = Some(Preconditions { resource_version, uid: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            api.delete(name, &params).await.map(|_| None)
        }
    };
    match done {
        Ok(written) => {
            let number = written.and_then(|llama| found(&llama).ok()).map(|(number, _)| number);
            Answer::Written(number)
        }
        Err(kube::Error::Api(status)) => match status.code {
            409 => Answer::Conflict,
            404 => Answer::Missing,
            // The replica is not ready, has too many requests, or its store is unavailable.
            429 | 503 => Answer::NotDone,
            _ => Answer::Unknown,
        },
        Err(_) => Answer::Unknown,
    }
}

/// Reads, creates, changes and deletes llamas, each time at a random replica.
async fn write(world: Arc<World>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    // A revision of each name that this writer has seen.
    let mut seen = vec![0_u64; usize::try_from(NAMES).unwrap_or(1)];
    while !world.is_over() {
        let replica = random.usize(..REPLICAS);
        let index = random.usize(..seen.len());
        let name = format!("n{index}");
        let says = world.saying.fetch_add(1, Ordering::Relaxed);
        if let Answer::Found(found) = world.ask(replica, &name, Ask::Get).await {
            seen[index] = found.map_or(seen[index], |(number, _)| number);
        } else {
            sleep(Duration::from_millis(20)).await;
        }
        let at = seen[index].max(1);
        let ask = match random.u8(..10) {
            0..3 => Ask::Create(says),
            3..8 => Ask::Replace(at, says),
            _ => Ask::Delete(at),
        };
        world.ask(random.usize(..REPLICAS), &name, ask).await;
    }
}

/// A client that follows all changes.
#[derive(Clone, Copy, Debug)]
struct Follower {
    replica: usize,
    /// Whether the client continues at the next replica when a watch ends, or at the same one.
    moves: bool,
}

/// The reason why a watch has ended.
enum Ended {
    Broken,
    /// The start revision was too old (410).
    Lost,
}

/// Follows all changes after a revision, until a llama with the name `until` appears. If the revision was compacted, lists and
/// continues from the list.
async fn follow(world: Arc<World>, who: Follower, from: u64, until: String) -> Result<Seen> {
    let (mut seen, mut at, mut replica) = (Seen::default(), from, who.replica);
    loop {
        let api = &world.apis[replica % REPLICAS];
        let ended = watch(api, (&mut seen, &mut at), &until).await?;
        let is_last = |change: &Change| change.name == until;
        if seen.changes.last().is_some_and(is_last) {
            return Ok(seen);
        }
        if matches!(ended, Ended::Lost) {
            let asked = replica % REPLICAS;
            ensure_forgotten(&world, asked, at).await.with_context(|| format!("{who:?}"))?;
            let list = list(&world, replica, at).await?;
            at = list.number;
            let is_over = list.items.contains_key(&until);
            seen.lists.push(list);
            if is_over {
                return Ok(seen);
            }
        } else {
            replica += usize::from(who.moves);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Watches one replica after a revision, until the watch ends.
async fn watch(api: &Api<Llama>, (seen, at): (&mut Seen, &mut u64), until: &str) -> Result<Ended> {
    let params = WatchParams::default().timeout(290);
    let mut events = match timeout(REQUEST, api.watch(&params, &at.to_string())).await {
        Ok(Ok(events)) => events.boxed(),
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ok(Ended::Lost),
        Ok(Err(_)) | Err(_) => return Ok(Ended::Broken),
    };
    loop {
        // If a replica does not respond because it is suspended, the client continues at another one.
        let Ok(Ok(Some(event))) = timeout(REQUEST, events.try_next()).await else {
            return Ok(Ended::Broken);
        };
        let (llama, is_gone) = match event {
            WatchEvent::Added(llama) | WatchEvent::Modified(llama) => (llama, false),
            WatchEvent::Deleted(llama) => (llama, true),
            WatchEvent::Bookmark(bookmark) => {
                // All changes up to the bookmark were reported.
                let number: u64 = bookmark.metadata.resource_version.parse()?;
                ensure!(number >= *at, "a bookmark at {number} comes after {at}");
                *at = number;
                continue;
            }
            WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Lost),
            WatchEvent::Error(_) => return Ok(Ended::Broken),
        };
        let ((number, says), name) = (found(&llama)?, llama.name_any());
        ensure!(number > *at, "{name} at {number} comes after {at}");
        *at = number;
        let is_last = name == until;
        seen.changes.push(Change { number, name, says: (!is_gone).then_some(says) });
        if is_last {
            return Ok(Ended::Broken);
        }
    }
}

/// Checks that a watch ends with 410 only if etcd has compacted its revision.
async fn ensure_forgotten(world: &World, replica: usize, at: u64) -> Result<()> {
    let told = Instant::now();
    loop {
        let past = world.past.clone();
        let compacted = tokio::task::spawn_blocking(move || past.compacted()).await?;
        if at < compacted {
            return Ok(());
        }
        // The queried member may be behind the one that has reported the compaction.
        let is_late = told.elapsed() > LAG;
        if is_late {
            let log = std::fs::read_to_string(&world.logs[replica])?;
            bail!("a watch has lost its place at {at}, and {compacted} was compacted:\n{log}");
        }
    }
}

/// Lists the llamas, at this replica or at one of the next.
async fn list(world: &World, mut replica: usize, after: u64) -> Result<Listed> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let api = &world.apis[replica % REPLICAS];
        match timeout(REQUEST, api.list(&ListParams::default())).await {
            Ok(Ok(list)) => {
                let list = listed(list, after)?;
                let number = list.number;
                ensure!(number >= after, "a list at {number} comes after {after}");
                return Ok(list);
            }
            failed => ensure!(Instant::now() < deadline, "nothing can be listed: {failed:?}"),
        }
        replica += 1;
        sleep(Duration::from_millis(20)).await;
    }
}

fn listed(list: ObjectList<Llama>, after: u64) -> Result<Listed> {
    let number = list.metadata.resource_version.context("no version")?.parse()?;
    let mut items = BTreeMap::new();
    for llama in list.items {
        items.insert(llama.name_any(), found(&llama)?);
    }
    Ok(Listed { after, number, items })
}

/// The links of each replica to the members; the preferred member is first.
type Links = Vec<Vec<Link>>;

fn urls(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| link.url.clone()).collect()
}

/// Causes a random failure for some time. Returns its description.
async fn disturb(
    etcd: &mut Etcd,
    (installation, replicas, links): (&Installation, &mut [Replica], &Links),
    random: &mut fastrand::Rng,
) -> Result<String> {
    let which = random.usize(..REPLICAS);
    let pause = Duration::from_millis(random.u64(500..3_000));
    let what = match random.u8(..7) {
        0 => {
            etcd.member(which).suspend()?;
            sleep(pause).await;
            etcd.member(which).resume()?;
            format!("member {which} was held for {pause:?}")
        }
        1 => {
            let leads = etcd.leader();
            etcd.member(which).kill();
            sleep(pause).await;
            etcd.restart(which)?;
            let role = if leads == Some(which) { "the leader" } else { "a member" };
            format!("{role}, {which}, was killed for {pause:?}")
        }
        2 => {
            replicas[which].process.suspend()?;
            sleep(pause).await;
            replicas[which].process.resume()?;
            format!("replica {which} was held for {pause:?}")
        }
        3 => {
            let port = replicas[which].port;
            replicas[which].process.kill();
            replicas[which] = installation.start_on(port, &urls(&links[which]), &FORGETS).await?;
            format!("replica {which} was killed")
        }
        all => {
            let states = [State::HoldsRequests, State::HoldsAnswers, State::HoldsAll, State::Cut];
            let state = states[random.usize(..states.len())];
            // Either the link to the preferred member, or all links.
            let lost = if all == 4 { &links[which][..] } else { &links[which][..1] };
            lost.iter().for_each(|link| link.set(state));
            sleep(pause).await;
            lost.iter().for_each(|link| link.set(State::Open));
            format!("{} links of replica {which}: {state:?} for {pause:?}", lost.len())
        }
    };
    // The process or link recovers before the next failure.
    sleep(Duration::from_millis(random.u64(200..1_500))).await;
    Ok(what)
}

/// Each replica prefers another member.
fn rotated(urls: &[String], by: usize) -> Vec<String> {
    let mut urls = urls.to_vec();
    urls.rotate_left(by % REPLICAS);
    urls
}

/// Shifts the clock of a replica to the past or to the future.
fn set_clock_wrong(installation: &mut Installation, port: u16, is_slow: bool) -> Result<()> {
    let clock = Clock::build(installation.path(), if is_slow { -HOUR } else { HOUR })?;
    installation.set_clock(port, clock);
    Ok(())
}

async fn ensure_clock_is_wrong(installation: &Installation, replica: &Replica) -> Result<()> {
    let Some(clock) = installation.clock_of(replica.port) else { return Ok(()) };
    let made = replica.llamas.create(&PostParams::default(), &llama("dated", 0.0)).await?;
    let dated = made.creation_timestamp().context("no time of creation")?.0.as_second();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let off = dated - i64::try_from(now)?;
    println!("the clock of replica {WRONG} is {off} s off");
    ensure!((off - clock.seconds()).abs() < HOUR / 2, "it is not {} s", clock.seconds());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_of_replicas_are_linearizable_during_failures() -> Result<()> {
    let seconds = std::env::var("SECONDS").map_or(Ok(20), |seconds| seconds.parse())?;
    let seed = std::env::var("SEED").map_or(Ok(fastrand::u64(..)), |seed| seed.parse())?;
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let Some(mut etcd) = Etcd::start_unless_missing(3)? else { return Ok(()) };
    let mut installation = Installation::new(etcd.urls())?;
    let mut replicas = Vec::new();
    let mut links = Links::new();
    for index in 0..REPLICAS {
        let mut own = Vec::new();
        for url in rotated(&etcd.urls(), index) {
            own.push(Link::to(&url).await?);
        }
        let port = free_port()?;
        if index == WRONG {
            set_clock_wrong(&mut installation, port, random.bool())?;
        }
        replicas.push(installation.start_on(port, &urls(&own), &FORGETS).await?);
        links.push(own);
    }
    ensure_clock_is_wrong(&installation, &replicas[WRONG]).await?;
    let begin = listed(replicas[0].llamas.list(&ListParams::default()).await?, 0)?;
    let from = begin.number;
    let world = Arc::new(World {
        apis: replicas.iter().map(|replica| replica.llamas.clone()).collect(),
        past: etcd.past(),
        logs: replicas.iter().map(|replica| installation.log(replica.port)).collect(),
        records: Mutex::default(),
        saying: AtomicU64::new(1),
        is_over: AtomicBool::new(false),
    });
    let mut watches = JoinSet::new();
    for replica in 0..REPLICAS {
        for moves in [false, true] {
            let who = Follower { replica, moves };
            watches.spawn(follow(Arc::clone(&world), who, from, "last".to_owned()));
        }
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(Arc::clone(&world), seed.wrapping_add(writer)));
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut disturbed = Vec::new();
    while Instant::now() < end {
        let what = disturb(&mut etcd, (&installation, &mut replicas, &links), &mut random).await?;
        println!("{what}");
        disturbed.push(what);
    }
    world.is_over.store(true, Ordering::Relaxed);
    timeout(PATIENCE, async { while writers.join_next().await.is_some() {} }).await?;
    etcd.wait_healthy()?;
    // After this pause, no earlier request is in progress.
    sleep(REQUEST).await;
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = world.apis[0].create(&PostParams::default(), &llama("last", 0.0)).await {
        ensure!(Instant::now() < deadline, "nothing can be written any more: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    let mut seen: Vec<Seen> = Vec::new();
    while let Some(watched) = timeout(PATIENCE, watches.join_next()).await? {
        seen.push(watched??);
    }
    let changes = merge(&begin.items, &seen)?;
    let lists: Vec<usize> = seen.iter().map(|one| one.lists.len()).collect();
    let compacted = world.past.compacted();
    println!("all before {compacted} was compacted; watches have begun anew {lists:?} times");
    ensure!(compacted > from, "nothing was compacted");
    let records = world.records.lock().unwrap_or_else(PoisonError::into_inner);
    let count =
        |is_it: fn(&Answer) -> bool| records.iter().filter(|one| is_it(&one.answer)).count();
    let written = count(|answer| matches!(answer, Answer::Written(_)));
    println!(
        "{} requests, {written} writes, {} conflicts, {} of unknown outcome, {} not done; {} changes",
        records.len(),
        count(|answer| *answer == Answer::Conflict),
        count(|answer| *answer == Answer::Unknown),
        count(|answer| *answer == Answer::NotDone),
        changes.len()
    );
    ensure!(written > 100, "hardly anything was written: {written}");
    check(&changes, &records)
}
