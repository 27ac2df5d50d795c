//! What kube-apiserver fills in where the author of an object said nothing.

use std::collections::BTreeMap;

use aggregated_apiserver::{Quantity, Rules};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentStrategy, ReplicaSet, RollingUpdateDeployment,
};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, HostIP, Namespace, NamespaceSpec, NamespaceStatus, Node, Pod, PodCondition, PodIP,
    PodSpec, PodStatus, ResourceRequirements, Service, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::addresses::{Addresses, is_external};
use super::defaulting::{agree, fill};
use super::pod_template::fill_template;
use super::pod_template::resources::round;
use super::pod_template::spec::fill_pod;

/// The label by which a namespace can be selected.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// What holds a namespace until it is empty.
const FINALIZER: &str = "kubernetes";
/// Taints of nodes that cannot take Pods.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// For so long a Pod stays on such a node.
const TOLERATED_SECONDS: i64 = 300;
/// How long a client of a Service meets the same Pod, if it is to.
const SESSION_SECONDS: i32 = 10_800;

pub(super) fn namespaces() -> Rules<Namespace> {
    Rules::none().prepare(|namespace: &mut Namespace, _| {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        namespace.metadata.labels.get_or_insert_default().insert(NAME_LABEL.to_owned(), name);
        let status = namespace.status.get_or_insert_with(NamespaceStatus::default);
        fill(&mut status.phase, "Active");
        // Whoever writes it: it is held until it is empty.
        let spec = namespace.spec.get_or_insert_with(NamespaceSpec::default);
        let finalizers = spec.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
    })
}

pub(super) fn services() -> Rules<Service> {
    let addresses = Addresses::default();
    Rules::none().prepare(move |service: &mut Service, context| {
        let status = service.status.get_or_insert_default();
        let balancer = status.load_balancer.get_or_insert_default();
        let spec_type = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
        if context.old::<Service>().is_some() && spec_type != Some("LoadBalancer") {
            balancer.ingress = None;
        }
        for ingress in balancer.ingress.iter_mut().flatten().filter(|one| one.ip.is_some()) {
            fill(&mut ingress.ip_mode, "VIP");
        }
        let Some(spec) = &mut service.spec else { return };
        fill(&mut spec.type_, "ClusterIP");
        fill(&mut spec.session_affinity, "None");
        if spec.type_.as_deref() != Some("ExternalName") {
            fill(&mut spec.internal_traffic_policy, "Cluster");
        }
        if spec.session_affinity.as_deref() == Some("ClientIP") {
            let config = spec.session_affinity_config.get_or_insert_default();
            config.client_ip.get_or_insert_default().timeout_seconds.get_or_insert(SESSION_SECONDS);
        }
        if spec.session_affinity.as_deref() == Some("None") {
            spec.session_affinity_config = None;
        }
        if is_external(spec) {
            fill(&mut spec.external_traffic_policy, "Cluster");
        }
        if spec.type_.as_deref() == Some("LoadBalancer") {
            spec.allocate_load_balancer_node_ports.get_or_insert(true);
        }
        for port in spec.ports.iter_mut().flatten() {
            fill(&mut port.protocol, "TCP");
            let is_nothing = |port: &IntOrString| match port {
                IntOrString::Int(number) => *number == 0,
                IntOrString::String(name) => name.is_empty(),
            };
            if port.target_port.as_ref().is_none_or(is_nothing) {
                port.target_port = Some(IntOrString::Int(port.port));
            }
        }
        let old = context.old::<Service>().and_then(|old| old.spec);
        if spec.type_.as_deref() == Some("ExternalName") {
            spec.internal_traffic_policy = None;
        }
        // What lacks its ports is refused, and takes no address.
        let has_ports = spec.ports.as_ref().is_some_and(|ports| !ports.is_empty());
        if has_ports || spec.cluster_ip.is_some() || old.is_some() {
            addresses.fill(spec, old.as_ref());
        }
    })
}

pub(super) fn nodes() -> Rules<Node> {
    Rules::none().prepare(|node: &mut Node, _| {
        if let Some(status) = &mut node.status {
            round(&mut status.capacity);
            round(&mut status.allocatable);
        }
        if let Some(status) = &mut node.status
            && status.allocatable.as_ref().is_none_or(BTreeMap::is_empty)
        {
            status.allocatable.clone_from(&status.capacity);
        }
        let spec = node.spec.get_or_insert_default();
        agree(&mut spec.pod_cidr, &mut spec.pod_cidrs, |range| range.clone(), |range| range);
        // What a cluster does when a node is made.
        let is_new = node.metadata.resource_version.is_none();
        let taints = spec.taints.get_or_insert_default();
        if is_new && !taints.iter().any(|taint| taint.key == NOT_READY) {
            let effect = "NoSchedule".to_owned();
            taints.push(Taint { key: NOT_READY.to_owned(), effect, ..Taint::default() });
        }
    })
}

