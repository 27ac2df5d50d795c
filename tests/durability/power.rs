//! Power failures and disk errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail, ensure};
use farm_operator::v1alpha::Llama;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;

use crate::history::State;
use crate::installation::Installation;
use crate::llama;
use crate::recorder::{Random, Record, Recorder, Recording, length};

const WRITERS: u64 = 8;
/// More writes than the log holds before it is written to the file.
const WRITES: u32 = 60;
/// The number of steps for which a disk pretends that they were synced, which covers some writes of llamas.
const LIES: usize = 500;
/// `EIO`, after which the contents of the disk are unknown, and `ENOSPC`.
const ERRORS: [i32; 2] = [5, 28];

/// A write of a llama. The writes of a llama are sequential: each was requested and, in most cases, acknowledged. Both
/// times are measured by the length of the record of file operations.
#[derive(Clone, Debug)]
struct Step {
    state: State,
    asked: u64,
    acknowledged: Option<u64>,
}

#[derive(Clone)]
struct Steps {
    record: PathBuf,
    of: Arc<Mutex<BTreeMap<String, Vec<Step>>>>,
}

impl Steps {
    fn new(record: &Path) -> Self {
        Self { record: record.to_owned(), of: Arc::default() }
    }

    fn ask(&self, name: &str, state: State) -> Result<()> {
        let step = Step { state, asked: length(&self.record)?, acknowledged: None };
        let mut of = self.of.lock().map_err(|_| anyhow::anyhow!("a writer has failed"))?;
        of.entry(name.to_owned()).or_default().push(step);
        Ok(())
    }

    fn acknowledge(&self, name: &str) -> Result<()> {
        let now = length(&self.record)?;
        let mut of = self.of.lock().map_err(|_| anyhow::anyhow!("a writer has failed"))?;
        let step = of.get_mut(name).and_then(|steps| steps.last_mut()).context("it was asked")?;
        step.acknowledged = Some(now);
        Ok(())
    }

    /// Checks that the found llamas are possible after a power failure at this length of the record.
    fn check(&self, found: &[Llama], at: u64) -> Result<()> {
        let of = self.of.lock().map_err(|_| anyhow::anyhow!("a writer has failed"))?;
        for (name, steps) in &*of {
            let is_acknowledged = |step: &Step| step.acknowledged.is_some_and(|when| when <= at);
            let first = steps.iter().rposition(is_acknowledged);
            let last = steps.iter().rposition(|step| step.asked <= at);
            let state = found.iter().find(|llama| llama.name_any() == *name);
            let state = state.map_or(State::Gone, |llama| State::Weighs(llama.spec.weight));
            let may_be = match (first, last) {
                (_, None) => state == State::Gone,
                (None, Some(last)) => {
                    state == State::Gone || steps[..=last].iter().any(|step| step.state == state)
                }
                (Some(first), Some(last)) => {
                    steps[first..=last].iter().any(|step| step.state == state)
                }
            };
            ensure!(may_be, "{name} is {state:?} at {at}: {first:?} to {last:?} of {steps:?}");
        }
        Ok(())
    }
}

/// Creates, changes and deletes llamas, until `WRITES` is reached or the program no longer responds.
async fn write(llamas: Api<Llama>, steps: Steps, writer: u64) -> Result<()> {
    let mut random = Random(writer);
    for count in 0..WRITES {
        let name = format!("w{writer}-{}", count / 8);
        let weight = f64::from(count);
        let text = "x".repeat(random.below(200_000) as usize);
        let state = if count % 8 == 7 { State::Gone } else { State::Weighs(weight) };
        steps.ask(&name, state)?;
        let annotations = json!({"text": text});
        let done = match count % 8 {
            0 => {
                let mut llama = llama(&name, weight);
                llama.annotations_mut().insert("text".to_owned(), text);
                llamas.create(&PostParams::default(), &llama).await.map(drop)
            }
            7 => llamas.delete(&name, &DeleteParams::default()).await.map(drop),
            _ => {
                let patch =
                    json!({"metadata": {"annotations": annotations}, "spec": {"weight": weight}});
                llamas.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
            }
        };
        if done.is_err() {
            return Ok(());
        }
        steps.acknowledge(&name)?;
    }
    Ok(())
}

