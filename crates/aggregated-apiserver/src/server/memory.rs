//! The memory limits of a server, adjusted to the memory of its container.

use std::fs;

use super::connection;
use crate::cluster::{LARGE_SOURCES, LEAST_SOURCE_MEMORY, SOURCE_MEMORY};
use crate::definition::{Backend, Kinds, SourceKind};
use crate::kind::patterns_limit;
use crate::log_throttle::DETAILS;
use crate::quota::MemoryScale;
use crate::request::{self, Inflights};
use crate::storage::{
    LEAST_MEMORY_STORE_LIMIT, LEAST_WRITE_QUEUE, MEMORY_STORE_LIMIT, READING, WRITE_QUEUE,
};
use crate::watch_cache::{LEAST_WINDOW_LIMIT, LEAST_WINDOWS_LIMIT, WINDOW_LIMIT, WINDOWS_LIMIT};

/// The memory of an idle server, in bytes.
const IDLE: usize = 24 << 20;

/// The parts of a server that use memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents {
    /// The number of kinds with stored objects.
    stored: usize,
    /// The number of kinds whose objects live in a backend.
    virtual_kinds: usize,
    /// The number of types in the cluster that are sources.
    sources: usize,
    records: Records,
    said: Said,
}

/// Audit events and spans, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    /// The events and spans that wait to be written and sent.
    pub waiting: usize,
    /// The memory for each open watch.
    pub of_watch: usize,
}

/// The limits in the flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    /// The limit of the objects of each type of the cluster, in bytes.
    pub source_memory: Option<usize>,
    /// The limit of all stored objects, in bytes.
    pub store_memory: Option<usize>,
    /// The limits of requests in flight.
    pub inflights: Inflights,
}

impl Contents {
    pub(super) fn of(kinds: &Kinds, said: Said) -> Self {
        let mut sources: Vec<&SourceKind> = Vec::new();
        for registered in kinds.iter() {
            let Backend::Computed { watched, .. } = &registered.backend else { continue };
            for source in watched {
                if !sources.contains(&source) {
                    sources.push(source);
                }
            }
        }
        let count = |is_meant: fn(&Backend) -> bool| {
            kinds.iter().filter(|one| is_meant(&one.backend)).count()
        };
        let is_virtual =
            |backend: &Backend| matches!(backend, Backend::Virtual(_) | Backend::Direct(_));
        let virtual_kinds = count(is_virtual);
        // The store also has the metadata of virtual kinds.
        let stored = virtual_kinds + count(|backend| matches!(backend, Backend::Stored { .. }));
        let sources = sources.len();
        Self { stored, virtual_kinds, sources, records: Records::default(), said }
    }

    /// Adds the memory of audit events and spans.
    pub(super) fn with_records(self, records: Records) -> Self {
        Self { records, ..self }
    }
}

/// The memory limits, computed once when a server is configured. If the container has enough memory for all of them,
/// each limit has its largest value; more memory does not increase it. In a smaller container, all limits are at the
/// same fraction between their smallest and their largest value. The smallest limits of a server like farm-operator fit
/// into 256 MiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    contents: Contents,
    /// The limits of connections.
    pub connections: connection::Bounds,
    /// The limits of requests and their responses.
    pub requests: request::Bounds,
    /// The limit of stored objects, in bytes.
    pub objects: usize,
    /// The limit of recent changes of a kind, in bytes of objects.
    pub window: usize,
    /// The limit of recent changes of all kinds, including kinds that are added at run time.
    pub windows: usize,
    /// The limit of replaced or deleted objects, in bytes, on disk and in memory until all readers have read the
    /// change. A change in a window counts both the old and the new object, so windows can use half of their bytes for
    /// old objects.
    pub history: usize,
    /// The limit of the write queue of a store, in bytes of objects.
    pub queue: usize,
    /// The limit of compiled patterns of schemas, in bytes.
    pub patterns: usize,
    /// The limit of the objects of a type of the cluster, in bytes.
    pub source_memory: usize,
}

impl Bounds {
    /// The limits of a server in a container with `limit` bytes of memory.
    pub(super) fn within(limit: Option<usize>, contents: Contents) -> Self {
        let portion = limit.map_or(MemoryScale::ALL, |limit| {
            MemoryScale::largest(|portion| Self::of(portion, contents).sum() <= limit)
        });
        Self::of(portion, contents)
    }

