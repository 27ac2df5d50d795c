//! Computes the status of ResourceQuotas, same as kube-controller-manager: when a quota is created or its spec changes,
//! and when the usage of the namespace changes in another way than by a create that admission has charged.
//!
//! Not a `kube::runtime::Controller`, because the server counts the usage of each namespace anyway. Without quotas the
//! controller does nothing.

use std::collections::HashMap;
use std::time::Duration;

use aggregated_apiserver::admission::QuotaStatuses;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// The interval between two updates of all quotas; same as in kube-controller-manager.
const RESYNC: Duration = Duration::from_secs(300);
/// The pause before a failed update is retried: it doubles up to the second value.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Runs the controller, if the server stores and enforces quotas.
pub(crate) async fn run(statuses: Option<QuotaStatuses>) {
    let Some(statuses) = statuses else { return };
    let mut resync = interval_at(Instant::now() + RESYNC, RESYNC);
    resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
    statuses.mark_all();
    let mut failed = Failed::default();
    loop {
        let retry = failed.next();
        tokio::select! {
            _ = resync.tick() => statuses.mark_all(),
            () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                failed.due(Instant::now()).iter().for_each(|namespace| statuses.mark(namespace));
            }
            written = statuses.write_next() => match written {
                Ok(namespace) => failed.forget(&namespace),
                Err((namespace, why)) => {
                    tracing::debug!("status of resourcequotas of {namespace}: {why}");
                    failed.record(namespace, Instant::now());
                }
            },
        }
    }
}

/// The namespaces whose quotas could not be updated.
#[derive(Default)]
struct Failed(HashMap<String, Retry>);

struct Retry {
    /// The time of the next attempt; `None` while it is queued.
    at: Option<Instant>,
    pause: Duration,
}

impl Failed {
    /// The time of the next attempt.
    fn next(&self) -> Option<Instant> {
        self.0.values().filter_map(|retry| retry.at).min()
    }

    /// The namespaces whose next attempt is due. The caller queues them.
    fn due(&mut self, now: Instant) -> Vec<String> {
        let due = self.0.iter_mut().filter(|(_, retry)| retry.at.is_some_and(|at| at <= now));
        let due = due.map(|(namespace, retry)| {
            retry.at = None;
            namespace.clone()
        });
        due.collect()
    }

    fn record(&mut self, namespace: String, now: Instant) {
        let first = RETRY_AFTER.0 / 2;
        let retry = self.0.entry(namespace).or_insert(Retry { at: None, pause: first });
        retry.pause = RETRY_AFTER.1.min(retry.pause * 2);
        retry.at = Some(now + retry.pause);
    }

    fn forget(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use aggregated_apiserver::store::{
        Collection, Commit, Key, LogReader, Revision, RevisionSequencer, Store, StoreError,
        Versioned,
    };
    use futures::future::{BoxFuture, join, join_all};
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota};
    use kube::api::{Api, DeleteParams, PostParams};
    use kube::runtime::wait::await_condition;
    use serde_json::{Value, json};
    use tokio::sync::Barrier;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::testing::{Member, shared_store};