async fn write_all(llamas: &Api<Llama>, steps: &Steps, writers: u64) -> Result<()> {
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        tasks.spawn(write(llamas.clone(), steps.clone(), writer));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// The llamas that a program serves from these files.
async fn shown(installation: &Installation, folder: &Path) -> Result<Vec<Llama>> {
    let program = installation.start_in(folder).await?;
    Ok(program.llamas.list(&ListParams::default()).await?.items)
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_power_loss_at_any_moment() -> Result<()> {
    let images: usize = std::env::var("IMAGES").map_or(Ok(40), |images| images.parse())?;
    let installation = Installation::new()?;
    let recorder = Recorder::build(installation.path())?;
    let (folder, record) = (installation.path().join("data"), installation.path().join("record"));
    let recording = Recording { folder: &folder, record: &record, failure: None };
    let mut program = installation.start_recorded(&recorder, &recording).await?;
    let steps = Steps::new(&record);
    write_all(&program.llamas, &steps, WRITERS).await?;
    program.process.kill();
    let record = Record::read(&record)?;
    println!("{} steps", record.count());

    let seed = 20_261_123;
    let (mut random, mut lost_by_lies) = (Random(seed), 0);
    for image in 0..images {
        // A lying disk must be detected; otherwise this test would check nothing.
        let lies = if image % 8 == 7 { LIES } else { 0 };
        let step = random.below(record.count() as u64) as usize;
        let files = installation.path().join(format!("image-{image}"));
        record.lose_power(step, &mut random, lies, &files)?;
        let checked = match shown(&installation, &files).await {
            Ok(found) => steps.check(&found, record.end_of(step)),
            Err(error) => Err(error),
        };
        match checked {
            Ok(()) => {}
            Err(_) if lies > 0 => lost_by_lies += 1,
            Err(error) => {
                return Err(error.context(format!("seed {seed}, image {image}, after step {step}")));
            }
        }
        std::fs::remove_dir_all(files)?;
    }
    ensure!(images < 16 || lost_by_lies > 0, "no image of a disk that lies was found out");
    println!("{images} images, {lost_by_lies} of {} of a disk that lies found out", images / 8);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_fails_at_any_step() -> Result<()> {
    let failures: usize = std::env::var("FAILURES").map_or(Ok(12), |failures| failures.parse())?;
    let installation = Installation::new()?;
    let recorder = Recorder::build(installation.path())?;
    for failure in 0..failures {
        // The first failures happen during the start, the others during many writes.
        let step = 1 + failure * (failure + 3);
        let folder = installation.path().join(format!("failure-{failure}"));
        let record = installation.path().join(format!("record-{failure}"));
        let error = ERRORS[failure % 2];
        let recording =
            Recording { folder: &folder, record: &record, failure: Some((step, error)) };
        let steps = Steps::new(&record);
        match installation.start_recorded(&recorder, &recording).await {
            Ok(mut program) => {
                write_all(&program.llamas, &steps, 2).await?;
                if error == ERRORS[0] {
                    ensure!(!program.process.wait()?.success(), "it went on after step {step}");
                    let said = program.process.printed();
                    ensure!(said.contains("the store has failed"), "step {step}: {said}");
                }
            }
            Err(error) if format!("{error:#}").contains("objects.db") => {}
            Err(error) => bail!(error.context(format!("step {step}: not a word about the file"))),
        }
        let found = shown(&installation, &folder).await.with_context(|| format!("step {step}"))?;
        steps.check(&found, u64::MAX).with_context(|| format!("step {step}"))?;
    }
    Ok(())
}
