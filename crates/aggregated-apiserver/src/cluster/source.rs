//! What kinds are computed from: one watch per type and scope, shared by all kinds.

mod counted;
mod discovery;
mod follower;
mod informer;
mod kind_name;
mod kind_sources;
mod list_watch;
mod objects;
mod scope;
mod source_type;
mod stream;
mod together;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kube::Client;
use tokio::task::JoinHandle;

use follower::Follower;
pub use informer::{Changed, SourceInformer, Standing};
pub use kind_name::KindName;
pub use kind_sources::{KindSource, KindSources};
use list_watch::ListWatch;
pub use objects::SourceObjects;
pub use scope::SourceOptions;
pub use source_type::{SourceApi, SourceType, resource_name};
pub use stream::SourceStreams;
use together::Together;

use crate::log_throttle::LogThrottle;

/// How much memory the objects of one type may take, unless a source says otherwise. Views of 20,000 Pods take so much.
pub const SOURCE_MEMORY: usize = 64 << 20;
/// The same in a small container: one page of them, as it is listed.
pub const LEAST_SOURCE_MEMORY: usize = 3 << 20;

/// All types together may take as much as so many of them, however many there are: most of them are small. Half of one is for
/// what is found by references. That, and
/// what is computed from them, fits into a gigabyte.
pub const LARGE_SOURCES: usize = 4;

/// An informer, whatever its type.
type AnyInformer = Arc<dyn Any + Send + Sync>;

/// The informers of all types in use. Dropping it ends their watches.
pub struct Sources {
    client: Client,
    /// How many bytes the objects of each type may take.
    bound: usize,
    /// What those of all types take.
    all: Arc<Together>,
    /// What those take of them that are found by references.
    referred: Arc<Together>,
    /// The types that do not come from the cluster.
    streams: SourceStreams,
    informers: Mutex<HashMap<(TypeId, SourceOptions), AnyInformer>>,
    watches: Mutex<Vec<JoinHandle<()>>>,
    /// Log lines about each resource, which may be read as several types.
    reports: Mutex<HashMap<String, Arc<LogThrottle>>>,
}

impl Sources {
    pub(super) fn new(client: Client, bound: usize, streams: SourceStreams) -> Self {
        // What there are references to is up to users, and takes no room of the types that kinds need.
        let of_referred = bound / 2;
        let of_all = bound.saturating_mul(LARGE_SOURCES) - of_referred;
        Self {
            client,
            bound,
            all: Arc::new(Together::within(of_all)),
            referred: Arc::new(Together::within(of_referred)),
            streams,
            informers: Mutex::default(),
            watches: Mutex::default(),
            reports: Mutex::default(),
        }
    }

    /// The informer of what is in scope of a type; its watch begins when it is opened first. The log
    /// says what is `missing` as long as it cannot be watched.
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
        let share = self.all.share(resource_name::<K>());
        let informer = Arc::new(SourceInformer::<K>::new(self.bound, share));
        let keeper: Weak<SourceInformer<K>> = Arc::downgrade(&informer);
        self.all.add_keeper(keeper);
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

    /// What the cluster shows is listed twice, with other names, and the bound is for one list.
    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_not_in_the_way_of_what_is_there() {
        let lists = Arc::new(Mutex::new(0));
        let cluster = {
            let lists = Arc::clone(&lists);
            tower::service_fn(move |request: Request<Body>| {
                let answer = if request.uri().query().unwrap_or_default().contains("watch") {
                    r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#.to_owned() + "\n"
                } else {
                    let mut lists = lists.lock().unwrap();
                    *lists += 1;
                    // The first one has the others' names.
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