    /// A server of a shared store, with the controller.
    struct Server {
        member: Member,
        controller: JoinHandle<()>,
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.controller.abort();
        }
    }

    impl Server {
        async fn start(store: &Arc<dyn Store>) -> Self {
            let member = Member::start(store).await;
            let controller = tokio::spawn(run(member.kinds.quota_statuses()));
            Self { member, controller }
        }

        fn maps(&self) -> Api<ConfigMap> {
            Api::namespaced(self.member.client.clone(), "default")
        }

        fn quotas(&self) -> Api<ResourceQuota> {
            Api::namespaced(self.member.client.clone(), "default")
        }

        async fn create(&self, name: &str) -> bool {
            create(&self.maps(), name).await
        }

        /// Waits until the status of the quota has this usage.
        async fn until_used(&self, expected: Value) {
            let is_expected = move |quota: Option<&ResourceQuota>| {
                let status = quota.and_then(|quota| quota.status.as_ref());
                status.is_some_and(|status| json!(status.used) == expected)
            };
            let waiting = await_condition(self.quotas(), "q", is_expected);
            tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
        }
    }

    /// Creates a ConfigMap, unless a quota is exceeded.
    async fn create(maps: &Api<ConfigMap>, name: &str) -> bool {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        match maps.create(&PostParams::default(), &map).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 403 => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// The shared store of one server, whose first write to a quota waits for that of the other server.
    struct HeldStore {
        store: Arc<dyn Store>,
        both: Arc<Barrier>,
        is_first: AtomicBool,
    }

    impl Store for HeldStore {
        fn get<'a>(
            &'a self,
            collection: &'a Collection,
            key: &'a Key,
        ) -> BoxFuture<'a, Result<Option<Versioned>, StoreError>> {
            self.store.get(collection, key)
        }

        fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Revision, StoreError>> {
            Box::pin(async move {
                let is_of_quota = commit.collection.as_str() == "resourcequotas";
                if is_of_quota && self.is_first.swap(false, Ordering::SeqCst) {
                    self.both.wait().await;
                }
                self.store.commit(commit).await
            })
        }

        fn follow(
            &self,
            collection: &Collection,
            reader: Arc<dyn LogReader>,
        ) -> BoxFuture<'_, Result<(), StoreError>> {
            self.store.follow(collection, reader)
        }

        fn collections(&self) -> Vec<Collection> {
            self.store.collections()
        }

        fn sequencer(&self) -> Arc<RevisionSequencer> {
            self.store.sequencer()
        }

        fn is_shared(&self) -> bool {
            true
        }
    }

    /// A store with a quota of this number of ConfigMaps.
    async fn limited_store(count: usize) -> Arc<dyn Store> {
        let store = shared_store();
        let member = Member::start(&store).await;
        let namespaces: Api<Namespace> = Api::all(member.client.clone());
        let default = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        namespaces.create(&PostParams::default(), &default).await.unwrap();
        let quotas: Api<ResourceQuota> = Api::namespaced(member.client.clone(), "default");
        let spec = json!({"hard": {"configmaps": count.to_string()}});
        let quota = serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec}));
        quotas.create(&PostParams::default(), &quota.unwrap()).await.unwrap();
        store
    }

    #[tokio::test]
    async fn a_restarted_server_continues_the_status_of_quotas() {
        let store = limited_store(3).await;
        let server = Server::start(&store).await;
        server.until_used(json!({"configmaps": "0"})).await;
        for name in ["a", "b"] {
            assert!(server.create(name).await);
        }
        server.until_used(json!({"configmaps": "2"})).await;
        drop(server);
        // Nothing computes the status while this object is deleted.
        let member = Member::start(&store).await;
        let maps: Api<ConfigMap> = Api::namespaced(member.client.clone(), "default");
        maps.delete("a", &DeleteParams::default()).await.unwrap();
        drop(member);
        let server = Server::start(&store).await;
        server.until_used(json!({"configmaps": "1"})).await;
        for (name, is_created) in [("c", true), ("d", true), ("e", false)] {
            assert_eq!(server.create(name).await, is_created, "{name}");
        }
        server.until_used(json!({"configmaps": "3"})).await;
    }

    #[tokio::test]
    async fn replicas_share_a_quota() {
        let store = limited_store(5).await;
        let servers = [Server::start(&store).await, Server::start(&store).await];
        servers[0].until_used(json!({"configmaps": "0"})).await;
        let names: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
        let creates = names.iter().enumerate().map(|(at, name)| servers[at % 2].create(name));
        let created = join_all(creates).await.into_iter().filter(|is_created| *is_created).count();
        assert_eq!(created, 5);
        servers[1].until_used(json!({"configmaps": "5"})).await;
        let first = servers[0].maps().list(&Default::default()).await.unwrap().items.remove(0);
        let name = first.metadata.name.unwrap();
        servers[0].maps().delete(&name, &DeleteParams::default()).await.unwrap();
        servers[1].until_used(json!({"configmaps": "4"})).await;
        assert!(servers[1].create("again").await);
    }

    #[tokio::test]
    async fn two_replicas_do_not_use_the_same_rest_of_a_quota() {
        let store = limited_store(1).await;
        let both = Arc::new(Barrier::new(2));
        let held = || -> Arc<dyn Store> {
            let (store, both) = (Arc::clone(&store), Arc::clone(&both));
            Arc::new(HeldStore { store, both, is_first: AtomicBool::new(true) })
        };
        let members = [Member::start(&held()).await, Member::start(&held()).await];
        let [first, second] = [&members[0], &members[1]]
            .map(|member| Api::<ConfigMap>::namespaced(member.client.clone(), "default"));
        // Both servers write the same amounts to the status, and one of the writes is refused.
        let created = join(create(&first, "a"), create(&second, "b"));
        let created = tokio::time::timeout(Duration::from_secs(60), created).await.unwrap();
        assert!(created.0 != created.1, "{created:?}");
        assert_eq!(first.list(&Default::default()).await.unwrap().items.len(), 1);
        assert_eq!(second.list(&Default::default()).await.unwrap().items.len(), 1);
    }

    #[test]
    fn pauses_of_failed_updates_double() {
        let (mut failed, now) = (Failed::default(), Instant::now());
        assert_eq!(failed.next(), None);
        for pause in [100, 200, 400] {
            failed.record("a".to_owned(), now);
            let at = now + Duration::from_millis(pause);
            assert_eq!(failed.next(), Some(at));
            assert!(failed.due(now).is_empty());
            assert_eq!(failed.due(at), ["a"]);
            assert_eq!(failed.next(), None);
        }
        (0..20).for_each(|_| failed.record("a".to_owned(), now));
        assert_eq!(failed.next(), Some(now + RETRY_AFTER.1));
        failed.forget("a");
        failed.record("a".to_owned(), now);
        assert_eq!(failed.next(), Some(now + RETRY_AFTER.0));
    }
}
