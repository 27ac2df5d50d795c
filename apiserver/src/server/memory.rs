//! The memory that a server may take: all bounds together, held against what its container may.

use std::fs;

use super::connection;
use crate::request;
use crate::storage::MEMORY_STORE_LIMIT;
use crate::watch_cache::WINDOW_LIMIT;

/// What a server takes that has nothing to do.
const IDLE: usize = 24 << 20;

/// What kinds a server has, as far as their memory goes.
pub(super) struct Kinds {
    /// Kinds whose objects it stores.
    pub stored: usize,
    /// Types of the cluster that it has in view, and what each may take, in bytes.
    pub sources: usize,
    pub source_memory: usize,
}

/// What each thing may take at most, in bytes. Not all of it is taken at a time, unless
/// everybody does their worst at once.
fn bounds(kinds: &Kinds) -> Vec<(&'static str, usize)> {
    let mut bounds = vec![("the program", IDLE), ("connections", connection::memory())];
    bounds.extend(request::memory());
    if kinds.stored > 0 {
        bounds.push(("objects", MEMORY_STORE_LIMIT));
        // Each change is kept as it was, as it is, and as it was sent.
        bounds.push(("their recent past", 2 * kinds.stored * WINDOW_LIMIT));
    }
    bounds.push(("objects of the cluster", kinds.sources * kinds.source_memory));
    bounds
}

/// Says what may be taken, and warns if that is more than there is.
pub(super) fn tell(kinds: &Kinds) {
    let bounds = bounds(kinds);
    let sum: usize = bounds.iter().map(|(_, bytes)| bytes).sum();
    let parts: Vec<String> =
        bounds.iter().map(|(what, bytes)| format!("{what} {}", mebibytes(*bytes))).collect();
    let (sum, parts) = (mebibytes(sum), parts.join(", "));
    match limit() {
        Some(limit) if mebibytes(limit) < sum => tracing::warn!(
            "at worst {sum} MiB of memory are taken, and the container may take {}: {parts} MiB",
            mebibytes(limit)
        ),
        Some(limit) => tracing::info!(
            "at worst {sum} of {} MiB of memory are taken: {parts} MiB",
            mebibytes(limit)
        ),
        None => tracing::info!("at worst {sum} MiB of memory are taken: {parts} MiB"),
    }
}

fn mebibytes(bytes: usize) -> usize {
    bytes >> 20
}

/// What the container of this process may take, in bytes; `None` if there is no limit.
fn limit() -> Option<usize> {
    const FILES: [&str; 2] =
        ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    FILES.iter().find_map(|file| fs::read_to_string(file).ok()).and_then(|text| read(&text))
}

/// Without a limit version 2 of control groups says `max`, and version 1 a number beyond any
/// memory.
fn read(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|&limit| limit < 1 << 50)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::SOURCE_MEMORY;
    use crate::manifests::MEMORY_LIMIT_MIB;

    #[test]
    fn what_is_deployed_fits_its_container() {
        let kinds = Kinds { stored: 2, sources: 4, source_memory: SOURCE_MEMORY };
        let sum: usize = bounds(&kinds).iter().map(|(_, bytes)| bytes).sum();
        assert!(mebibytes(sum) <= MEMORY_LIMIT_MIB, "{} MiB: {:?}", mebibytes(sum), bounds(&kinds));
    }

    #[test]
    fn limits_of_both_versions_of_control_groups() {
        assert_eq!(read("536870912\n"), Some(512 << 20));
        assert_eq!(read("max\n"), None);
        assert_eq!(read("9223372036854771712\n"), None);
        assert_eq!(read(""), None);
    }
}
