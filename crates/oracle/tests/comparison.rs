//! Sends every row of `rows/` to a real kube-apiserver and to our server, and compares the responses.
//!
//! Arguments are those of any test: `cargo test -p oracle --test comparison watch` runs the rows with "watch" in their
//! topic or title. With `ORACLE_TWICE=1` two real servers are compared, which shows the differences between two runs of
//! kube-apiserver.
//!
//! Further rows are generated from the seeds that start at `ORACLE_SEED` (0). `ORACLE_SEQUENCES` sets their number. By
//! default there are 48 sequences, 100 rows of writes by several managers, 60 of built-in kinds, 300 of trees, 80 of
//! YAML, 4 definitions with rules, and 16 definitions for pruning. With `unbounded`, rows are generated until the
//! process is stopped.

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
use oracle::{
    applies, built_in_applies, discovery, each, fields, kubectl, metrics, openapi, policy, pruning,
    rules, schemas, trees, types, yaml,
};
use oracle::{formats, generate};
use test_cluster::{Missing, Programs};
use tokio::runtime::Runtime;

/// The number of threads. They use little CPU time, because rows mostly wait for servers and watches.
const THREADS: usize = 8;

/// The default number of generated rows.
const SEQUENCES: u64 = 48;
/// The default number of generated rows of trees, which do not wait for watches.
const TREES: u64 = 300;
/// The default number of generated rows in which several managers write one object.
const APPLIES: u64 = 100;
/// The default number of such rows for built-in kinds.
const BUILT_IN_APPLIES: u64 = 60;

/// The default number of generated definitions with rules, with about sixteen rules each.
const RULES: u64 = 4;
/// The default number of rows of generated YAML.
const YAML: u64 = 80;
/// The default number of generated definitions for pruning, with 24 schemas and 60 objects each.
const PRUNING: u64 = 16;

/// The number of rows that agree, that have known differences, and that differ, by topic.
type Summary = BTreeMap<String, [usize; 3]>;

struct Shared {
    runtime: Runtime,
    world: Option<World>,
    /// Rows hold a read lock. A row that reads beyond its namespace holds the write lock.
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
    let required = test_cluster::is_required();
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
    rows.extend(yaml::rows());
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
    for seeds in shares(RULES)? {
        let shared = Arc::clone(&shared);
        let reason = missing.clone();
        let name = format!("generated rules: from seed {} every {THREADS}th", seeds.first);
        let trial = Trial::test(name, move || match reason {
            Some(reason) => Err(reason.into()),
            None => shared.rules(seeds),
        });
        trials.push(trial.with_ignored_flag(missing.is_some() && !required));
    }
    for seeds in shares(PRUNING)? {
        let shared = Arc::clone(&shared);
        let reason = missing.clone();
        let name = format!("generated pruning: from seed {} every {THREADS}th", seeds.first);
        let trial = Trial::test(name, move || match reason {
            Some(reason) => Err(reason.into()),
            None => shared.pruning(seeds),
        });
        trials.push(trial.with_ignored_flag(missing.is_some() && !required));
    }
    for kind in fields::kinds()? {
        let shared = Arc::clone(&shared);
        let reason = missing.clone();
        let trial = Trial::test(format!("fields: of {kind}"), move || match reason {
            Some(reason) => Err(reason.into()),
            None => shared.fields(&kind),
        });
        trials.push(trial.with_ignored_flag(missing.is_some() && !required));
    }
    for (name, check) in [
        ("definitions: schemas are judged alike", Check::Schemas),
        ("openapi: documents are alike", Check::OpenApi),
        ("openapi: schemas of built-in kinds are alike", Check::OpenApiBuiltIn),
        ("discovery: resources of built-in kinds are alike", Check::Discovery),
        ("kubectl: prints the same", Check::Kubectl),
        ("kubectl: prints the same of built-in kinds", Check::KubectlBuiltIn),
        ("metrics: are called alike", Check::Metrics),
        ("types: those of Kubernetes", Check::Types),
        ("policy: roles and bindings of kube-apiserver", Check::Policy),
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
    // Stops the servers and removes their files before the process exits.
    drop(shared);
    conclusion.exit();
}

/// Returns the rows of all files.
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
            let text = std::fs::read_to_string(&file)?;
            for text in each::texts(&text).with_context(|| topic.trim().to_owned())? {
                rows.extend(parse(topic.trim(), &text)?);
            }
        }
    }
    Ok(rows)
}

/// Checks that each reason for a difference is a heading of `docs/reference/differences.md`, and that each heading is the reason
/// for a difference.
fn check_reasons(rows: &[Row]) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/differences.md");
    let text = std::fs::read_to_string(&file)?;
    let headings: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let requests = rows.iter().flat_map(|row| &row.requests);
    let reasons: BTreeSet<&str> = requests
        .flat_map(|request| &request.known_differences)
        .map(|known| known.reason.as_str())
        .collect();
    for reason in &reasons {
        ensure!(
            headings.contains(reason),
            "docs/reference/differences.md does not explain {reason:?}"
        );
    }
    for heading in headings {
        ensure!(
            reasons.contains(heading),
            "docs/reference/differences.md: no row differs by {heading:?}"
        );
    }
    Ok(())
}

/// A function that generates the row of a seed.
type Generator = fn(u64) -> Row;

/// The seeds of one thread, and the generator of their rows. Seeds start at `first` and have the number of threads as
/// their step.
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

/// A comparison that does not use rows.
#[derive(Clone, Copy)]
enum Check {
    Schemas,
    OpenApi,
    OpenApiBuiltIn,
    Discovery,
    Kubectl,
    KubectlBuiltIn,
    Types,
    Policy,
    Metrics,
}

