//! A profile of the heap: the memory per Pod, by purpose.
//!
//! The benchmark prints the bytes in use after all sources are synced, by the purpose of the allocations, and the
//! functions that allocate most. Blocks count with the requested size, without the overhead of the allocator. Each
//! allocation is recorded with its call stack. Therefore the cluster has only a thousand Pods, and a run takes a few
//! minutes. `cargo bench --profile dev --bench heap_of_pods`

#[allow(dead_code)] // the other benchmark uses the rest
mod cluster;
mod objects;
mod server;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use cluster::Cluster;
use serde_json::Value;

/// Records where each block was allocated.
#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The number of Pods.
pub const PODS: usize = 1_000;
/// The largest heap use of a Pod, in bytes, without the allocations that do not belong to Pods. It is slightly above
/// the measured value.
const MOST: u64 = 2_200;
/// The number of frames that are recorded for each allocation: from the allocator through serde to our own code.
const FRAMES: usize = 60;
/// The number of our own functions that identify a place.
const NAMES: usize = 3;
/// The number of places that are printed.
const PLACES: usize = 60;

/// The purposes of memory, with the modules that allocate it. The first match counts.
const PURPOSES: [(&str, &[&str]); 4] = [
    // Served objects are built in the computation, so their modules come first.
    ("what is shown", &["::watch_cache::", "::object::Object::", "::object::labels::"]),
    ("what finds and remembers objects", &["::lookup::", "Computation"]),
    ("objects of the cluster", &["cluster::source::"]),
    (REST, &[""]),
];

/// The memory of the server itself, and of requests in progress.
const REST: &str = "the rest";

/// The bytes and blocks of a place.
#[derive(Clone, Copy, Default)]
struct Taken {
    bytes: u64,
    blocks: u64,
}

impl Taken {
    fn add(&mut self, bytes: u64, blocks: u64) {
        self.bytes += bytes;
        self.blocks += blocks;
    }
}

/// Returns the function of a frame. dhat prints the address, the function and the file of a frame.
fn function(frame: &str) -> &str {
    let after_address = frame.split_once(": ").map_or(frame, |(_, rest)| rest);
    after_address.rsplit_once(" (").map_or(after_address, |(function, _)| function)
}

/// Whether a function is one of our own, and not a library function that is generic over our types.
fn is_ours(function: &str) -> bool {
    let of_a_type = function.strip_prefix('<').unwrap_or(function);
    ["aggregated_apiserver::", "farm_operator::"].iter().any(|name| of_a_type.starts_with(name))
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("heap.json");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let cluster = Cluster::default();
    cluster.set_used(120);
    // The lists are built before profiling starts.
    cluster.prepare();
    let profiler = dhat::Profiler::builder().file_name(&file).trim_backtraces(Some(FRAMES)).build();
    let (server, _) = runtime.block_on(server::serve(&cluster))?;
    drop(profiler);
    drop(server);
    report(&serde_json::from_slice(&std::fs::read(&file)?)?)
}

/// Prints a profile.
fn report(profile: &Value) -> Result<()> {
    let names = profile["ftbl"].as_array().context("no frames")?;
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    let mut purposes: BTreeMap<&str, Taken> = BTreeMap::new();
    let mut places: BTreeMap<String, Taken> = BTreeMap::new();
    let mut sum = Taken::default();
    for point in profile["pps"].as_array().context("no places")? {
        let bytes = point["eb"].as_u64().unwrap_or_default();
        let blocks = point["ebk"].as_u64().unwrap_or_default();
        let frames = point["fs"].as_array().context("no frames of a place")?;
        let frames = frames.iter().filter_map(Value::as_u64);
        let frames = frames.filter_map(|frame| names.get(usize::try_from(frame).ok()?));
        let mut ours: Vec<&str> =
            frames.map(|frame| function(frame)).filter(|frame| is_ours(frame)).collect();
        ours.dedup();
        let purpose = PURPOSES.iter().find(|(_, modules)| {
            modules.iter().any(|module| ours.iter().any(|frame| frame.contains(module)))
        });
        let purpose = purpose.map_or(REST, |(name, _)| name);
        ours.truncate(NAMES);
        purposes.entry(purpose).or_default().add(bytes, blocks);
        places.entry(ours.join(" < ")).or_default().add(bytes, blocks);
        sum.add(bytes, blocks);
    }
    let pods = PODS as u64;
    let rest = purposes.get(REST).copied().unwrap_or_default();
    let of_pods = (sum.bytes - rest.bytes) / pods;
    println!("a Pod takes {} bytes in {} blocks", sum.bytes / pods, sum.blocks / pods);
    for (purpose, taken) in purposes {
        println!("{:>6} bytes in {:>3} blocks: {purpose}", taken.bytes / pods, taken.blocks / pods);
    }
    let mut places: Vec<(String, Taken)> = places.into_iter().collect();
    places.sort_by_key(|(_, taken)| std::cmp::Reverse(taken.bytes));
    for (place, taken) in places.into_iter().take(PLACES) {
        println!("{:>6} {:>5.1} {place}", taken.bytes / pods, taken.blocks as f64 / pods as f64);
    }
    ensure!(of_pods <= MOST, "a Pod takes {of_pods} bytes by itself, and {MOST} at most are meant");
    Ok(())
}
