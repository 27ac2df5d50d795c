//! Encoded watch events that many watches share: tables, metadata, other versions.
//!
//! All watches of a kind receive a change at about the same time. The first watch encodes the event in its format, and
//! the other watches with this format send the same bytes. The bytes are evicted before the change leaves the watch
//! cache: a later watch encodes the event again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

use super::super::negotiate::Format;
use crate::kind::Version;
use crate::quota::MemoryScale;
use crate::verb::EventType;
use crate::watch_cache::WatchCacheEvent;

/// The memory limit of the shared events, in bytes: enough for tables of some thousand changes, or for the two largest
/// objects.
const LIMIT: usize = 4 << 20;
/// The memory limit in a small container, in bytes.
const LEAST: usize = LIMIT / 4;
/// The memory of a shared event besides its bytes: its entry, and the allocations of a change and a version that weak
/// references still hold.
const ENTRY: usize = 1 << 10;

/// The memory limit of the shared events, in bytes.
pub(in crate::request) fn limit(portion: MemoryScale) -> usize {
    portion.between(LEAST, LIMIT)
}

/// The form of an encoded event. Watches with equal forms send the same bytes.
#[derive(Clone, Copy)]
pub(super) struct EventForm<'a> {
    /// The change that caused the event.
    pub change: &'a Arc<WatchCacheEvent>,
    /// The type of the event for these watches.
    pub event_type: EventType,
    /// The requested version.
    pub version: &'a Arc<Version>,
    /// The requested format.
    pub format: Format,
    /// Whether a table describes its columns.
    pub columns: bool,
    /// The time that ages are computed from, in seconds; 0 if the format has no ages.
    pub second: i64,
}

/// The key of an [`EventForm`]. It identifies a change and a version by their addresses, which cannot be reused as long
/// as the weak references in [`Kept`] exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    change: usize,
    event_type: EventType,
    version: usize,
    format: Format,
    columns: bool,
    second: i64,
}

struct Kept {
    bytes: Bytes,
    _change: Weak<WatchCacheEvent>,
    _version: Weak<Version>,
}

#[derive(Default)]
struct Forms {
    /// The memory limit, in bytes.
    limit: usize,
    by_name: HashMap<Name, Kept>,
    /// The keys, oldest first.
    names: VecDeque<Name>,
    bytes: usize,
}

/// The events that were encoded last.
#[derive(Clone)]
pub(in crate::request) struct SharedForms(Arc<Mutex<Forms>>);

