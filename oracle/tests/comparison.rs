//! Every row of `rows/`, sent to a real kube-apiserver and to us.
//!
//! Arguments are those of any test: `cargo test -p oracle --test comparison
//! watch` runs the rows with "watch" in their topic or title. With
//! `ORACLE_TWICE=1` two real servers are compared, which shows what is noise.
//!
//! Generated rows come from the seeds behind `ORACLE_SEED` (0), as many as
//! `ORACLE_SEQUENCES` says (48 sequences and 300 of trees, or `unbounded`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use oracle::row::{BUILT_IN, Row, parse};
use oracle::run::{Outcome, Side, run};
use oracle::world::World;
use oracle::{formats, generate};
use oracle::{kubectl, metrics, openapi, schemas, trees, types};
use test_cluster::{Missing, Programs};
use tokio::runtime::Runtime;

/// Rows mostly wait for servers and watches.
const THREADS: usize = 8;

/// So many rows are generated, unless something else is asked for.
const SEQUENCES: u64 = 48;
/// The same of rows of trees, which wait for no watch.
const TREES: u64 = 300;

/// How many rows of a topic agree, differ as is known, and differ.
type Summary = BTreeMap<String, [usize; 3]>;

struct Shared {
    runtime: Runtime,
    world: Option<World>,
    /// Held by rows; alone by those that look beyond their namespace.
    beyond: RwLock<()>,
    namespaces: AtomicUsize,
    summary: Mutex<Summary>,
}

fn main() -> Result<()> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    let mut rows = rows()?;
    let twice = std::env::var_os("ORACLE_TWICE").is_some();
    check_reasons(&rows)?;
    let required = std::env::var_os("REQUIRE_CONTROL_PLANE").is_some();
    let runtime = Runtime::new()?;
    let world = if arguments.list { Err("not wanted".to_owned()) } else { start(&runtime, twice) };
    let (world, missing) = match world {
        Ok(world) => (Some(world), None),
        Err(reason) => (None, Some(reason)),
    };
    let shared = Arc::new(Shared {
        runtime,
        world,
        beyond: RwLock::default(),
        namespaces: AtomicUsize::new(0),
        summary: Mutex::default(),
    });
    let mut trials = Vec::new();
    rows.extend(formats::rows(first_seed()?));
    for mut row in rows {
        if twice {
            row.requests.iter_mut().for_each(|request| request.known_differences.clear());
        }
        let name = format!("{}: {}", row.topic, row.title);
        let shared = Arc::clone(&shared);
        let reason = missing.clone();
        let trial = Trial::test(name, move || match reason {
            Some(reason) => Err(reason.into()),
            None => shared.compare(&row),
        });
        let is_ignored = missing.is_some() && !required;
        let kind = if missing.is_some() { "no control plane" } else { "" };
        trials.push(trial.with_kind(kind).with_ignored_flag(is_ignored));
    }
    for seeds in seeds()? {
        let shared = Arc::clone(&shared);
        let reason = missing.clone();
        let trial = Trial::test(seeds.to_string(), move || match reason {
            Some(reason) => Err(reason.into()),
            None => shared.generated(seeds),
        });
        trials.push(trial.with_ignored_flag(missing.is_some() && !required));
    }
    for (name, check) in [
        ("definitions: schemas are judged alike", Check::Schemas),
        ("openapi: documents are alike", Check::OpenApi),
        ("openapi: schemas of built-in kinds are alike", Check::OpenApiBuiltIn),
        ("kubectl: prints the same", Check::Kubectl),
        ("kubectl: prints the same of built-in kinds", Check::KubectlBuiltIn),
        ("metrics: are called alike", Check::Metrics),
        ("types: those of Kubernetes", Check::Types),
    ] {
        let shared = Arc::clone(&shared);
        let reason = missing.clone();
        let trial = Trial::test(name, move || match reason {
            Some(reason) => Err(reason.into()),
            None => shared.check(check),
        });
        trials.push(trial.with_ignored_flag(missing.is_some() && !required));
    }
    if let Some(reason) = &missing {
        eprintln!("the rows need a control plane: {reason}");
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    print_summary(&shared.summary.lock().unwrap_or_else(PoisonError::into_inner));
    // Everything is ended and removed before the process is.
    drop(shared);
    conclusion.exit();
}

