//! Jobs and CronJobs.

use aggregated_apiserver::{FieldError, Rules};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Faults, check_kept, check_not_negative, check_one_of, quote, selectors, shown};
use crate::built_in::pod_template;

/// A Job is called after its CronJob and a time.
const CRON_NAME_LIMIT: usize = 52;

pub(in super::super) fn jobs(rules: Rules<Job>) -> Rules<Job> {
    rules.validate(|job: &Job, old, _| {
        let mut faults = Vec::new();
        let Some(spec) = &job.spec else { return faults };
        check_job(spec, "spec", &mut faults);
        let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        match &spec.selector {
            None => faults.push(FieldError::required("spec.selector", "")),
            Some(selector) => {
                selectors::check(selector, "spec.selector", &mut faults);
                let is_own = spec.manual_selector == Some(true) || is_generated(selector);
                if old.is_none() && !is_own {
                    let why = "`selector` not auto-generated";
                    faults.push(FieldError::invalid("spec.selector", shown(selector), why));
                }
                if !selectors::matches(selector, labels) {
                    let why = "`selector` does not match template `labels`";
                    let at = "spec.template.metadata.labels";
                    faults.push(FieldError::invalid(at, shown(&labels), why));
                }
            }
        }
        let Some(old) = old.and_then(|old| old.spec.as_ref()) else { return faults };
        let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
        if is_indexed && spec.completions != old.completions && spec.completions != spec.parallelism
        {
            let why = "can only be modified in tandem with spec.parallelism";
            faults.push(FieldError::invalid("spec.completions", shown(&spec.completions), why));
        }
        if !is_indexed {
            check_kept("spec.completions", &spec.completions, &old.completions, &mut faults);
        }
        check_kept("spec.selector", &spec.selector, &old.selector, &mut faults);
        if old.suspend != Some(true) {
            check_kept("spec.template", &spec.template, &old.template, &mut faults);
        }
        let (mode, policy) = (&spec.completion_mode, &spec.pod_failure_policy);
        check_kept("spec.completionMode", mode, &old.completion_mode, &mut faults);
        check_kept("spec.podFailurePolicy", policy, &old.pod_failure_policy, &mut faults);
        let limit = &spec.backoff_limit_per_index;
        check_kept("spec.backoffLimitPerIndex", limit, &old.backoff_limit_per_index, &mut faults);
        check_kept("spec.managedBy", &spec.managed_by, &old.managed_by, &mut faults);
        check_kept("spec.successPolicy", &spec.success_policy, &old.success_policy, &mut faults);
        faults
    })
}

/// Whether a selector is that of one Job alone.
fn is_generated(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_some_and(|labels| labels.len() == 1)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

pub(in super::super) fn cron_jobs(rules: Rules<CronJob>) -> Rules<CronJob> {
    rules.validate(|job: &CronJob, old, _| {
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
        check_job(template, "spec.jobTemplate.spec", &mut faults);
        let name = job.metadata.name.as_deref().unwrap_or_default();
        if old.is_none() && name.len() > CRON_NAME_LIMIT {
            let why = format!("must be no more than {CRON_NAME_LIMIT} characters");
            faults.push(FieldError::invalid("metadata.name", quote(name), &why));
        }
        faults
    })
}

fn check_job(spec: &JobSpec, at: &str, faults: &mut Faults) {
    for (field, value) in [
        ("parallelism", spec.parallelism.map(i64::from)),
        ("completions", spec.completions.map(i64::from)),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit.map(i64::from)),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from)),
    ] {
        check_not_negative(format!("{at}.{field}"), value, faults);
    }
    let modes = ["NonIndexed", "Indexed"];
    check_one_of(format!("{at}.completionMode"), spec.completion_mode.as_ref(), &modes, faults);
    if spec.completion_mode.as_deref() == Some("Indexed") && spec.completions.is_none() {
        let why = "when completion mode is Indexed";
        faults.push(FieldError::required(format!("{at}.completions"), why));
    }
    let template = format!("{at}.template");
    pod_template::check_template(&spec.template, &template, faults);
    let policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let at = format!("{template}.spec.restartPolicy");
    match policy.unwrap_or("Always") {
        "OnFailure" | "Never" => {}
        "Always" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            faults.push(FieldError::required(at, why));
        }
        other => {
            faults.push(FieldError::not_supported(at, quote(other), &["OnFailure", "Never"]));
        }
    }
}

