//! The validation of the status of Jobs: a finished Job remains finished, and counts are consistent.

use std::collections::BTreeSet;

use aggregated_apiserver::FieldError;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};

use crate::built_in::batch::indexes;
use crate::built_in::batch::job_spec::is_indexed;
use crate::built_in::checks::{FieldErrors, check_not_negative, quote, to_json};

const CONDITIONS: &str = "status.conditions";

/// Whether a condition of a Job is true.
pub(super) fn is_true(status: &JobStatus, condition: &str) -> bool {
    has(status, condition, "True")
}

fn has(status: &JobStatus, condition: &str, value: &str) -> bool {
    let mut all = status.conditions.iter().flatten();
    all.any(|one| one.type_ == condition && one.status == value)
}

/// The conditions of a finished Job, and those of a Job that is about to finish.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ends {
    is_complete: bool,
    has_failed: bool,
    will_fail: bool,
    has_succeeded: bool,
}

impl Ends {
    fn of(status: &JobStatus) -> Self {
        Self {
            is_complete: is_true(status, "Complete"),
            has_failed: is_true(status, "Failed"),
            will_fail: is_true(status, "FailureTarget"),
            has_succeeded: is_true(status, "SuccessCriteriaMet"),
        }
    }

    fn is_finished(self) -> bool {
        self.is_complete || self.has_failed
    }
}

/// A change of a status. Most fields are validated only if they change.
struct Change<'a> {
    spec: &'a JobSpec,
    new: &'a JobStatus,
    old: &'a JobStatus,
    ends: Ends,
    old_ends: Ends,
}

/// Validates a status, compared with the old one if there is any.
pub(super) fn validate(job: &Job, old: Option<&Job>) -> FieldErrors {
    let mut faults = Vec::new();
    let (no_spec, nothing) = (JobSpec::default(), JobStatus::default());
    let new = job.status.as_ref().unwrap_or(&nothing);
    let old = old.and_then(|old| old.status.as_ref()).unwrap_or(&nothing);
    let change = Change {
        spec: job.spec.as_ref().unwrap_or(&no_spec),
        new,
        old,
        ends: Ends::of(new),
        old_ends: Ends::of(old),
    };
    check_counts(new, &mut faults);
    check_ends(&change, &mut faults);
    check_times(&change, &mut faults);
    check_finished(&change, &mut faults);
    check_indexes(&change, &mut faults);
    check_success(&change, &mut faults);
    check_decrease(&change, &mut faults);
    faults
}

fn check_counts(status: &JobStatus, faults: &mut FieldErrors) {
    for (field, count) in [
        ("active", status.active),
        ("succeeded", status.succeeded),
        ("failed", status.failed),
        ("ready", status.ready),
        ("terminating", status.terminating),
    ] {
        check_not_negative(format!("status.{field}"), count, faults);
    }
    let mut seen = BTreeSet::new();
    let uncounted = status.uncounted_terminated_pods.as_ref();
    for (field, uids) in [
        ("succeeded", uncounted.and_then(|pods| pods.succeeded.as_ref())),
        ("failed", uncounted.and_then(|pods| pods.failed.as_ref())),
    ] {
        for (index, uid) in uids.into_iter().flatten().enumerate() {
            let at = format!("status.uncountedTerminatedPods.{field}[{index}]");
            if uid.is_empty() {
                faults.push(FieldError::invalid(at, quote(uid), "must not be empty"));
            } else if !seen.insert(uid) {
                faults.push(FieldError::duplicate(at, quote(uid)));
            }
        }
    }
}

