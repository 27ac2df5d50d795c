//! The computation of a farm workload, for every kind of workload.

use std::marker::PhantomData;
use std::sync::Arc;

use aggregated_apiserver::Lookup;
use aggregated_apiserver::computed::{Aggregate, SourceOptions, Variant};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::tally::{Tally, Used};
use super::view::{Counts, Workload, WorkloadView};
use super::{FarmWorkload, FarmWorkloadSpec, FarmWorkloadStatus, Trouble};
use crate::farm_pod::view::{ConditionView, PodView, Text, given};
use crate::farm_pod::{OwnerView, PREFIX, PodMetricsView, Polled, Resources, release, usage, why};

/// Workloads of kind `W`.
pub struct Of<W>(PhantomData<W>);

impl<W: Workload> Variant for Of<W>
where
    WorkloadView<W>: aggregated_apiserver::computed::SourceType,
{
    type Object = FarmWorkload;
    type Source = WorkloadView<W>;
    type Related = (Lookup<PodView>, Lookup<OwnerView<ReplicaSet>>, Lookup<PodMetricsView, Polled>);

    // A test server may serve only some of these kinds.
    const OPTIONS: SourceOptions = SourceOptions::ALL.if_served();

    fn compute(workload: &Self::Source, related: &Self::Related) -> Option<FarmWorkload> {
        let (pods, sets, metrics) = related;
        let name = workload.metadata.name.as_deref()?;
        let namespace = workload.metadata.namespace.as_deref();
        let own = workload.metadata.uid().unwrap_or_default();
        // Only a Deployment has ReplicaSets between itself and its Pods.
        let owners = if W::POD_OWNER == W::kind(&()) {
            vec![own.into_owned()]
        } else {
            let sets = sets.find_by(set_owner, namespace, &own);
            sets.iter().filter_map(|set| Some(set.metadata.uid()?.into_owned())).collect()
        };
        let owners: Vec<Text> = owners.iter().map(|uid| owner(W::POD_OWNER, uid)).collect();
        let (mut tally, mut used) = (Tally::default(), Used::default());
        for owner in &owners {
            tally.add(&pods.sum_by(owner_of, Tally::of, namespace, owner));
            used.add(&pods.sum_joined(owner_of, metrics, Used::of, namespace, owner));
        }
        let (mut cpu, mut memory) = tally.requests();
        usage::set(&mut cpu, &mut memory, &used.amounts());
        let counts = W::counts(workload);
        let Counts { wanted, ready, updated, available, is_paused } = counts;
        let kind = W::kind(&()).into_owned();
        let spec = FarmWorkloadSpec { kind, workload: name.to_owned() };
        let mut shown = FarmWorkload::new(&format!("{PREFIX}{name}.{}", W::SHORT_NAME), spec);
        shown.metadata.labels = workload.metadata.labels.map();
        shown.status = Some(FarmWorkloadStatus {
            readiness: format!("{ready}/{wanted}"),
            wanted,
            ready,
            updated,
            available,
            paused: is_paused,
            pods: Some(tally.pods),
            restarts: Some(tally.restarts),
            last_restart_time: tally.last_restart().map(Time),
            resources: Resources { cpu, memory, ..Resources::default() },
            why: trouble(workload, counts, &tally, |code| {
                let troubled = owners.iter().map(|owner| of_owner(owner, code));
                troubled.into_iter().find_map(|text| pods.first_by(troubled_of, namespace, &text))
            }),
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

/// Indexes Pods by their controller. All kinds of workloads share this index, so that each sum is computed once.
fn owner_of(pod: &PodView) -> Option<Text> {
    let controller = pod.metadata.controller()?;
    Some(owner(&controller.kind, &controller.uid))
}

/// The key of the index by controller.
fn owner(kind: &str, uid: &str) -> Text {
    format!("{kind} {uid}").into()
}

/// Indexes Pods that do not run well by their controller and the code of the cause.
fn troubled_of(pod: &PodView) -> Option<Text> {
    let why = why::why(pod, None)?;
    Some(of_owner(&owner_of(pod)?, &why.code))
}

/// The key of the index of Pods in trouble.
fn of_owner(owner: &str, code: &str) -> Text {
    format!("{owner} {code}").into()
}

/// Indexes ReplicaSets by their controller.
fn set_owner(set: &OwnerView<ReplicaSet>) -> Option<Text> {
    set.metadata.controller().map(|owner| owner.uid.clone())
}

/// The cause why a workload does not run well, from its Pods or from its own conditions. A workload has no cause if all
/// wanted replicas are ready and no Pod has a problem.
fn trouble<W>(
    workload: &WorkloadView<W>,
    Counts { wanted, ready, .. }: Counts,
    tally: &Tally,
    example: impl FnOnce(&str) -> Option<Arc<PodView>>,
) -> Option<Trouble> {
    let status = &workload.status;
    if status.condition("Complete", true).is_some() {
        return None;
    }
    // The Job has failed. The causes of its Pods are from before the failure.
    if let Some(failed) = status.condition("Failed", true) {
        return Some(of_condition(failed));
    }
    let stalled = status.condition("ReplicaFailure", true);
    let stalled = stalled.or_else(|| status.condition("Progressing", false));
    let (code, count) = match (tally.worst(), stalled) {
        (Some(worst), _) if tally.has_trouble() => worst,
        // The condition is more informative than progress or failed Pods.
        (_, Some(stalled)) => return Some(of_condition(stalled)),
        (Some(worst), None) if ready < wanted => worst,
        _ => return None,
    };
    let of_pod = example(code).and_then(|pod| why::why(&pod, None));
    let (message, since) = of_pod.map(|why| (why.message, why.since)).unwrap_or_default();
    Some(Trouble { code: code.to_owned(), message, since, pods: count })
}

fn of_condition(condition: ConditionView<'_>) -> Trouble {
    let ConditionView { type_, reason, message, last_transition_time, .. } = condition;
    Trouble {
        code: given(reason).unwrap_or(type_).to_owned(),
        message: given(message).unwrap_or_default().to_owned(),
        since: last_transition_time.time(),
        pods: 0,
    }
}
