//! The cells of Jobs.

use aggregated_apiserver::strategy::age;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::built_in::label_selector;
use crate::built_in::pod_template::{containers_column, images_column};
use crate::built_in::row::Column;

pub(crate) fn columns() -> Vec<Column<Job>> {
    vec![
        Column::computed("Status", |job, _| status(job)),
        Column::computed("Completions", |job, _| completions(job)),
        Column::computed("Duration", duration),
        Column::age(),
        containers_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
        images_column(|one| one.spec.as_ref()?.template.spec.as_ref()),
        label_selector::column(|one| one.spec.as_ref()?.selector.as_ref()),
    ]
}

fn status(job: &Job) -> &'static str {
    let holds = |condition: &str| {
        let status = job.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == condition && one.status == "True")
    };
    let names = ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"];
    let found = names.into_iter().find(|condition| holds(condition));
    match (found, job.metadata.deletion_timestamp.is_some()) {
        (Some(shown), _) => shown,
        (None, true) => "Terminating",
        (None, false) => "Running",
    }
}

fn completions(job: &Job) -> String {
    let done = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default();
    let spec = job.spec.as_ref();
    match spec.and_then(|spec| spec.completions) {
        Some(wanted) => format!("{done}/{wanted}"),
        None => match spec.and_then(|spec| spec.parallelism).unwrap_or_default() {
            at_once @ 2.. => format!("{done}/1 of {at_once}"),
            _ => format!("{done}/1"),
        },
    }
}

fn duration(job: &Job, now: Timestamp) -> String {
    let begun = job.status.as_ref().and_then(|status| status.start_time.as_ref());
    let ended = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
    begun.map(|begun| age(begun.0, ended.map_or(now, |time| time.0))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::cells;
    use serde_json::json;

    #[test]
    fn job_printer_columns_are_filled() {
        let mut job = json!({"spec": {
            "completions": 3, "selector": {"matchLabels": {"u": "1"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        }});
        job["status"] = json!({
            "succeeded": 1, "startTime": "2024-05-01T11:58:00Z",
            "conditions": [{"type": "Suspended", "status": "True"}],
        });
        assert_eq!(
            cells(columns(), job),
            json!({
                "Status": "Suspended", "Completions": "1/3", "Duration": "2m",
                "Age": "<unknown>", "Containers": "c", "Images": "i", "Selector": "u=1",
            })
        );
        let done = json!({"spec": {"parallelism": 2}, "status": {
            "startTime": "2024-05-01T11:50:00Z", "completionTime": "2024-05-01T11:50:30Z",
            "conditions": [{"type": "Failed", "status": "False"}, {"type": "Complete", "status": "True"}],
        }});
        let shown = cells(columns(), done);
        assert_eq!((&shown["Status"], &shown["Duration"]), (&json!("Complete"), &json!("30s")));
        assert_eq!(shown["Completions"], "0/1 of 2");
        let running = cells(columns(), json!({}));
        assert_eq!((&running["Status"], &running["Duration"]), (&json!("Running"), &json!("")));
    }
}
