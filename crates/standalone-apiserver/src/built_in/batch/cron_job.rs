//! CronJobs.

use aggregated_apiserver::strategy::age;
use aggregated_apiserver::{FieldError, Validation};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, JobSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::job_spec;
use super::schedule::{fault_of_schedule, is_zone};
use crate::built_in::cell_texts::{NONE, or_none};
use crate::built_in::checks::{
    FieldErrors, check_given, check_not_negative, check_one_of, quote, to_json,
};
use crate::built_in::defaulting::set_default;
use crate::built_in::label_selector;
use crate::built_in::pod_template::{self, containers_column, images_column, warnings};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy;

/// The largest length of a name. The name of a Job consists of the name of its CronJob and a timestamp.
const CRON_NAME_LIMIT: usize = 52;

pub(crate) fn row() -> Row<CronJob> {
    let rules = Validation::new()
        .prepare(|job, context| {
            prepare(job);
            let old = context.old::<CronJob>();
            let old = old.as_ref().and_then(template);
            if let Some(spec) = &mut job.spec.job_template.spec {
                pod_template::drop_disabled(&mut spec.template, old);
            }
        })
        .validate(|job, old, _| validate(job, old))
        .warn(|job, old, _| warnings(job, old));
    Row {
        short_names: &["cj"],
        categories: ALL,
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy::with_generation())
    }
}

fn columns() -> Vec<Column<CronJob>> {
    vec![
        Column::path("Schedule", ".spec.schedule"),
        Column::computed("Timezone", |job: &CronJob, _| {
            or_none(job.spec.time_zone.clone().unwrap_or_default())
        }),
        Column::computed("Suspend", |job, _| suspend(job)).of_type("boolean"),
        Column::computed("Active", |job, _| active(job)).of_type("integer"),
        Column::computed("Last Schedule", last_schedule),
        Column::age(),
        containers_column(|one| one.spec.job_template.spec.as_ref()?.template.spec.as_ref()),
        images_column(|one| one.spec.job_template.spec.as_ref()?.template.spec.as_ref()),
        label_selector::column(|one| one.spec.job_template.spec.as_ref()?.selector.as_ref()),
    ]
}

fn suspend(job: &CronJob) -> &'static str {
    match job.spec.suspend {
        Some(true) => "True",
        Some(false) => "False",
        None => NONE,
    }
}

fn active(job: &CronJob) -> usize {
    let active = job.status.as_ref().and_then(|status| status.active.as_ref());
    active.map_or(0, Vec::len)
}

fn last_schedule(job: &CronJob, now: Timestamp) -> String {
    let last = job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    last.map_or_else(|| NONE.to_owned(), |last| age(last.0, now))
}

fn prepare(job: &mut CronJob) {
    let spec = &mut job.spec;
    set_default(&mut spec.concurrency_policy, "Allow");
    spec.suspend.get_or_insert(false);
    spec.successful_jobs_history_limit.get_or_insert(3);
    spec.failed_jobs_history_limit.get_or_insert(1);
    if let Some(spec) = &mut spec.job_template.spec {
        job_spec::set_defaults(spec);
    }
}

/// The template of the Pods of a CronJob.
fn template(job: &CronJob) -> Option<&PodTemplateSpec> {
    job.spec.job_template.spec.as_ref().map(|spec| &spec.template)
}

fn validate(job: &CronJob, old: Option<&CronJob>) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = &job.spec;
    check_schedule(spec, old.map(|old| &old.spec), &mut faults);
    check_not_negative("spec.startingDeadlineSeconds", spec.starting_deadline_seconds, &mut faults);
    if let Some(zone) = &spec.time_zone
        && old.is_none_or(|old| old.spec.time_zone != spec.time_zone)
    {
        check_time_zone(zone, &mut faults);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    let policy = spec.concurrency_policy.as_ref();
    check_one_of("spec.concurrencyPolicy", policy, &policies, &mut faults);
    let nothing = JobSpec::default();
    let job_spec = spec.job_template.spec.as_ref().unwrap_or(&nothing);
    let at = "spec.jobTemplate.spec";
    job_spec::validate(job_spec, old.and_then(template), at, &mut faults);
    if let Some(selector) = &job_spec.selector {
        let why = "`selector` will be auto-generated";
        faults.push(FieldError::invalid(format!("{at}.selector"), to_json(selector), why));
    }
    if job_spec.manual_selector == Some(true) {
        let at = format!("{at}.manualSelector");
        faults.push(FieldError::not_supported(at, true, &["nil", "false"]));
    }
    for (field, value) in [
        ("spec.successfulJobsHistoryLimit", spec.successful_jobs_history_limit),
        ("spec.failedJobsHistoryLimit", spec.failed_jobs_history_limit),
    ] {
        check_not_negative(field, value, &mut faults);
    }
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if old.is_none() && name.len() > CRON_NAME_LIMIT {
        let why = format!("must be no more than {CRON_NAME_LIMIT} characters");
        faults.push(FieldError::invalid("metadata.name", quote(name), &why));
    }
    faults
}

