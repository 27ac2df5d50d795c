//! The sources of computed kinds: one watch for each type and scope, shared by all kinds.

mod counting_decoder;
mod discovery;
mod follower;
mod informer;
mod kind_name;
mod kind_sources;
mod list_watch;
mod objects;
mod scope;
mod shared_limit;
mod source_type;
mod stream;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kube::Client;
use tokio::task::JoinHandle;

use follower::Follower;
pub use informer::{ChangedKeys, SourceInformer, SourceStatus};
pub use kind_name::KindName;
pub use kind_sources::{KindSource, KindSources};
use list_watch::ListWatch;
pub use objects::SourceObjects;
pub use scope::SourceOptions;
use shared_limit::SharedLimit;
pub use source_type::{SourceApi, SourceType, resource_name};
pub use stream::SourceStreams;

use crate::log_throttle::LogThrottle;

/// The default memory limit for the objects of one type, in bytes. Views of 20,000 Pods use this much memory.
pub const SOURCE_MEMORY: usize = 64 << 20;
/// The smallest memory limit for the objects of one type, in bytes, for small containers: the size of one listed page.
pub const LEAST_SOURCE_MEMORY: usize = 3 << 20;

/// The memory limit of all types together, as a multiple of the limit of one type, however many types there are: most
/// types are small. Half of the limit of one type is reserved for objects that are found by references. The objects of
/// all types and the computed objects fit into a gigabyte.
pub const LARGE_SOURCES: usize = 4;

/// An informer of any type.
type AnyInformer = Arc<dyn Any + Send + Sync>;

/// The informers of all types in use. Dropping it ends their watches.
pub struct Sources {
    client: Client,
    /// The memory limit for the objects of each type, in bytes.
    limit: usize,
    /// The memory that the objects of all types use, except objects that are found by references.
    all: Arc<SharedLimit>,
    /// The memory that objects found by references use.
    referred: Arc<SharedLimit>,
    /// The types whose objects come from streams instead of from the cluster.
    streams: SourceStreams,
    informers: Mutex<HashMap<(TypeId, SourceOptions), AnyInformer>>,
    watches: Mutex<Vec<JoinHandle<()>>>,
    /// The limits of log lines, one for each resource. A resource may be read as several types.
    reports: Mutex<HashMap<String, Arc<LogThrottle>>>,
}

impl Sources {
    pub(super) fn new(client: Client, limit: usize, streams: SourceStreams) -> Self {
        // Users decide what is referenced, so these objects have a separate limit and use no memory of the other types.
        let of_referred = limit / 2;
        let of_all = limit.saturating_mul(LARGE_SOURCES) - of_referred;
        Self {
            client,
            limit,
            all: Arc::new(SharedLimit::within(of_all)),
            referred: Arc::new(SharedLimit::within(of_referred)),
            streams,
            informers: Mutex::default(),
            watches: Mutex::default(),
            reports: Mutex::default(),
        }
    }

    /// Returns the informer of a type and scope. The first call starts its watch. `missing` is the consequence of
    /// missing objects, for the log.
    pub fn open<K: SourceType>(
        &self,
        scope: SourceOptions,
        missing: &'static str,
    ) -> Arc<SourceInformer<K>> {
        let mut informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (TypeId::of::<K>(), scope.as_read());
        let known = informers.get(&place).map(Arc::clone);
        if let Some(Ok(informer)) = known.map(Arc::downcast) {
            return informer;
        }
        let memory = self.all.of_type(resource_name::<K>());
        let informer = Arc::new(SourceInformer::<K>::new(self.limit, memory));
        let weak: Weak<SourceInformer<K>> = Arc::downgrade(&informer);
        self.all.add_informer(weak);
        informers.insert(place, informer.clone());
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = Arc::clone(reports.entry(resource_name::<K>()).or_default());
        let follower = Follower::new(Arc::clone(&informer), resource_name::<K>(), missing);
        let follower = follower.of_scope(scope, reports);
        let (list_watch, streams) =
            (ListWatch::new(self.client.clone(), scope), self.streams.clone());
        let watch = tokio::spawn(follower.follow(list_watch, streams));
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
        informer
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use tokio::time::Instant;

    use super::follower::AGAIN;
    use super::*;
    use crate::object::Key;
    use tokio::sync::Notify;

    /// The cluster is listed twice with different names of objects, and the memory limit is large enough for one list
    /// only.
    #[tokio::test(start_paused = true)]
    async fn a_relist_is_not_blocked_by_the_memory_of_deleted_objects() {
        let lists = Arc::new(Mutex::new(0));
        let cluster = {
            let lists = Arc::clone(&lists);
            tower::service_fn(move |request: Request<Body>| {
                let answer = if request.uri().query().unwrap_or_default().contains("watch") {
                    r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#.to_owned() + "\n"
                } else {
                    let mut lists = lists.lock().unwrap();
                    *lists += 1;
                    // The second list has other names than the first.
                    let names = if *lists == 1 { "old" } else { "new" };
                    let text = "x".repeat(1_000);
                    let items = (0..10).map(|number| {
                        format!(r#"{{"metadata":{{"name":"{names}-{number}"}},"data":{{"a":"{text}"}}}}"#)
                    });
                    let items = items.collect::<Vec<_>>().join(",");
                    format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#)
                };
                async move { Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes()))) }
            })
        };
        let sources =
            Sources::new(Client::new(cluster, "default"), 30_000, SourceStreams::default());
        let began = Instant::now();
        let informer = sources.open::<ConfigMap>(SourceOptions::ALL, "nothing");
        let changed = Arc::new(Notify::new());
        let _followed = informer.follow(Arc::clone(&changed));
        while informer.get(&Key::new(None, "new-9")).is_none() || !informer.is_synced() {
            changed.notified().await;
        }
        assert_eq!((informer.len(), informer.get(&Key::new(None, "old-0")).is_none()), (10, true));
        assert!(began.elapsed() < AGAIN, "it waited before it listed again");
    }
}