/// Checks that a Job does not finish in two ways.
fn check_ends(change: &Change<'_>, faults: &mut FieldErrors) {
    let (new, old) = (change.ends, change.old_ends);
    let mut push = |why: &str| faults.push(FieldError::invalid_unseen(CONDITIONS, why));
    let completes = new.is_complete != old.is_complete;
    if (completes || new.has_failed != old.has_failed) && new.is_complete && new.has_failed {
        push("cannot set Complete=True and Failed=true conditions");
    }
    if (completes || new.will_fail != old.will_fail) && new.is_complete && new.will_fail {
        push("cannot set Complete=True and FailureTarget=true conditions");
    }
    let fails =
        new.has_failed != old.has_failed || change.new.failed_indexes != change.old.failed_indexes;
    if fails && new.has_failed && !new.will_fail {
        push("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (completes || new.has_succeeded != old.has_succeeded)
        && new.is_complete
        && !new.has_succeeded
    {
        push("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
}

fn check_times(change: &Change<'_>, faults: &mut FieldErrors) {
    const AT: &str = "status.completionTime";
    let (new, old) = (change.new, change.old);
    let is_ended_anew = new.completion_time != old.completion_time;
    if is_ended_anew || change.ends.is_complete != change.old_ends.is_complete {
        match &new.completion_time {
            Some(time) if !change.ends.is_complete => {
                let why = "cannot set completionTime when there is no Complete=True condition";
                faults.push(FieldError::invalid(AT, to_json(time), why));
            }
            None if change.ends.is_complete => {
                let why = "completionTime is required for Complete jobs";
                faults.push(FieldError::required(AT, why));
            }
            _ => {}
        }
    }
    if let (Some(end), Some(start)) = (&new.completion_time, &new.start_time)
        && (is_ended_anew || new.start_time != old.start_time)
        && end.0 < start.0
    {
        let why = "must be equal to or after `startTime`";
        faults.push(FieldError::invalid(AT, to_json(end), why));
    }
    if let (Some(time), Some(old_time)) = (&new.completion_time, &old.completion_time)
        && time != old_time
    {
        faults.push(FieldError::invalid(AT, to_json(time), "field is immutable"));
    }
    let is_resumed = is_true(old, "Suspended") && has(new, "Suspended", "False");
    if old.start_time.is_some()
        && old.start_time != new.start_time
        && !is_resumed
        && change.spec.suspend != Some(true)
    {
        let why = "field is immutable for unsuspended job once set";
        faults.push(FieldError::invalid("status.startTime", to_json(&new.start_time), why));
    }
}

/// Checks that a finished Job has no running Pods.
fn check_finished(change: &Change<'_>, faults: &mut FieldErrors) {
    let (new, old) = (change.new, change.old);
    let is_finished = change.ends.is_finished();
    let ends = is_finished != change.old_ends.is_finished();
    let count = |count: Option<i32>| count.unwrap_or(0);
    if (ends || count(new.active) != count(old.active)) && is_finished && count(new.active) > 0 {
        let why = "active>0 is invalid for finished job";
        faults.push(FieldError::invalid("status.active", count(new.active), why));
    }
    let does_nothing = change.spec.suspend == Some(true) && change.spec.completions == Some(0);
    let starts = ends || new.start_time != old.start_time;
    if starts && !does_nothing && is_finished && new.start_time.is_none() {
        let why = "startTime is required for finished job";
        faults.push(FieldError::required("status.startTime", why));
    }
    if let Some(pods) = &new.uncounted_terminated_pods
        && (ends || new.uncounted_terminated_pods != old.uncounted_terminated_pods)
        && is_finished
        && pods.succeeded.iter().chain(&pods.failed).any(|uids| !uids.is_empty())
    {
        // The fields have the names of Go.
        let value = format!(
            r#"{{"Succeeded":{},"Failed":{}}}"#,
            to_json(&pods.succeeded),
            to_json(&pods.failed)
        );
        let why = "must be empty for finished job";
        faults.push(FieldError::invalid("status.uncountedTerminatedPods", value, why));
    }
    if let Some(count) = new.terminating.filter(|count| *count > 0)
        && (ends || new.terminating != old.terminating)
        && is_finished
    {
        let why = "terminating>0 is invalid for finished job";
        faults.push(FieldError::invalid("status.terminating", count, why));
    }
    if let Some(ready) = new.ready.filter(|ready| *ready > count(new.active))
        && (new.ready != old.ready || count(new.active) != count(old.active))
    {
        let why = "cannot set more ready pods than active";
        faults.push(FieldError::invalid("status.ready", ready, why));
    }
}

fn check_indexes(change: &Change<'_>, faults: &mut FieldErrors) {
    let (new, old) = (change.new, change.old);
    let text = |list: &Option<String>| list.clone().unwrap_or_default();
    let (completed, failed) = (text(&new.completed_indexes), new.failed_indexes.as_ref());
    let completed_changes = completed != text(&old.completed_indexes);
    let failed_changes = new.failed_indexes != old.failed_indexes;
    let mut invalid = |field: &str, list: &str, why: &str| {
        faults.push(FieldError::invalid(format!("status.{field}"), quote(list), why));
    };
    if let Some(completions) = change.spec.completions {
        if completed_changes && let Err(why) = indexes::count(&completed, completions) {
            invalid(
                "completedIndexes",
                &completed,
                &format!("error parsing completedIndexes: {why}"),
            );
        }
        if failed_changes
            && change.spec.backoff_limit_per_index.is_some()
            && let Some(failed) = failed
            && let Err(why) = indexes::count(failed, completions)
        {
            invalid("failedIndexes", failed, &format!("error parsing failedIndexes: {why}"));
        }
    }
    if completed_changes && !completed.is_empty() && !is_indexed(change.spec) {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        invalid("completedIndexes", &completed, why);
    }
    let Some(failed) = failed else { return };
    if failed_changes && change.spec.backoff_limit_per_index.is_none() {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        invalid("failedIndexes", failed, why);
    }
    if let Some(completions) =
        change.spec.completions.filter(|_| completed_changes || failed_changes)
        && let Some(index) = indexes::overlap(&completed, failed, completions)
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        invalid("failedIndexes", failed, &why);
    }
}

fn check_success(change: &Change<'_>, faults: &mut FieldErrors) {
    let ends = change.ends;
    let mut push = |why: &str| faults.push(FieldError::invalid_unseen(CONDITIONS, why));
    if ends.has_succeeded && ends.has_failed {
        push("cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if ends.has_succeeded && ends.will_fail {
        push("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if change.spec.success_policy.is_some() && !ends.has_succeeded && ends.is_complete {
        push("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
    }
}

/// Checks that conditions remain, and that counts do not decrease.
fn check_decrease(change: &Change<'_>, faults: &mut FieldErrors) {
    let (new, old) = (change.ends, change.old_ends);
    for (condition, is_set, was_set) in [
        ("Failed", new.has_failed, old.has_failed),
        ("Complete", new.is_complete, old.is_complete),
        ("FailureTarget", new.will_fail, old.will_fail),
    ] {
        if was_set && !is_set {
            let why = format!("cannot disable the terminal {condition}=True condition");
            faults.push(FieldError::invalid_unseen(CONDITIONS, &why));
        }
    }
    let may_fall = is_indexed(change.spec) && change.spec.completions == change.spec.parallelism;
    for (field, count, before, is_judged) in [
        ("failed", change.new.failed, change.old.failed, true),
        ("succeeded", change.new.succeeded, change.old.succeeded, !may_fall),
    ] {
        let (count, before) = (count.unwrap_or(0), before.unwrap_or(0));
        if is_judged && count < before {
            let why = format!("cannot decrease the {field} counter");
            faults.push(FieldError::invalid(format!("status.{field}"), count, &why));
        }
    }
    let mut push = |why: &str| faults.push(FieldError::invalid_unseen(CONDITIONS, why));
    if old.has_succeeded && !new.has_succeeded {
        push("cannot disable the SuccessCriteriaMet=True condition");
    }
    if old.is_complete && !old.has_succeeded && new.has_succeeded {
        push("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::faults_of_update;
    use serde_json::{Value, json};

    fn job(status: Value) -> Value {
        let template = json!({"spec": {"containers": []}});
        json!({"spec": {"completions": 3, "template": template}, "status": status})
    }

    #[test]
    fn ends() {
        let time = "2024-05-01T12:00:00Z";
        let condition = |type_: &str| json!({"type": type_, "status": "True"});
        let complete = json!({
            "startTime": time, "completionTime": time,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        });
        let update =
            |old: &Value, new: Value| faults_of_update(validate, job(old.clone()), job(new));
        assert_eq!(update(&json!({}), complete.clone()), [] as [&str; 0]);
        assert_eq!(update(&complete, complete.clone()), [] as [&str; 0]);
        assert_eq!(update(&complete, json!({"startTime": time})).len(), 2);
        assert_eq!(update(&json!({}), json!({"conditions": [condition("Complete")]})).len(), 3);
        assert_eq!(
            update(&json!({"failed": 2}), json!({"failed": 1})),
            ["status.failed: Invalid value: 1: cannot decrease the failed counter"]
        );
    }
}