    fn of(portion: MemoryScale, contents: Contents) -> Self {
        let source_memory = portion.between(LEAST_SOURCE_MEMORY, SOURCE_MEMORY);
        let objects = portion.between(LEAST_MEMORY_STORE_LIMIT, MEMORY_STORE_LIMIT);
        let Said { source_memory: of_source, store_memory: of_store, inflights } = contents.said;
        Self {
            contents,
            connections: connection::Bounds::of(portion),
            requests: request::Bounds::of(portion, inflights),
            objects: of_store.unwrap_or(objects),
            window: portion.between(LEAST_WINDOW_LIMIT, WINDOW_LIMIT),
            windows: portion.between(LEAST_WINDOWS_LIMIT, WINDOWS_LIMIT),
            history: portion.between(LEAST_WINDOWS_LIMIT, WINDOWS_LIMIT) / 2,
            queue: portion.between(LEAST_WRITE_QUEUE, WRITE_QUEUE),
            patterns: patterns_limit(portion),
            source_memory: of_source.unwrap_or(source_memory),
        }
    }

    /// The limit of the known objects of one backend, in bytes.
    pub(super) fn of_backend(&self) -> usize {
        self.objects / self.contents.virtual_kinds.max(1)
    }

    /// The limits by name, in bytes. The limits are reached at the same time only in the worst case.
    fn parts(&self) -> Vec<(&'static str, usize)> {
        let Contents { stored, virtual_kinds, sources, records, .. } = self.contents;
        let mut parts = vec![("the program", IDLE), ("connections", self.connections.memory())];
        parts.extend(self.requests.memory());
        if stored > 0 {
            parts.push(("objects", self.objects));
            parts.push(("the history of the store", self.history));
            parts.push(("writes in the queue of the store", self.queue));
        }
        if virtual_kinds > 0 {
            parts.push(("objects of backends", self.objects));
        }
        if stored > 0 || sources > 0 {
            // A change is stored with its old object and its new object, and in the form in which it was sent.
            parts.push(("their recent past", 2 * self.windows));
        }
        parts.push(("patterns of schemas", self.patterns));
        parts.push(("objects of the cluster", sources.min(LARGE_SOURCES) * self.source_memory));
        let records = records.waiting + self.requests.watches() * records.of_watch;
        if records > 0 {
            parts.push(("audit events and spans", records));
        }
        parts
    }

    fn sum(&self) -> usize {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// The sum of all limits of memory, in MiB.
    pub(super) fn mebibytes(&self) -> usize {
        mebibytes(self.sum())
    }

    /// The largest memory of the start, in bytes, while the store is read and requests wait: objects, their history,
    /// and the data that was read from disk or etcd.
    fn start(&self) -> usize {
        let store =
            if self.contents.stored > 0 { self.objects + self.history + READING } else { 0 };
        IDLE + self.connections.memory() + store
    }

    /// Logs the memory limits as a detail, or as a warning if their sum exceeds the memory of the container.
    pub(super) fn tell(&self, limit: Option<usize>) {
        let parts = self.parts();
        let parts = parts.iter().map(|(what, bytes)| format!("{what} {}", mebibytes(*bytes)));
        let (sum, start) = (self.mebibytes(), mebibytes(self.start()));
        let parts = parts.collect::<Vec<_>>().join(", ");
        match limit {
            Some(limit) if limit < self.sum() => tracing::warn!(
                "memory limits: {sum} MiB in total, which exceeds the {} MiB of the container; {parts}; start {start}",
                mebibytes(limit)
            ),
            _ => tracing::debug!(
                target: DETAILS,
                "memory limits: {sum} MiB in total; {parts}; start {start}"
            ),
        }
    }
}

fn mebibytes(bytes: usize) -> usize {
    bytes >> 20
}

/// The memory limit of the container of this process, in bytes; `None` if there is no limit.
pub(super) fn limit() -> Option<usize> {
    const FILES: [&str; 2] =
        ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    FILES.iter().find_map(|file| fs::read_to_string(file).ok()).and_then(|text| read(&text))
}

/// Parses a limit. Without a limit, version 2 of control groups contains `max`, and version 1 a number beyond any
/// memory.
fn read(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|&limit| limit < 1 << 50)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{ApiServer, Args};
    use super::*;
    use crate::manifests::MEMORY_LIMIT_MIB;
    use crate::object::Object;