/// The rows of all files.
fn rows() -> Result<Vec<Row>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rows");
    let mut rows = Vec::new();
    for (folder, of) in [(folder.clone(), ""), (folder.join(BUILT_IN), BUILT_IN)] {
        let entries = std::fs::read_dir(&folder)?;
        let mut files: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.retain(|file| file.is_file());
        files.sort();
        for file in files {
            let topic = file.file_stem().context("a file has a name")?.to_string_lossy();
            let topic = format!("{of} {topic}");
            rows.extend(parse(topic.trim(), &std::fs::read_to_string(&file)?)?);
        }
    }
    Ok(rows)
}

/// Each reason for a difference is a heading of `docs/differences.md`, and
/// each heading is the reason for one.
fn check_reasons(rows: &[Row]) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/differences.md");
    let text = std::fs::read_to_string(&file)?;
    let headings: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let requests = rows.iter().flat_map(|row| &row.requests);
    let reasons: BTreeSet<&str> = requests
        .flat_map(|request| &request.known_differences)
        .map(|known| known.reason.as_str())
        .collect();
    for reason in &reasons {
        ensure!(headings.contains(reason), "docs/differences.md does not explain {reason:?}");
    }
    for heading in headings {
        ensure!(reasons.contains(heading), "docs/differences.md: no row differs by {heading:?}");
    }
    Ok(())
}

/// Makes the row of a seed.
type Generator = fn(u64) -> Row;

/// Every so many seeds from one on, and the rows that are made from them.
#[derive(Clone, Copy)]
struct Seeds {
    first: u64,
    count: Option<u64>,
    topic: &'static str,
    row: Generator,
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: from seed {} every {THREADS}th", self.topic, self.first)
    }
}

/// What is compared besides rows.
#[derive(Clone, Copy)]
enum Check {
    Schemas,
    OpenApi,
    OpenApiBuiltIn,
    Kubectl,
    KubectlBuiltIn,
    Types,
    Metrics,
}

fn first_seed() -> Result<u64> {
    let given = std::env::var("ORACLE_SEED").ok();
    given.map_or(Ok(0), |seed| seed.parse()).context("ORACLE_SEED")
}

/// What each thread is to try.
fn seeds() -> Result<Vec<Seeds>> {
    let base = first_seed()?;
    let count = match std::env::var("ORACLE_SEQUENCES").ok().as_deref() {
        Some("unbounded") => Some(None),
        Some(count) => Some(Some(count.parse().context("ORACLE_SEQUENCES")?)),
        None => None,
    };
    let threads = THREADS as u64;
    let rows: [(_, Generator, _); 2] =
        [("generated", generate::row, SEQUENCES), ("generated trees", trees::row, TREES)];
    let of_thread = |(topic, row, usual), thread| Seeds {
        topic,
        row,
        first: base + thread,
        count: count
            .unwrap_or(Some(usual))
            .map(|count: u64| (count + threads - 1 - thread) / threads),
    };
    let of_rows = |one| (0..threads).map(move |thread| of_thread(one, thread));
    Ok(rows.into_iter().flat_map(of_rows).collect())
}

/// The world, or why there is none on this machine. What is broken is no reason.
fn start(runtime: &Runtime, twice: bool) -> Result<World, String> {
    let found = Programs::find();
    if let Err(error) = &found
        && error.is::<Missing>()
    {
        return Err(error.to_string());
    }
    match found.and_then(|programs| runtime.block_on(World::start(&programs, twice))) {
        Ok(world) => Ok(world),
        Err(error) => {
            eprintln!("the world of the rows cannot be made: {error:?}");
            std::process::exit(1);
        }
    }
}