fn first_seed() -> Result<u64> {
    let given = std::env::var("ORACLE_SEED").ok();
    given.map_or(Ok(0), |seed| seed.parse()).context("ORACLE_SEED")
}

/// Returns the number of generated rows, by default `usual`; `None` for no limit.
fn tried(usual: u64) -> Result<Option<u64>> {
    Ok(match std::env::var("ORACLE_SEQUENCES").ok().as_deref() {
        Some("unbounded") => None,
        Some(count) => Some(count.parse().context("ORACLE_SEQUENCES")?),
        None => Some(usual),
    })
}

/// Returns the number of rows for one thread, of `count` in total.
fn share(count: Option<u64>, thread: u64) -> Option<u64> {
    let threads = THREADS as u64;
    count.map(|count| (count + threads - 1 - thread) / threads)
}

/// The seeds of the definitions that a thread compares.
#[derive(Clone, Copy)]
struct DefinitionSeeds {
    first: u64,
    count: Option<u64>,
}

fn shares(usual: u64) -> Result<Vec<DefinitionSeeds>> {
    let (base, count) = (first_seed()?, tried(usual)?);
    let of_thread = |thread| DefinitionSeeds { first: base + thread, count: share(count, thread) };
    Ok((0..THREADS as u64).map(of_thread).collect())
}

/// Returns the seeds of each thread.
fn seeds() -> Result<Vec<Seeds>> {
    let base = first_seed()?;
    let threads = THREADS as u64;
    let rows: [(_, Generator, _); 5] = [
        ("generated", generate::row, SEQUENCES),
        ("generated trees", trees::row, TREES),
        ("generated applies", applies::row, APPLIES),
        ("generated built-in applies", built_in_applies::row, BUILT_IN_APPLIES),
        ("generated YAML", yaml::generated, YAML),
    ];
    let mut seeds = Vec::new();
    for (topic, row, usual) in rows {
        let count = tried(usual)?;
        let of_thread =
            |thread| Seeds { topic, row, first: base + thread, count: share(count, thread) };
        seeds.extend((0..threads).map(of_thread));
    }
    Ok(seeds)
}

/// Starts the servers. Returns an error message if this machine lacks the programs. If a program fails, the process exits.
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

    /// Compares the rows of seeds until one differs. That row is shrunk and reported.
    fn generated(&self, seeds: Seeds) -> Result<(), Failed> {
        let numbers = (seeds.first..).step_by(THREADS);
        let count = seeds.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(0));
        for seed in numbers.take(count) {
            let _beside = self.beyond.read().unwrap_or_else(PoisonError::into_inner);
            let row = (seeds.row)(seed);
            let told = |error: anyhow::Error| format!("seed {seed}: {error:#}");
            let report = self.run(&row).map_err(told)?.report;
            if !report.is_empty() {
                // A row that fails with an error does not count as a difference.
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

    /// Compares definitions with rules until one differs.
    fn rules(&self, seeds: DefinitionSeeds) -> Result<(), Failed> {
        let world = self.world.as_ref().ok_or("there is no world")?;
        let numbers = (seeds.first..).step_by(THREADS);
        let count = seeds.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(0));
        for seed in numbers.take(count) {
            let _beside = self.beyond.read().unwrap_or_else(PoisonError::into_inner);
            let (plain, ours) = (&world.plain.server, &world.standalone.server);
            let compared = self.runtime.block_on(rules::compare(seed, plain, ours));
            let (count, report) = compared.map_err(|error| format!("seed {seed}: {error:#}"))?;
            if !report.is_empty() {
                return Err(format!("seed {seed}:\n\n{report}").into());
            }
            for _ in 0..count {
                self.count("generated rules", 0);
            }
        }
        Ok(())
    }

    /// Compares the pruning of each seed until one differs.
    fn pruning(&self, seeds: DefinitionSeeds) -> Result<(), Failed> {
        let world = self.world.as_ref().ok_or("there is no world")?;
        let numbers = (seeds.first..).step_by(THREADS);
        let count = seeds.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(0));
        for seed in numbers.take(count) {
            let _beside = self.beyond.read().unwrap_or_else(PoisonError::into_inner);
            let (plain, ours) = (&world.plain.server, &world.standalone.server);
            let compared = self.runtime.block_on(pruning::compare(seed, plain, ours));
            let (count, report) = compared.map_err(|error| format!("seed {seed}: {error:#}"))?;
            if !report.is_empty() {
                return Err(format!("seed {seed}:\n\n{report}").into());
            }
            for _ in 0..count {
                self.count("generated pruning", 0);
            }
        }
        Ok(())
    }

    /// Compares every field of a built-in kind.
    fn fields(&self, kind: &str) -> Result<(), Failed> {
        let world = self.world.as_ref().ok_or("there is no world")?;
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("row-{number:06}");
        let (plain, ours) = (&world.plain, &world.standalone);
        let compared = self.runtime.block_on(async {
            plain.make_namespace(&namespace).await?;
            ours.make_namespace(&namespace).await?;
            fields::compare(kind, &namespace, plain, ours).await
        });
        let (count, report) = compared.map_err(|error| format!("{error:#}"))?;
        self.summary
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry("fields".to_owned())
            .or_default()[0] += count;
        if report.is_empty() { Ok(()) } else { Err(report.into()) }
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
                Check::Discovery => {
                    discovery::compare(&world.plain.server, &world.standalone.server).await
                }
                Check::Metrics => {
                    metrics::compare(&world.plain.server, &world.standalone.server).await
                }
                Check::Types => types::compare(reference).await,
                Check::Policy => {
                    let (plain, standalone) = (&world.plain.server, &world.standalone.server);
                    policy::compare(plain, reference, standalone).await
                }
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
        // All names have the same length and occur in no other string.
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