pub(super) fn pods() -> Rules<Pod> {
    Rules::none().prepare(|pod: &mut Pod, context| {
        let is_new = pod.metadata.resource_version.is_none();
        let spec = pod.spec.get_or_insert_default();
        fill_pod(spec);
        spec.enable_service_links.get_or_insert(true);
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            fill_requests(container);
        }
        fill_own_requests(spec);
        share_ports(spec);
        if is_new {
            // What a cluster does when a Pod is made.
            spec.priority.get_or_insert(0);
            fill(&mut spec.preemption_policy, "PreemptLowerPriority");
        }
        tolerate_lost_nodes(spec);
        let class = quality(spec);
        let is_gated =
            is_new && spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let status = pod.status.get_or_insert_with(PodStatus::default);
        fill(&mut status.phase, "Pending");
        fill(&mut status.qos_class, class);
        let conditions = status.conditions.get_or_insert_default();
        if is_gated && !conditions.iter().any(|condition| condition.type_ == "PodScheduled") {
            let message = "Scheduling is blocked due to non-empty scheduling gates";
            conditions.push(PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: Some("SchedulingGated".to_owned()),
                message: Some(message.to_owned()),
                last_transition_time: Some(Time(context.now)),
                ..PodCondition::default()
            });
        }
        agree(&mut status.pod_ip, &mut status.pod_ips, |one| one.ip.clone(), |ip| PodIP { ip });
        agree(&mut status.host_ip, &mut status.host_ips, |one| one.ip.clone(), |ip| HostIP { ip });
    })
}

/// A Pod stays for a while on a node that is not ready, or out of reach.
fn tolerate_lost_nodes(spec: &mut PodSpec) {
    let tolerations = spec.tolerations.get_or_insert_default();
    let is_of = |text: &Option<String>, wanted: &str| {
        text.as_deref().is_none_or(|text| text.is_empty() || text == wanted)
    };
    for key in [NOT_READY, UNREACHABLE] {
        let mut all = tolerations.iter();
        if all.any(|one| is_of(&one.key, key) && is_of(&one.effect, "NoExecute")) {
            continue;
        }
        tolerations.push(Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            toleration_seconds: Some(TOLERATED_SECONDS),
            value: None,
        });
    }
}

