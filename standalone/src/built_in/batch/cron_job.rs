//! CronJobs.

use aggregated_apiserver::{FieldError, Rules, age};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, JobSpec};

use super::job_spec;
use super::schedule::fault_of_schedule;
use crate::built_in::cell_texts::{NONE, or_none};
use crate::built_in::checks::{FieldErrors, check_not_negative, check_one_of, quote};
use crate::built_in::defaulting::set_default;
use crate::built_in::label_selector;
use crate::built_in::pod_template::{containers_column, images_column};
use crate::built_in::row::{ALL, Column, Row, Subresources};
use crate::built_in::strategy;

/// The name of a Job is that of its CronJob and a time.
const CRON_NAME_LIMIT: usize = 52;

pub(crate) fn row() -> Row<CronJob> {
    let rules =
        Rules::new().prepare(|job, _| prepare(job)).validate(|job, old, _| validate(job, old));
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

fn validate(job: &CronJob, old: Option<&CronJob>) -> FieldErrors {
    let mut faults = Vec::new();
    let spec = &job.spec;
    if spec.schedule.is_empty() {
        faults.push(FieldError::required("spec.schedule", ""));
    } else if let Some(why) = fault_of_schedule(&spec.schedule) {
        faults.push(FieldError::invalid("spec.schedule", quote(&spec.schedule), &why));
    }
    if let Some(zone) = &spec.time_zone
        && old.is_none_or(|old| old.spec.time_zone != spec.time_zone)
        && jiff::tz::TimeZone::get(zone).is_err()
    {
        let why = format!("unknown time zone {zone}");
        faults.push(FieldError::invalid("spec.timeZone", quote(zone), &why));
    }
    for (field, value) in [
        ("spec.startingDeadlineSeconds", spec.starting_deadline_seconds),
        ("spec.successfulJobsHistoryLimit", spec.successful_jobs_history_limit.map(i64::from)),
        ("spec.failedJobsHistoryLimit", spec.failed_jobs_history_limit.map(i64::from)),
    ] {
        check_not_negative(field, value, &mut faults);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    let policy = spec.concurrency_policy.as_ref();
    check_one_of("spec.concurrencyPolicy", policy, &policies, &mut faults);
    let nothing = JobSpec::default();
    let template = spec.job_template.spec.as_ref().unwrap_or(&nothing);
    job_spec::validate(template, "spec.jobTemplate.spec", &mut faults);
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if old.is_none() && name.len() > CRON_NAME_LIMIT {
        let why = format!("must be no more than {CRON_NAME_LIMIT} characters");
        faults.push(FieldError::invalid("metadata.name", quote(name), &why));
    }
    faults
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
    fn faults() {
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
    fn a_time_zone_that_was_unknown_before_may_stay() {
        let lost = job(json!({"timeZone": "Mars/Base"}));
        assert_eq!(faults_of_update(validate, lost.clone(), lost), [] as [&str; 0]);
    }

    #[test]
    fn its_table() {
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
