//! What kube-apiserver fills in where the author of an object said nothing.

use std::collections::BTreeMap;

use aggregated_apiserver::Rules;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentStrategy, ReplicaSet, RollingUpdateDeployment,
};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::defaulting::fill;
use super::pod_template::fill_template;

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
