//! The users and groups that see each namespace.
//!
//! A user sees a namespace if a RoleBinding in it names the user or one of its groups. The role does not matter. The
//! subjects of ClusterRoleBindings to `cluster-admin` see all namespaces. Other ClusterRoleBindings have no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::User;
use futures::StreamExt;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use kube::runtime::reflector::{self, reflector};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::watch;

use super::Cluster;

/// The pause before the cluster is read again after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// The users and groups that see each namespace.
#[derive(Debug, Default, PartialEq)]
pub struct Access {
    admins: Subjects,
    namespaces: BTreeMap<String, Subjects>,
}

#[derive(Debug, Default, PartialEq)]
struct Subjects {
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl Subjects {
    fn add(&mut self, subjects: &[Subject], namespace: &str) {
        for Subject { kind, name, namespace: own, .. } in subjects {
            match kind.as_str() {
                "Group" => self.groups.insert(name.clone()),
                "ServiceAccount" => {
                    let namespace = own.as_deref().unwrap_or(namespace);
                    self.users.insert(format!("system:serviceaccount:{namespace}:{name}"))
                }
                _ => self.users.insert(name.clone()),
            };
        }
    }

    fn contain(&self, user: &User) -> bool {
        self.users.contains(&user.name) || user.groups.iter().any(|one| self.groups.contains(one))
    }
}

impl Access {
    fn new(
        bindings: &reflector::Store<RoleBinding>,
        cluster_bindings: &reflector::Store<ClusterRoleBinding>,
    ) -> Self {
        let mut access = Self::default();
        for binding in cluster_bindings.state() {
            if binding.role_ref.name == "cluster-admin" {
                access.admins.add(binding.subjects.as_deref().unwrap_or_default(), "");
            }
        }
        for binding in bindings.state() {
            let namespace = binding.namespace().unwrap_or_default();
            let subjects = binding.subjects.as_deref().unwrap_or_default();
            access.namespaces.entry(namespace.clone()).or_default().add(subjects, &namespace);
        }
        access
    }

    /// Whether a user sees a namespace.
    pub fn allows(&self, user: &User, namespace: &str) -> bool {
        let subjects = self.namespaces.get(namespace);
        self.admins.contain(user) || subjects.is_some_and(|subjects| subjects.contain(user))
    }
}

/// Publishes the access that the RoleBindings and ClusterRoleBindings of a cluster give, and every change of it. While
/// the cluster cannot be read, the last access stays.
pub async fn follow(cluster: Cluster, access: watch::Sender<Arc<Access>>) {
    let client = loop {
        match cluster.client().await {
            Ok(client) => break client,
            Err(error) => tracing::warn!(%error, "cannot read the RoleBindings"),
        }
        tokio::time::sleep(PAUSE).await;
    };
    let (bindings, writer) = reflector::store();
    let of_namespaces =
        watcher(Api::<RoleBinding>::all(client.clone()), watcher::Config::default());
    let of_namespaces =
        reflector(writer, of_namespaces.default_backoff()).map(|event| event.map(drop));
    let (cluster_bindings, writer) = reflector::store();
    let of_cluster = watcher(Api::<ClusterRoleBinding>::all(client), watcher::Config::default());
    let of_cluster = reflector(writer, of_cluster.default_backoff()).map(|event| event.map(drop));
    let mut events = pin!(futures::stream::select(of_namespaces, of_cluster));
    while let Some(event) = events.next().await {
        if let Err(error) = event {
            tracing::warn!(%error, "cannot read the RoleBindings");
            continue;
        }
        let now = Access::new(&bindings, &cluster_bindings);
        // Watches compare all projects after each state, so an equal one is not sent.
        access.send_if_modified(|access| {
            let is_changed = **access != now;
            *access = Arc::new(now);
            is_changed
        });
    }
}