/// Validates the schedule. A time zone in the schedule is valid only if the old schedule has one.
fn check_schedule(spec: &CronJobSpec, old: Option<&CronJobSpec>, faults: &mut FieldErrors) {
    const AT: &str = "spec.schedule";
    if !check_given(AT, &spec.schedule, faults) {
        return;
    }
    let invalid = |why: &str| FieldError::invalid(AT, quote(&spec.schedule), why);
    faults.extend(fault_of_schedule(&spec.schedule).map(|why| invalid(&why)));
    if !spec.schedule.contains("TZ") {
        return;
    }
    if !old.is_some_and(|old| old.schedule.contains("TZ")) {
        faults.push(invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    } else if spec.time_zone.is_some() {
        faults.push(invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule"));
    }
}

fn check_time_zone(zone: &str, faults: &mut FieldErrors) {
    let mut push = |why: &str| faults.push(FieldError::invalid("spec.timeZone", quote(zone), why));
    if zone.is_empty() {
        return push("timeZone must be nil or non-empty string");
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let is_part = |part: &str| {
        (1..=14).contains(&part.len())
            && part.bytes().all(is_allowed)
            && !part.starts_with('-')
            && !matches!(part, "." | "..")
    };
    let unknown = format!("unknown time zone {zone}");
    if !zone.split('/').all(is_part) {
        return push(&unknown);
    }
    if zone.eq_ignore_ascii_case("local") {
        push(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    if !is_zone(zone) {
        push(&unknown);
    }
}

/// Warnings about the template of a CronJob that is new or has a new generation, and about its schedule.
fn warnings(job: &CronJob, old: Option<&CronJob>) -> Vec<String> {
    let generation = |job: &CronJob| job.metadata.generation;
    let is_changed = old.is_none_or(|old| generation(old) != generation(job));
    let of_name = old.is_none().then(|| warnings::of_name(job.metadata.name.as_deref())).flatten();
    let spec = job.spec.job_template.spec.as_ref().filter(|_| is_changed);
    let of_spec = spec.map(|spec| job_spec::warnings(spec, "spec.jobTemplate.spec"));
    // The field has the name of kube-apiserver's message.
    let of_zone = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
    let has_zone = old.is_some() && job.spec.schedule.contains("TZ");
    let of_zone = has_zone.then(|| of_zone.to_owned());
    of_name.into_iter().chain(of_spec.into_iter().flatten()).chain(of_zone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, faults_of_new, faults_of_update, prepared};
    use serde_json::{Value, json};

    fn job(more: Value) -> Value {
        let template = json!({"spec": {"template": {
            "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
        }}});
        let mut spec = json!({"schedule": "* * * * *", "jobTemplate": template});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": "j"}, "spec": spec})
    }

    #[test]
    fn defaults() {
        let filled = prepared(prepare, job(json!({"suspend": true})))["spec"].clone();
        for (field, value) in [
            ("concurrencyPolicy", json!("Allow")),
            ("suspend", json!(true)),
            ("successfulJobsHistoryLimit", json!(3)),
            ("failedJobsHistoryLimit", json!(1)),
        ] {
            assert_eq!(filled[field], value, "{field}");
        }
        // The defaults of Jobs are set when one is created from the template.
        let template = &filled["jobTemplate"]["spec"];
        assert_eq!(template["completions"], json!(null));
        assert_eq!(template["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    }

    #[test]
    fn cron_job_validation_reports_invalid_fields() {
        for (more, expected) in [
            (json!({}), vec![]),
            (
                json!({"schedule": "", "timeZone": "Europe/Berlin"}),
                vec!["spec.schedule: Required value"],
            ),
            (
                json!({"schedule": "@never", "timeZone": "Mars/Base"}),
                vec![
                    "spec.schedule: Invalid value: \"@never\": unrecognized descriptor: @never",
                    "spec.timeZone: Invalid value: \"Mars/Base\": unknown time zone Mars/Base",
                ],
            ),
            (
                json!({"startingDeadlineSeconds": -1, "concurrencyPolicy": "X"}),
                vec![
                    "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
                    "spec.concurrencyPolicy: Unsupported value: \"X\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
                ],
            ),
            (
                json!({"jobTemplate": {"spec": {"template": {"spec": {
                    "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always",
                }}}}}),
                vec![
                    "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
                ],
            ),
        ] {
            assert_eq!(faults_of_new(validate, job(more.clone())), expected, "{more}");
        }
        let mut long = job(json!({}));
        long["metadata"]["name"] = "j".repeat(53).into();
        let faults = faults_of_new(validate, long.clone());
        assert_eq!(faults.len(), 1);
        assert!(faults[0].ends_with(": must be no more than 52 characters"), "{faults:?}");
        assert_eq!(faults_of_update(validate, long.clone(), long), [] as [&str; 0]);
    }

    #[test]
    fn an_existing_unknown_time_zone_is_allowed_in_cron_job_updates() {
        let lost = job(json!({"timeZone": "Mars/Base"}));
        assert_eq!(faults_of_update(validate, lost.clone(), lost), [] as [&str; 0]);
    }

    #[test]
    fn cron_job_printer_columns_are_filled() {
        let mut job = job(json!({"suspend": false, "timeZone": "Etc/UTC"}));
        job["status"] = json!({
            "active": [{"name": "a"}, {"name": "b"}], "lastScheduleTime": "2024-05-01T11:55:00Z",
        });
        assert_eq!(
            cells(columns(), job),
            json!({
                "Timezone": "Etc/UTC", "Suspend": "False", "Active": 2, "Last Schedule": "5m",
                "Age": "<unknown>", "Containers": "c", "Images": "i", "Selector": "<none>",
            })
        );
        let shown = cells(columns(), json!({}));
        for heading in ["Timezone", "Suspend", "Last Schedule"] {
            assert_eq!(shown[heading], "<none>", "{heading}");
        }
    }
}
