//! What kube-apiserver fills in where the author of an object said nothing.

use aggregated_apiserver::Rules;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentStrategy, ReplicaSet, RollingUpdateDeployment,
};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, Namespace, NamespaceSpec, NamespaceStatus, Pod, PodSpec, PodStatus, PodTemplateSpec,
    Probe, ResourceRequirements, Secret, Service,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The label by which a namespace can be selected.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// What holds a namespace until it is empty.
pub(crate) const FINALIZER: &str = "kubernetes";
/// How files of a volume may be used: readable by all, writable by their owner.
const MODE: i32 = 0o644;

pub(super) fn none<K>() -> Rules<K> {
    Rules::none()
}

pub(super) fn namespaces() -> Rules<Namespace> {
    Rules::none().prepare(|namespace: &mut Namespace, _| {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        namespace.metadata.labels.get_or_insert_default().insert(NAME_LABEL.to_owned(), name);
        let status = namespace.status.get_or_insert_with(NamespaceStatus::default);
        status.phase.get_or_insert_with(|| "Active".to_owned());
        // Whoever writes it: it is held until it is empty.
        let finalizer = FINALIZER.to_owned();
        namespace.spec = Some(NamespaceSpec { finalizers: Some(vec![finalizer.clone()]) });
        let finalizers = namespace.metadata.finalizers.get_or_insert_default();
        if !finalizers.contains(&finalizer) {
            finalizers.push(finalizer);
        }
    })
}

pub(super) fn secrets() -> Rules<Secret> {
    Rules::none().prepare(|secret: &mut Secret, _| {
        fill(&mut secret.type_, "Opaque");
        if let Some(texts) = secret.string_data.take() {
            let bytes = texts.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes())));
            secret.data.get_or_insert_default().extend(bytes);
        }
    })
}

pub(super) fn services() -> Rules<Service> {
    Rules::none().prepare(|service: &mut Service, _| {
        service.status.get_or_insert_default().load_balancer.get_or_insert_default();
        let Some(spec) = &mut service.spec else { return };
        fill(&mut spec.type_, "ClusterIP");
        fill(&mut spec.session_affinity, "None");
        if spec.type_.as_deref() != Some("ExternalName") {
            fill(&mut spec.internal_traffic_policy, "Cluster");
        }
        for port in spec.ports.iter_mut().flatten() {
            fill(&mut port.protocol, "TCP");
            port.target_port.get_or_insert(IntOrString::Int(port.port));
        }
    })
}

pub(super) fn pods() -> Rules<Pod> {
    Rules::none().prepare(|pod: &mut Pod, _| {
        let status = pod.status.get_or_insert_with(PodStatus::default);
        fill(&mut status.phase, "Pending");
        if let Some(spec) = &mut pod.spec {
            fill_pod(spec);
            spec.enable_service_links.get_or_insert(true);
        }
    })
}

pub(super) fn deployments() -> Rules<Deployment> {
    Rules::none().prepare(|deployment: &mut Deployment, _| {
        let Some(spec) = &mut deployment.spec else { return };
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
        let Some(spec) = &mut set.spec else { return };
        spec.replicas.get_or_insert(1);
        if let Some(template) = &mut spec.template {
            fill_template(template);
        }
    })
}

pub(super) fn jobs() -> Rules<Job> {
    Rules::none().prepare(|job: &mut Job, _| {
        let Some(spec) = &mut job.spec else { return };
        if spec.completions.is_none() && spec.parallelism.is_none() {
            spec.completions = Some(1);
        }
        spec.parallelism.get_or_insert(1);
        spec.backoff_limit.get_or_insert(6);
        spec.suspend.get_or_insert(false);
        spec.manual_selector.get_or_insert(false);
        fill(&mut spec.completion_mode, "NonIndexed");
        fill(&mut spec.pod_replacement_policy, "TerminatingOrFailed");
        fill_job(spec);
    })
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
    fill_template(&mut spec.template);
}

fn fill_template(template: &mut PodTemplateSpec) {
    if let Some(spec) = &mut template.spec {
        fill_pod(spec);
    }
}

fn fill_pod(spec: &mut PodSpec) {
    fill(&mut spec.restart_policy, "Always");
    fill(&mut spec.dns_policy, "ClusterFirst");
    fill(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context.get_or_insert_default();
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    containers.for_each(fill_container);
    for volume in spec.volumes.iter_mut().flatten() {
        if let Some(map) = &mut volume.config_map {
            map.default_mode.get_or_insert(MODE);
        }
        if let Some(secret) = &mut volume.secret {
            secret.default_mode.get_or_insert(MODE);
        }
    }
}

fn fill_container(container: &mut Container) {
    fill(&mut container.termination_message_path, "/dev/termination-log");
    fill(&mut container.termination_message_policy, "File");
    container.resources.get_or_insert_with(ResourceRequirements::default);
    let image = container.image.as_deref().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let is_fixed =
        image.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    fill(&mut container.image_pull_policy, if is_fixed { "IfNotPresent" } else { "Always" });
    for port in container.ports.iter_mut().flatten() {
        fill(&mut port.protocol, "TCP");
    }
    for variable in container.env.iter_mut().flatten() {
        let from = variable.value_from.as_mut().and_then(|from| from.field_ref.as_mut());
        if let Some(field) = from {
            fill(&mut field.api_version, "v1");
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    probes.into_iter().flatten().for_each(fill_probe);
}

fn fill_probe(probe: &mut Probe) {
    probe.timeout_seconds.get_or_insert(1);
    probe.period_seconds.get_or_insert(10);
    probe.success_threshold.get_or_insert(1);
    probe.failure_threshold.get_or_insert(3);
    if let Some(get) = &mut probe.http_get {
        fill(&mut get.path, "/");
        fill(&mut get.scheme, "HTTP");
    }
}

fn fill(field: &mut Option<String>, default: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(default.to_owned());
    }
}
