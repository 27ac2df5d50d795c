//! How a workload is computed, whatever its kind.

use std::marker::PhantomData;
use std::sync::Arc;

use aggregated_apiserver::{Lookup, SourceScope, Total, Variant};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PartialObjectMeta;

use super::tally::{Tally, has_ended};
use super::view::{Counts, Workload, WorkloadView};
use super::{FarmWorkload, FarmWorkloadSpec, FarmWorkloadStatus, Trouble};
use crate::farm_pod::amounts::Amounts;
use crate::farm_pod::view::{ConditionView, PodView, Text, given};
use crate::farm_pod::{PREFIX, PodMetricsView, Polled, Resources, release, usage, why};

/// Workloads of this kind.
pub struct Of<W>(PhantomData<W>);

impl<W: Workload> Variant for Of<W>
where
    WorkloadView<W>: aggregated_apiserver::SourceType,
{
    type Object = FarmWorkload;
    type Source = WorkloadView<W>;
    type Related =
        (Lookup<PodView>, Lookup<PartialObjectMeta<ReplicaSet>>, Lookup<PodMetricsView, Polled>);

    // A server for tests may have only some of them.
    const SCOPE: SourceScope = SourceScope::ALL.if_served();

    fn compute(workload: &Self::Source, related: &Self::Related) -> Option<FarmWorkload> {
        let (pods, sets, metrics) = related;
        let name = workload.metadata.name.as_deref()?;
        let namespace = workload.metadata.namespace.as_deref();
        let own = workload.metadata.uid.clone().unwrap_or_default();
        // Only a Deployment has something between it and its Pods.
        let owners = if W::POD_OWNER == W::kind(&()) {
            vec![own]
        } else {
            let sets = sets.find_by(set_owner, namespace, &own);
            sets.iter().filter_map(|set| set.metadata.uid.clone()).collect()
        };
        let mut tally = Tally::default();
        let mut own_pods: Vec<Arc<PodView>> = Vec::new();
        for owner in &owners {
            tally.add(&pods.sum_by(owner_of::<W>, Tally::of, namespace, owner));
            own_pods.extend(pods.find_by(owner_of::<W>, namespace, owner));
        }
        let mut used = Amounts::default();
        for pod in own_pods.iter().filter(|pod| !has_ended(pod)) {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            if let Some(metrics) = metrics.get(namespace, name) {
                usage::sum(&mut used, &metrics);
            }
        }
        let (mut cpu, mut memory) = tally.requests();
        usage::set(&mut cpu, &mut memory, &used);
        let counts = W::counts(workload);
        let Counts { wanted, ready, updated, available, is_paused } = counts;
        let kind = W::kind(&()).into_owned();
        let spec = FarmWorkloadSpec { kind, workload: name.to_owned() };
        let mut shown = FarmWorkload::new(&format!("{PREFIX}{name}.{}", W::SHORT_NAME), spec);
        shown.metadata.labels.clone_from(&workload.metadata.labels);
        shown.status = Some(FarmWorkloadStatus {
            readiness: format!("{ready}/{wanted}"),
            wanted,
            ready,
            updated,
            available,
            paused: is_paused,
            pods: tally.pods,
            restarts: tally.restarts,
            last_restart_time: tally.last_restart().map(Time),
            resources: Resources { cpu, memory, ..Resources::default() },
            why: trouble(workload, counts, &tally, &own_pods),
            release: release::release([&workload.metadata]),
        });
        Some(shown)
    }

    fn is_worth_publishing(shown: &FarmWorkload, computed: &FarmWorkload) -> bool {
        let (Some(shown), Some(computed)) = (&shown.status, &computed.status) else { return true };
        usage::has_moved(&shown.resources, &computed.resources)
    }

    fn source_name(name: &str) -> Option<String> {
        let name = name.strip_prefix(PREFIX)?.strip_suffix(W::SHORT_NAME)?.strip_suffix('.')?;
        (!name.is_empty()).then(|| name.to_owned())
    }
}

/// An index of Pods: what controls each, if that is of the kind that these workloads have.
fn owner_of<W: Workload>(pod: &PodView) -> Option<Text> {
    let owner = pod.owners.iter().find(|owner| owner.controller == Some(true))?;
    (owner.kind == W::POD_OWNER).then(|| owner.uid.as_str().into())
}

/// An index of ReplicaSets: what controls each.
fn set_owner(set: &PartialObjectMeta<ReplicaSet>) -> Option<Text> {
    let mut owners = set.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str().into())
}

/// Why a workload does not run well: what its Pods say, or it says of itself. One that has what is wanted,
/// and Pods that have no trouble, does.
fn trouble<W>(
    workload: &WorkloadView<W>,
    Counts { wanted, ready, .. }: Counts,
    tally: &Tally,
    pods: &[Arc<PodView>],
) -> Option<Trouble> {
    let status = &workload.status;
    if status.condition("Complete", true).is_some() {
        return None;
    }
    // It is over: what its Pods say was on the way there.
    if let Some(failed) = status.condition("Failed", true) {
        return Some(of_condition(failed));
    }
    let stalled = status.condition("ReplicaFailure", true);
    let stalled = stalled.or_else(|| status.condition("Progressing", false));
    let (code, count) = match (tally.worst(), stalled) {
        (Some(worst), _) if tally.has_trouble() => worst,
        // Neither progress nor what has ended says more.
        (_, Some(stalled)) => return Some(of_condition(stalled)),
        (Some(worst), None) if ready < wanted => worst,
        _ => return None,
    };
    let of_pods = pods.iter().filter_map(|pod| why::why(pod, None));
    let of_pod = of_pods.into_iter().find(|why| why.code == code);
    let (message, since) = of_pod.map(|why| (why.message, why.since)).unwrap_or_default();
    Some(Trouble { code: code.to_owned(), message, since, pods: count })
}

fn of_condition(condition: &ConditionView) -> Trouble {
    let ConditionView { type_, reason, message, last_transition_time, .. } = condition;
    Trouble {
        code: given(reason.as_ref()).unwrap_or(type_).to_owned(),
        message: given(message.as_ref()).unwrap_or_default().to_owned(),
        since: last_transition_time.clone(),
        pods: 0,
    }
}
