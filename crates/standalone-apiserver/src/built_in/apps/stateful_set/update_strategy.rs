//! The update strategy of StatefulSets.

use aggregated_apiserver::FieldError;
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSetUpdateStrategy};
use serde_json::json;

use super::{ON_DELETE, ROLLING};
use crate::built_in::checks::{FieldErrors, check_not_negative, quote, to_json};
use crate::built_in::share;

/// Validates the update strategy.
pub(super) fn validate(strategy: &StatefulSetUpdateStrategy, faults: &mut FieldErrors) {
    const AT: &str = "spec.updateStrategy.rollingUpdate";
    let rolling = strategy.rolling_update.as_ref();
    match (strategy.type_.as_deref().unwrap_or_default(), rolling) {
        (ON_DELETE, Some(rolling)) => {
            let why = "only allowed for updateStrategy 'RollingUpdate'";
            faults.push(FieldError::invalid(AT, shown(rolling), why));
        }
        (ROLLING, Some(rolling)) => {
            check_not_negative(format!("{AT}.partition"), rolling.partition, faults);
            let Some(unavailable) = &rolling.max_unavailable else { return };
            let at = format!("{AT}.maxUnavailable");
            share::check(&at, unavailable, faults);
            if share::is_nothing(unavailable) {
                faults.push(FieldError::invalid(&*at, to_json(unavailable), "cannot be 0"));
            }
            share::check_at_most_all(&at, unavailable, faults);
        }
        (ON_DELETE | ROLLING, None) => {}
        (other, rolling) => {
            let rolling = rolling.map_or_else(|| "null".to_owned(), shown);
            let value = format!(r#"{{"Type":{},"RollingUpdate":{rolling}}}"#, quote(other));
            let why = "must be 'RollingUpdate' or 'OnDelete'";
            faults.push(FieldError::invalid("spec.updateStrategy", value, why));
        }
    }
}

/// A rolling update in the format of messages, with the field names of Go.
fn shown(rolling: &RollingUpdateStatefulSetStrategy) -> String {
    let (partition, unavailable) = (rolling.partition.unwrap_or(0), &rolling.max_unavailable);
    format!(r#"{{"Partition":{partition},"MaxUnavailable":{}}}"#, json!(unavailable))
}