impl SharedForms {
    /// Creates a cache with this memory limit, in bytes.
    pub(in crate::request) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Forms { limit, ..Forms::default() })))
    }

    /// Returns the bytes of an event in this form; `make` encodes them if they are not cached. Callers do not wait for
    /// each other: two simultaneous callers may both encode the event.
    ///
    /// # Errors
    /// The errors of `make`.
    pub(super) fn get_or_make<E>(
        &self,
        form: EventForm<'_>,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Bytes, E> {
        let name = form.name();
        if let Some(kept) = self.lock().by_name.get(&name) {
            return Ok(kept.bytes.clone());
        }
        // A boxed slice has no spare capacity.
        let bytes = Bytes::from(make()?.into_boxed_slice());
        // The evicted events are freed after the lock is released.
        let forgotten = self.lock().keep(name, form, bytes.clone());
        drop(forgotten);
        Ok(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Forms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventForm<'_> {
    fn name(&self) -> Name {
        let Self { change, event_type, version, format, columns, second } = *self;
        let (change, version) = (Arc::as_ptr(change).addr(), Arc::as_ptr(version).addr());
        Name { change, event_type, version, format, columns, second }
    }
}

impl Forms {
    /// Caches the bytes of an event. Returns the events that were evicted.
    #[must_use]
    fn keep(&mut self, name: Name, form: EventForm<'_>, bytes: Bytes) -> Vec<Kept> {
        let mut forgotten = Vec::new();
        let size = size(&bytes);
        if size > self.limit {
            return forgotten;
        }
        let (_change, _version) = (Arc::downgrade(form.change), Arc::downgrade(form.version));
        if let Some(other) = self.by_name.insert(name, Kept { bytes, _change, _version }) {
            self.bytes -= self::size(&other.bytes);
            forgotten.push(other);
        } else {
            self.names.push_back(name);
        }
        self.bytes += size;
        while self.bytes > self.limit {
            let Some(oldest) = self.names.pop_front() else { break };
            let gone = self.by_name.remove(&oldest);
            self.bytes -= gone.as_ref().map_or(0, |gone| self::size(&gone.bytes));
            forgotten.extend(gone);
        }
        forgotten
    }
}

fn size(bytes: &Bytes) -> usize {
    bytes.len() + ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{ErasedColumns, Kind};
    use crate::object::{Key, Object};
    use crate::request::encode::Encoder;
    use crate::request::negotiate::{Form, Include, Media, MetaVersion, Presentation};
    use crate::storage::RevisionSequencer;
    use crate::verb::{Event, ObjectEvent};
    use crate::watch_cache::{Scope, WINDOW_LIMIT, WatchCache};
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};

    const TABLE: Format = Format {
        form: Form::Table(MetaVersion::V1),
        include: Include::Metadata,
        presentation: Presentation { media: Media::Json, gzip: false },
    };

    /// A kind that counts how often its table rows are computed.
    fn kind() -> (Arc<Kind>, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let version = |name: &str, stored: bool| {
            json!({
                "name": name, "served": true, "storage": stored,
                "schema": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": [{"name": "Made", "type": "integer", "jsonPath": ".x"}],
            })
        };
        let definition = json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Cluster",
                "names": {"kind": "Foo", "plural": "foos"},
                "versions": [version("v1", true), version("v2", false)],
            },
        });
        let counter = Arc::clone(&made);
        let compute = move |_: &Value, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            vec![json!(1)]
        };
        let cells = ErasedColumns::new("v1", vec!["Made"], Box::new(compute));
        let definition = serde_json::from_value(definition).unwrap();
        (Arc::new(Kind::parse(&definition, Some(Arc::new(cells))).unwrap()), made)
    }

    /// A change, as its watches see it.
    async fn change(size: usize) -> Event {
        let sequencer = Arc::new(RevisionSequencer::starting(Timestamp::UNIX_EPOCH, 7));
        let cache = Arc::new(WatchCache::new(Arc::clone(&sequencer), WINDOW_LIMIT));
        let (_, mut watching) = cache.subscribe(Scope::All);
        let tree = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a", "uid": "u"}, "x": "x".repeat(size)});
        let object = Arc::new(Object::from_tree(tree.as_object().unwrap()).unwrap());
        let apply = |revision| {
            cache.apply(revision, &Key::new(None, "a"), Some(object));
            Ok::<(), ()>(())
        };
        sequencer.publish(apply).unwrap();
        let change = watching.next().await.unwrap().remove(0);
        Event::Object(ObjectEvent {
            event_type: EventType::Added,
            versioned: change.after().unwrap().clone(),
            change: Some(change),
        })
    }

    #[tokio::test]
    async fn watches_in_the_same_format_share_one_encoded_event() {
        let (kind, made) = kind();
        let (forms, event) = (SharedForms::new(LIMIT), change(1).await);
        let watcher = |format, second| {
            let now = Timestamp::from_second(second).unwrap();
            Encoder::new(&kind, &kind.storage, format, now, &forms)
        };
        let first = watcher(TABLE, 1).event(&event, false).unwrap();
        for _ in 1..1_000 {
            let bytes = watcher(TABLE, 1).event(&event, false).unwrap();
            assert_eq!(bytes.as_ptr(), first.as_ptr());
        }
        assert_eq!(made.load(Ordering::Relaxed), 1);
        // Watches with another form get other bytes.
        let whole = Format { include: Include::Object, ..TABLE };
        let beta = Format { form: Form::Table(MetaVersion::V1Beta1), ..TABLE };
        let others = [
            watcher(TABLE, 1).event(&event, true).unwrap(),
            watcher(TABLE, 2).event(&event, false).unwrap(),
            watcher(whole, 1).event(&event, false).unwrap(),
            watcher(beta, 1).event(&event, false).unwrap(),
        ];
        assert_eq!(made.load(Ordering::Relaxed), 5);
        assert!(others.iter().all(|other| other.as_ptr() != first.as_ptr()));
        assert_eq!(others[1], first, "nothing tells the time here");
        let of_first = String::from_utf8_lossy(&others[0]);
        assert!(of_first.contains("\"name\":\"Made\""), "the first event describes the columns");
        let change_of_other = change(1).await;
        watcher(TABLE, 1).event(&change_of_other, false).unwrap();
        assert_eq!(made.load(Ordering::Relaxed), 6);
    }

    #[tokio::test]
    async fn watch_events_are_shared_in_every_format_except_initial_objects() {
        let (kind, _) = kind();
        let forms = SharedForms::new(LIMIT);
        let mut event = change(1).await;
        let object = Format { form: Form::Object, ..TABLE };
        let metadata = Format { form: Form::PartialMetadata(MetaVersion::V1), ..TABLE };
        let protobuf = Presentation { media: Media::Protobuf, gzip: false };
        let protobuf = Format { presentation: protobuf, ..metadata };
        let encode = |event: &Event, version: &str, format, first| {
            let version = kind.version(version).unwrap();
            let encoder = Encoder::new(&kind, version, format, Timestamp::UNIX_EPOCH, &forms);
            encoder.event(event, first).unwrap()
        };
        for (version, format) in [("v2", object), ("v1", metadata), ("v1", protobuf)] {
            let (one, other) =
                (encode(&event, version, format, true), encode(&event, version, format, false));
            assert_eq!(one.as_ptr(), other.as_ptr(), "{version} {format:?}");
        }
        assert!(encode(&event, "v2", object, false).starts_with(b"{\"type\":\"ADDED\""));
        assert_eq!(forms.lock().by_name.len(), 3);
        // The bytes of the whole object as stored belong to the change, not to the cache.
        let one = encode(&event, "v1", object, false);
        assert_eq!(one.as_ptr(), encode(&event, "v1", object, false).as_ptr());
        assert_eq!(forms.lock().by_name.len(), 3);
        let Event::Object(initial) = &mut event else { unreachable!() };
        initial.change = None;
        encode(&event, "v2", object, false);
        assert_eq!(forms.lock().by_name.len(), 3);
    }

    #[tokio::test]
    async fn the_cache_of_encoded_events_is_limited_in_bytes() {
        let (kind, made) = kind();
        let forms = SharedForms::new(LIMIT);
        let whole = Format { include: Include::Object, ..TABLE };
        let encode = |event: &Event| {
            let now = Timestamp::UNIX_EPOCH;
            let encoder = Encoder::new(&kind, &kind.storage, whole, now, &forms);
            encoder.event(event, false).unwrap()
        };
        let mut changes = Vec::new();
        for _ in 0..10 {
            changes.push(change(1 << 20).await);
            encode(changes.last().unwrap());
            let forms = forms.lock();
            let sizes: usize = forms.by_name.values().map(|kept| size(&kept.bytes)).sum();
            assert_eq!((forms.bytes, forms.by_name.len()), (sizes, forms.names.len()));
            assert!(forms.bytes <= LIMIT);
        }
        assert_eq!(forms.lock().by_name.len(), 3);
        encode(&changes[9]);
        assert_eq!(made.load(Ordering::Relaxed), 10);
        // The oldest events were evicted. An event that is larger than the limit is not cached.
        encode(&changes[0]);
        assert_eq!(made.load(Ordering::Relaxed), 11);
        let large = change(LIMIT).await;
        assert_eq!(encode(&large), encode(&large));
        assert_eq!(made.load(Ordering::Relaxed), 13);
        assert_eq!(forms.lock().by_name.len(), 3);
    }
}