impl Shared {
    fn compare(&self, row: &Row) -> Result<(), Failed> {
        let outcome = if row.alone {
            let _alone = self.beyond.write().unwrap_or_else(PoisonError::into_inner);
            self.run(row)
        } else {
            let _beside = self.beyond.read().unwrap_or_else(PoisonError::into_inner);
            self.run(row)
        };
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        let column = match &outcome {
            Ok(outcome) if outcome.report.is_empty() => usize::from(outcome.has_known),
            _ => 2,
        };
        self.count(&row.topic, column);
        match outcome {
            Ok(outcome) if outcome.report.is_empty() => Ok(()),
            Ok(outcome) => Err(outcome.report.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tries seeds until one differs; that is made short and told.
    fn generated(&self, seeds: Seeds) -> Result<(), Failed> {
        let numbers = (seeds.first..).step_by(THREADS);
        let count = seeds.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(0));
        for seed in numbers.take(count) {
            let _beside = self.beyond.read().unwrap_or_else(PoisonError::into_inner);
            let row = (seeds.row)(seed);
            let told = |error: anyhow::Error| format!("seed {seed}: {error:#}");
            let report = self.run(&row).map_err(told)?.report;
            if !report.is_empty() {
                // What cannot even be asked is no shorter row that differs.
                let differs =
                    |row: &Row| self.run(row).map(|outcome| outcome.report).unwrap_or_default();
                let short = generate::shrink(&row, |row| !differs(row).is_empty());
                let again = differs(&short);
                return Err(if again.is_empty() {
                    format!("seed {seed}, not always:\n\n{}\n{report}", row.to_text()).into()
                } else {
                    format!("seed {seed}, made short:\n\n{}\n{again}", short.to_text()).into()
                });
            }
            self.count(seeds.topic, 0);
        }
        Ok(())
    }

    fn count(&self, topic: &str, column: usize) {
        let mut summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
        summary.entry(topic.to_owned()).or_default()[column] += 1;
    }

    fn check(&self, check: Check) -> Result<(), Failed> {
        let world = self.world.as_ref().ok_or("there is no world")?;
        let (reference, direct) = (&world.reference.server, &world.direct.server);
        let report = self.runtime.block_on(async {
            match check {
                Check::Schemas => schemas::compare(reference).await,
                Check::OpenApi => openapi::compare(reference, direct).await,
                Check::OpenApiBuiltIn => {
                    let (plain, standalone) = (&world.plain.server, &world.standalone.server);
                    openapi::compare_built_in(plain, standalone).await
                }
                Check::Metrics => {
                    metrics::compare(&world.plain.server, &world.standalone.server).await
                }
                Check::Types => types::compare(reference).await,
                Check::KubectlBuiltIn => {
                    let (there, ours) = world.without_a_cluster();
                    kubectl::compare(there, "kubectl-built-in.calls", &there.kubeconfig(), &ours)
                }
                Check::Kubectl => {
                    let (there, here) = world.control_planes();
                    let (theirs, ours) = (there.kubeconfig(), here.kubeconfig());
                    kubectl::compare(there, "kubectl.calls", &theirs, &ours)
                }
            }
        });
        match report.map_err(|error| format!("{error:#}"))? {
            report if report.is_empty() => Ok(()),
            report => Err(report.into()),
        }
    }

    fn run(&self, row: &Row) -> Result<Outcome> {
        let world = self.world.as_ref().context("there is no world")?;
        if row.is_built_in() {
            return self.run_on(row, &world.plain, &world.standalone);
        }
        let mut outcome = self.run_on(row, &world.reference, &world.direct)?;
        if row.standalone && outcome.report.is_empty() {
            outcome.report = self.run_on(row, &world.plain, &world.standalone)?.report;
        }
        if row.aggregated && outcome.report.is_empty() {
            let aggregated = self.run_on(row, &world.reference, &world.aggregated)?;
            outcome.report = aggregated.report;
        }
        Ok(outcome)
    }

    fn run_on(&self, row: &Row, reference: &Side, other: &Side) -> Result<Outcome> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        // All of a length, and in no other text.
        let namespace = format!("row-{number:06}");
        self.runtime.block_on(run(row, reference, other, &namespace))
    }
}

fn print_summary(summary: &Summary) {
    if summary.is_empty() {
        return;
    }
    println!("{:20} {:>6} {:>6} {:>6}", "topic", "agree", "known", "differ");
    for (topic, [agree, known, differ]) in summary {
        println!("{topic:20} {agree:>6} {known:>6} {differ:>6}");
    }
}