/// What a Pod limits itself to it asks for, if its containers do not.
fn fill_own_requests(spec: &mut PodSpec) {
    let Some(own) = &mut spec.resources else { return };
    let Some(limits) = own.limits.clone() else { return };
    let is_asked_for = |name: &str| {
        let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        containers.any(|container| {
            let resources = container.resources.as_ref();
            let requests = resources.and_then(|resources| resources.requests.as_ref());
            requests.is_some_and(|requests| requests.contains_key(name))
        })
    };
    let requests = own.requests.get_or_insert_default();
    for (name, limit) in limits {
        if !is_asked_for(&name) {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// On the network of its node, a container's ports are the node's.
fn share_ports(spec: &mut PodSpec) {
    if spec.host_network != Some(true) {
        return;
    }
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    for port in containers.flat_map(|container| container.ports.iter_mut().flatten()) {
        if port.host_port.unwrap_or(0) == 0 {
            port.host_port = Some(port.container_port);
        }
    }
}

/// Whoever limits a resource asks for as much of it.
fn fill_requests(container: &mut Container) {
    let Some(resources) = &mut container.resources else { return };
    let Some(limits) = resources.limits.clone() else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// How well a Pod is treated when resources run out: by what it asks for itself,
/// or else by what its containers do.
fn quality(spec: &PodSpec) -> &'static str {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_containers = containers.map(|container| container.resources.clone().unwrap_or_default());
    let all: Vec<ResourceRequirements> = match &spec.resources {
        Some(own) => vec![own.clone()],
        None => of_containers.collect(),
    };
    let mut is_guaranteed = true;
    let mut is_best_effort = true;
    for resources in &all {
        let amount = |of: &Option<BTreeMap<String, Amount>>, name: &str| {
            let given = of.as_ref().and_then(|amounts| amounts.get(name));
            let nanos = given.and_then(|given| Quantity::parse(&given.0).ok())?.nanos();
            Some(nanos).filter(|nanos| *nanos > 0)
        };
        for name in ["cpu", "memory"] {
            let limit = amount(&resources.limits, name);
            let request = amount(&resources.requests, name);
            is_best_effort &= limit.is_none() && request.is_none();
            is_guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (is_best_effort, is_guaranteed) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

pub(super) fn deployments() -> Rules<Deployment> {
    Rules::none().prepare(|deployment: &mut Deployment, _| {
        let spec = deployment.spec.get_or_insert_default();
        spec.replicas.get_or_insert(1);
        spec.revision_history_limit.get_or_insert(10);
        spec.progress_deadline_seconds.get_or_insert(600);
        let strategy = spec.strategy.get_or_insert_with(DeploymentStrategy::default);
        fill(&mut strategy.type_, "RollingUpdate");
        if strategy.type_.as_deref() == Some("RollingUpdate") {
            let rolling = RollingUpdateDeployment::default();
            let rolling = strategy.rolling_update.get_or_insert(rolling);
            let quarter = IntOrString::String("25%".to_owned());
            rolling.max_surge.get_or_insert_with(|| quarter.clone());
            rolling.max_unavailable.get_or_insert(quarter);
        }
        fill_template(&mut spec.template);
    })
}

pub(super) fn replica_sets() -> Rules<ReplicaSet> {
    Rules::none().prepare(|set: &mut ReplicaSet, _| {
        let spec = set.spec.get_or_insert_default();
        spec.replicas.get_or_insert(1);
        if let Some(template) = &mut spec.template {
            fill_template(template);
        }
    })
}

pub(super) fn jobs() -> Rules<Job> {
    Rules::none().prepare(|job: &mut Job, _| {
        let (name, uid) = (job.metadata.name.clone(), job.metadata.uid.clone());
        let is_new = job.metadata.resource_version.is_none();
        let spec = job.spec.get_or_insert_default();
        if spec.completions.is_none() && spec.parallelism.is_none() {
            spec.completions = Some(1);
        }
        spec.parallelism.get_or_insert(1);
        // Where each index has a limit of its own, all together have none.
        let limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
        spec.backoff_limit.get_or_insert(limit);
        spec.suspend.get_or_insert(false);
        spec.manual_selector.get_or_insert(false);
        fill(&mut spec.completion_mode, "NonIndexed");
        let has_policy = spec.pod_failure_policy.is_some();
        let replaced = if has_policy { "Failed" } else { "TerminatingOrFailed" };
        fill(&mut spec.pod_replacement_policy, replaced);
        fill_job(spec);
        if is_new && spec.manual_selector != Some(true) {
            select(spec, &name.unwrap_or_default(), &uid.unwrap_or_default());
        }
        let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
        if job.metadata.labels.as_ref().is_none_or(BTreeMap::is_empty) {
            job.metadata.labels = labels.filter(|labels| !labels.is_empty());
        }
    })
}

/// The labels by which a Job knows its Pods: in their old and in their new form.
fn select(spec: &mut JobSpec, name: &str, uid: &str) {
    let labels = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
        ("controller-uid", uid),
        ("job-name", name),
    ] {
        labels.entry(label.to_owned()).or_insert_with(|| value.to_owned());
    }
    let selected = spec.selector.get_or_insert_default().match_labels.get_or_insert_default();
    selected
        .entry("batch.kubernetes.io/controller-uid".to_owned())
        .or_insert_with(|| uid.to_owned());
}

pub(super) fn cron_jobs() -> Rules<CronJob> {
    Rules::none().prepare(|job: &mut CronJob, _| {
        let spec = &mut job.spec;
        fill(&mut spec.concurrency_policy, "Allow");
        spec.suspend.get_or_insert(false);
        spec.successful_jobs_history_limit.get_or_insert(3);
        spec.failed_jobs_history_limit.get_or_insert(1);
        if let Some(spec) = &mut spec.job_template.spec {
            fill_job(spec);
        }
    })
}

fn fill_job(spec: &mut JobSpec) {
    let rules = spec.pod_failure_policy.iter_mut().flat_map(|policy| &mut policy.rules);
    for pattern in rules.flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        fill(&mut pattern.status, "True");
    }
    fill_template(&mut spec.template);
}
