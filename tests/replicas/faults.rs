//! Members of etcd and replicas are held, killed and started again, and lose each other, while many read,
//! write and watch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use farm_operator::Llama;
use futures::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use test_cluster::Etcd;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::history::{Answer, Ask, Change, Record, check};
use crate::link::{Link, State};
use crate::place::{Place, Replica};
use crate::{etcd, llama};

const REPLICAS: usize = 3;
const WRITERS: u64 = 32;
const NAMES: u64 = 12;
/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a request may take, of which nobody knows then what has come of it.
const REQUEST: Duration = Duration::from_secs(10);

/// What all of them share.
struct World {
    apis: Vec<Api<Llama>>,
    records: Mutex<Vec<Record>>,
    saying: AtomicU64,
    is_over: AtomicBool,
}

impl World {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Asks a replica, and notes what comes of it.
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
            // It is not there yet, too many ask, or the store does not answer.
            429 | 503 => Answer::NotDone,
            _ => Answer::Unknown,
        },
        Err(_) => Answer::Unknown,
    }
}

/// Reads, makes, changes and removes, now at this replica and now at that one.
async fn write(world: Arc<World>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    // What it has seen of each name at some time.
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

/// Follows all changes from a revision on, at one replica after the other, until something is made for
/// it to end with.
async fn watch(world: Arc<World>, first: usize, from: u64, until: String) -> Result<Vec<Change>> {
    let (mut changes, mut at, mut replica) = (Vec::new(), from, first);
    loop {
        let api = &world.apis[replica % REPLICAS];
        replica += 1;
        let params = WatchParams::default().timeout(290);
        let Ok(Ok(events)) = timeout(REQUEST, api.watch(&params, &at.to_string())).await else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut events = events.boxed();
        loop {
            // A replica that is held is left.
            let event = match timeout(REQUEST, events.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(_) | Err(_) => break,
            };
            let (llama, is_gone) = match event {
                WatchEvent::Added(llama) | WatchEvent::Modified(llama) => (llama, false),
                WatchEvent::Deleted(llama) => (llama, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) if status.code == 410 => {
                    bail!("the watch has lost its place at {at}: {status:?}");
                }
                WatchEvent::Error(_) => break,
            };
            let ((number, says), name) = (found(&llama)?, llama.name_any());
            ensure!(number > at, "{name} at {number} comes after {at}");
            at = number;
            let is_last = name == until;
            changes.push(Change { number, name, says: (!is_gone).then_some(says) });
            if is_last {
                return Ok(changes);
            }
        }
    }
}

/// The links of each replica to the members, that which it asks first in front.
type Links = Vec<Vec<Link>>;

fn urls(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| link.url.clone()).collect()
}

/// Disturbs something for a while, and says what.
async fn disturb(
    etcd: &mut Etcd,
    (place, replicas, links): (&Place, &mut [Replica], &Links),
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
            replicas[which] = place.start_on(port, &urls(&links[which]), &[]).await?;
            format!("replica {which} was killed")
        }
        all => {
            let states = [State::HoldsRequests, State::HoldsAnswers, State::HoldsAll, State::Cut];
            let state = states[random.usize(..states.len())];
            // The one that it asks first, or all of them.
            let lost = if all == 4 { &links[which][..] } else { &links[which][..1] };
            lost.iter().for_each(|link| link.set(state));
            sleep(pause).await;
            lost.iter().for_each(|link| link.set(State::Open));
            format!("{} links of replica {which}: {state:?} for {pause:?}", lost.len())
        }
    };
    // Who was away takes part again.
    sleep(Duration::from_millis(random.u64(200..1_500))).await;
    Ok(what)
}

/// Each replica has another member that it asks first.
fn rotated(urls: &[String], by: usize) -> Vec<String> {
    let mut urls = urls.to_vec();
    urls.rotate_left(by % REPLICAS);
    urls
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_if_there_were_one_server() -> Result<()> {
    let seconds = std::env::var("SECONDS").map_or(Ok(20), |seconds| seconds.parse())?;
    let seed = std::env::var("SEED").map_or(Ok(fastrand::u64(..)), |seed| seed.parse())?;
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let Some(mut etcd) = etcd(3)? else { return Ok(()) };
    let place = Place::new(etcd.urls())?;
    let mut replicas = Vec::new();
    let mut links = Links::new();
    for index in 0..REPLICAS {
        let mut own = Vec::new();
        for url in rotated(&etcd.urls(), index) {
            own.push(Link::to(&url).await?);
        }
        replicas.push(place.start_on(crate::place::free_port()?, &urls(&own), &[]).await?);
        links.push(own);
    }
    let made = replicas[0].llamas.create(&PostParams::default(), &llama("first", 0.0)).await?;
    let (from, _) = found(&made)?;
    let world = Arc::new(World {
        apis: replicas.iter().map(|replica| replica.llamas.clone()).collect(),
        records: Mutex::default(),
        saying: AtomicU64::new(1),
        is_over: AtomicBool::new(false),
    });
    let mut watches = JoinSet::new();
    for index in 0..REPLICAS {
        watches.spawn(watch(Arc::clone(&world), index, from, "last".to_owned()));
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(Arc::clone(&world), seed.wrapping_add(writer)));
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut disturbed = Vec::new();
    while Instant::now() < end {
        let what = disturb(&mut etcd, (&place, &mut replicas, &links), &mut random).await?;
        println!("{what}");
        disturbed.push(what);
    }
    world.is_over.store(true, Ordering::Relaxed);
    timeout(PATIENCE, async { while writers.join_next().await.is_some() {} }).await?;
    etcd.wait_healthy()?;
    // Nothing that was begun is done after this.
    sleep(REQUEST).await;
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = world.apis[0].create(&PostParams::default(), &llama("last", 0.0)).await {
        ensure!(Instant::now() < deadline, "nothing can be written any more: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    let mut shown: Vec<Vec<Change>> = Vec::new();
    while let Some(watched) = timeout(PATIENCE, watches.join_next()).await? {
        shown.push(watched??);
    }
    for other in &shown[1..] {
        ensure!(
            other.len() == shown[0].len() && *other == shown[0],
            "watches have shown other things"
        );
    }
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
        shown[0].len()
    );
    ensure!(written > 100, "hardly anything was written: {written}");
    check(&shown[0], &records)
}