/// What is wrong with a schedule in the language of cron.
fn fault_of_schedule(schedule: &str) -> Option<String> {
    const NAMES: [&str; 7] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    const MONTHS: &[&str] =
        &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    const FIELDS: [CronField; 5] = [
        CronField { least: 0, most: 59, names: &[] },
        CronField { least: 0, most: 23, names: &[] },
        CronField { least: 1, most: 31, names: &[] },
        CronField { least: 1, most: 12, names: MONTHS },
        CronField { least: 0, most: 6, names: DAYS },
    ];
    if schedule.starts_with('@') {
        let is_known =
            NAMES.contains(&schedule) || schedule.strip_prefix("@every ").is_some_and(is_duration);
        return (!is_known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        let found = fields.join(" ");
        return Some(format!("expected exactly 5 fields, found {}: [{found}]", fields.len()));
    }
    let mut parts = fields.iter().zip(FIELDS).flat_map(|(field, of)| {
        field.split(',').filter(|part| !part.is_empty()).map(move |part| (part, of))
    });
    parts.find_map(|(part, of)| of.fault(part))
}

/// Whether a text is a duration of Go: `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let units = ["ns", "us", "ms", "s", "m", "h"];
        let Some(unit) = units.into_iter().find(|unit| behind.starts_with(unit)) else {
            return false;
        };
        if number.parse::<f64>().is_err() {
            return false;
        }
        rest = &behind[unit.len()..];
    }
    !text.is_empty()
}

/// What a field of a schedule may say.
#[derive(Clone, Copy)]
struct CronField {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

impl CronField {
    fn fault(&self, part: &str) -> Option<String> {
        let (range, step) =
            part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (least, most) = (self.least, self.most);
        let ends: Vec<&str> = range.split('-').collect();
        if ends.len() > 2 {
            return Some(format!("too many hyphens: {part}"));
        }
        let mut numbers = vec![least, most];
        if !["*", "?"].contains(&range) {
            numbers.clear();
            for end in ends {
                match self.number(end) {
                    Ok(number) => numbers.push(number),
                    Err(why) => return Some(why),
                }
            }
        }
        match step.map(number) {
            Some(Err(why)) => return Some(why),
            Some(Ok(0)) => {
                return Some(format!("step of range should be a positive number: {part}"));
            }
            Some(Ok(_)) | None => {}
        }
        let (first, last) = (numbers.first().copied()?, numbers.last().copied()?);
        if first < least {
            return Some(format!("beginning of range ({first}) below minimum ({least}): {part}"));
        }
        if last > most {
            return Some(format!("end of range ({last}) above maximum ({most}): {part}"));
        }
        (first > last)
            .then(|| format!("beginning of range ({first}) beyond end of range ({last}): {part}"))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| *name == text.to_lowercase());
        match named.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(at + self.least),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        let shown = quote(text);
        format!("failed to parse int from {text}: strconv.Atoi: parsing {shown}: invalid syntax")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in [
            "* * * * *",
            "*/5 0-6 1,15 jan-MAR mon",
            "0 0 ? * 0",
            "0,30, * * * *",
            "@daily",
            "@every 1h30m",
        ] {
            assert_eq!(fault_of_schedule(good), None, "{good}");
        }
        for bad in [
            "60 * * * *",
            "30-10 * * * *",
            "1-2-3 * * * *",
            "mon * * * *",
            "* * 0 * *",
            "*/0 * * * *",
            "@never",
            "@every x",
            "* * * *",
        ] {
            assert!(fault_of_schedule(bad).is_some(), "{bad}");
        }
    }
}