    /// A server that stores more kinds than farm-operator. Beyond a few types of the cluster, further types make no
    /// difference.
    const CONTENTS: Contents = Contents {
        stored: 2,
        virtual_kinds: 0,
        sources: 1_000,
        records: Records { waiting: 0, of_watch: 0 },
        said: Said {
            source_memory: None,
            store_memory: None,
            inflights: Inflights { reads: 400, writes: 200, watches: None },
        },
    };
    const FLOOR_MIB: usize = 256;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        args: Args,
    }

    fn within(mebibytes: usize) -> Bounds {
        Bounds::within(Some(mebibytes << 20), CONTENTS)
    }

    #[test]
    fn the_default_memory_limits_fit_the_default_container() {
        let meant = Bounds::within(None, CONTENTS);
        assert!(mebibytes(meant.sum()) <= MEMORY_LIMIT_MIB, "{:?}", meant.parts());
        for limit in [MEMORY_LIMIT_MIB, 4 * MEMORY_LIMIT_MIB, usize::MAX >> 20] {
            assert_eq!(within(limit).parts(), meant.parts());
        }
        assert_eq!((meant.objects, meant.window), (MEMORY_STORE_LIMIT, WINDOW_LIMIT));
        assert_eq!(meant.windows, WINDOWS_LIMIT);
        assert_eq!(meant.source_memory, SOURCE_MEMORY);
    }

    #[test]
    fn smaller_containers_have_smaller_memory_limits_that_fit() {
        let limits = [FLOOR_MIB, 384, 512, 768, MEMORY_LIMIT_MIB];
        for (smaller, larger) in limits.iter().zip(&limits[1..]) {
            let (small, large) = (within(*smaller), within(*larger));
            assert!(small.sum() <= smaller << 20, "{smaller}: {:?}", small.parts());
            // The limits leave no memory unused.
            assert!(small.sum() > (smaller - 40) << 20, "{smaller}: {:?}", small.parts());
            for ((what, less), (_, more)) in small.parts().into_iter().zip(large.parts()) {
                assert!(less <= more, "{what}");
            }
        }
    }

    #[test]
    fn at_the_memory_floor_every_limit_admits_the_largest_object() {
        let floor = within(FLOOR_MIB);
        assert!(floor.sum() <= FLOOR_MIB << 20, "{:?}", floor.parts());
        let part = |of: &Bounds, name| of.parts().into_iter().find(|(what, _)| *what == name);
        let of = |name| part(&floor, name).unwrap().1;
        assert!(of("trees of requests") >= 64 << 20);
        assert!(of("answers") / 4 > Object::LIMIT);
        assert!(of("objects in other versions") > Object::LIMIT);
        // The limit of a namespace, and the window of a kind.
        assert!(floor.objects / 4 > Object::LIMIT && floor.window > Object::LIMIT);
        assert!(floor.source_memory > Object::LIMIT);
    }

    #[test]
    fn startup_memory_is_within_the_logged_sum_of_limits() {
        for limit in [FLOOR_MIB, 384, 512, MEMORY_LIMIT_MIB] {
            let bounds = within(limit);
            assert!(bounds.start() <= bounds.sum() && bounds.start() > bounds.objects);
        }
    }

    #[tokio::test]
    async fn servers_in_one_process_have_separate_memory_limits() {
        let start = async |limit| {
            let definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: foos.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: foos, kind: Foo}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}";
            let kinds = Kinds::new().crds_from_yaml(definition).unwrap();
            let server = ApiServer::new("foos", kinds).with_memory_limit(limit);
            server.in_process(super::super::ClusterClient::Loopback).await.unwrap()
        };
        let limit = |server: &super::super::InProcess| {
            let served = server.assembled.kinds.iter().next().unwrap();
            served.kind.shown().converted_limit()
        };
        let small = start(FLOOR_MIB << 20).await;
        let large = start(4 << 30).await;
        assert_eq!((limit(&small) >> 20, limit(&large) >> 20), (2, 32));
        assert_eq!(limit(&start(FLOOR_MIB << 20).await), limit(&small));
    }

    #[test]
    fn memory_limits_do_not_depend_on_the_number_of_stored_kinds() {
        let of = |stored| Bounds::within(None, Contents { stored, ..CONTENTS }).parts();
        assert_eq!(of(1), of(1_000));
    }

    #[test]
    fn below_the_memory_floor_limits_exceed_the_container() {
        let tiny = within(128);
        assert!(tiny.sum() > 128 << 20 && tiny.sum() <= FLOOR_MIB << 20);
    }

    #[test]
    fn memory_limits_set_by_flags_are_applied() {
        let said = Said {
            source_memory: Some(32 << 20),
            store_memory: Some(200 << 20),
            ..Said::default()
        };
        let bounds = Bounds::within(Some(768 << 20), Contents { said, ..CONTENTS });
        assert_eq!((bounds.source_memory, bounds.objects), (32 << 20, 200 << 20));
        assert!(bounds.sum() <= 768 << 20, "the other rooms share what is left");
    }

    #[test]
    fn max_watches_is_applied_in_a_small_container() {
        let watches = |said: Option<&str>| {
            let flags = said.map(|count| format!("--max-watches={count}"));
            let args = Flags::parse_from(["server".to_owned()].into_iter().chain(flags)).args;
            let contents = Contents { said: args.memory(), ..CONTENTS };
            Bounds::within(Some(512 << 20), contents).requests.watches()
        };
        assert!(watches(None) < 20_000);
        assert_eq!((watches(Some("20000")), watches(Some("19999"))), (20_000, 19_999));
    }

    #[test]
    fn audit_events_and_spans_count_towards_the_memory_limit() {
        let records = Records { waiting: 48 << 20, of_watch: 1 << 10 };
        let contents = CONTENTS.with_records(records);
        let of = |limit: usize| Bounds::within(Some(limit << 20), contents);
        let part = of(512).parts().into_iter().find(|(what, _)| *what == "audit events and spans");
        let watches = of(512).requests.watches();
        assert!(watches < 20_000);
        assert_eq!(part.unwrap().1, (48 << 20) + (watches << 10));
        assert!(of(512).sum() <= 512 << 20 && of(512).objects < within(512).objects);
    }

    #[test]
    fn the_audit_log_and_traces_of_flags_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            file
        };
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        let address = [127, 0, 0, 1].into();
        let mut args = Args { bind_address: address, secure_port: 0, ..Args::default() };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let parts = |args: &Args| {
            let bound = ApiServer::new("foos", Kinds::new()).bind_without_cluster(args).unwrap();
            let parts = bound.bounds.parts();
            parts.into_iter().find(|(what, _)| *what == "audit events and spans").map(|one| one.1)
        };
        assert_eq!(parts(&args), None);
        args.audit.audit_policy_file = Some(write("policy.yaml", policy));
        args.audit.audit_log_path = Some(folder.path().join("audit.log"));
        let audit = parts(&args).unwrap();
        assert!(audit > 16 << 20, "{audit}");
        if cfg!(feature = "otlp") {
            let tracing = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration";
            args.tracing.tracing_config_file = Some(write("tracing.yaml", tracing));
            assert!(parts(&args).unwrap() > audit + (8 << 20));
        }
    }

    #[test]
    fn memory_limits_stop_growing_beyond_a_number_of_source_types() {
        // The memory limits of farm-operator, which stores one kind, as docs/explanation/performance.md lists them.
        for limit in [256, 512, 768, MEMORY_LIMIT_MIB] {
            let bounds = Bounds::within(Some(limit << 20), Contents { stored: 1, ..CONTENTS });
            let parts = bounds.parts().into_iter().map(|(what, bytes)| (what, mebibytes(bytes)));
            println!("{limit}: {} of {:?}", mebibytes(bounds.sum()), parts.collect::<Vec<_>>());
        }
        let of = |sources| Bounds::within(None, Contents { sources, ..CONTENTS }).parts();
        assert_eq!(of(LARGE_SOURCES), of(LARGE_SOURCES + 1));
        assert_ne!(of(LARGE_SOURCES), of(LARGE_SOURCES - 1));
    }

    #[test]
    fn limits_of_both_versions_of_control_groups() {
        assert_eq!(read("536870912\n"), Some(512 << 20));
        assert_eq!(read("max\n"), None);
        assert_eq!(read("9223372036854771712\n"), None);
        assert_eq!(read(""), None);
    }
}
