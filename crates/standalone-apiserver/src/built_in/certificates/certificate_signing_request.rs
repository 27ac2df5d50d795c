//! CertificateSigningRequests.

use aggregated_apiserver::strategy::{NameRule, RuleContext, age};
use aggregated_apiserver::{SelectableFields, Strategy, Validation};
use jiff::SignedDuration;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::validation::{validate, validate_status};
use crate::built_in::cell_texts::NONE;
use crate::built_in::conditions::ZERO_TIME;
use crate::built_in::row::{Column, Row, Subresources};
use crate::built_in::strategy::without_generation;

pub(super) const APPROVED: &str = "Approved";
pub(super) const DENIED: &str = "Denied";
pub(super) const FAILED: &str = "Failed";
/// The subresource that approves and denies requests.
pub(super) const APPROVAL: &str = "approval";

pub(crate) fn row() -> Row<CertificateSigningRequest> {
    let rules = Validation::new()
        .prepare(prepare)
        .validate(|request, old, _| validate(request, old))
        .validate_status(|request, old, context| {
            validate_status(request, old, context.subresource == APPROVAL)
        });
    Row {
        short_names: &["csr"],
        subresources: Subresources::Status,
        columns: columns(),
        rules,
        ..Row::new(strategy())
    }
}

fn strategy() -> Strategy {
    Strategy {
        names: NameRule::PathSegment,
        has_approval: true,
        keeps_spec: true,
        selectable: SelectableFields::default().with_field("spec.signerName", ""),
        ..without_generation()
    }
}

fn columns() -> Vec<Column<CertificateSigningRequest>> {
    vec![
        Column::age(),
        Column::computed("SignerName", |request: &CertificateSigningRequest, _| {
            match request.spec.signer_name.as_str() {
                "" => NONE.to_owned(),
                name => name.to_owned(),
            }
        }),
        Column::computed("Requestor", |request: &CertificateSigningRequest, _| {
            request.spec.username.clone().unwrap_or_default()
        }),
        Column::computed("RequestedDuration", |request: &CertificateSigningRequest, now| {
            let seconds = request.spec.expiration_seconds.map(i64::from);
            let begin = seconds
                .and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
            begin.map_or_else(|| NONE.to_owned(), |begin| age(begin, now))
        }),
        Column::computed("Condition", |request: &CertificateSigningRequest, _| state(request)),
    ]
}

/// The conditions as text, such as `Approved,Issued`.
fn state(request: &CertificateSigningRequest) -> String {
    let has = |of: &str| conditions(request).iter().any(|condition| condition.type_ == of);
    let status = request.status.as_ref();
    let certificate = status.and_then(|status| status.certificate.as_ref());
    let mut text = match (has(DENIED), has(APPROVED)) {
        (true, _) => DENIED.to_owned(),
        (_, true) => APPROVED.to_owned(),
        _ => "Pending".to_owned(),
    };
    for (is_set, word) in [
        (has(FAILED), ",Failed"),
        (certificate.is_some_and(|certificate| !certificate.0.is_empty()), ",Issued"),
    ] {
        if is_set {
            text.push_str(word);
        }
    }
    text
}

pub(super) fn conditions(
    request: &CertificateSigningRequest,
) -> &[CertificateSigningRequestCondition] {
    let status = request.status.as_ref();
    status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn prepare(request: &mut CertificateSigningRequest, context: &RuleContext<'_>) {
    if !context.is_admitted || context.is_restored {
        return;
    }
    match context.old::<CertificateSigningRequest>() {
        None => {
            let spec = &mut request.spec;
            let user = context.user;
            spec.username = Some(user.name.clone());
            spec.uid.clone_from(&user.uid);
            spec.groups = Some(user.groups.clone()).filter(|groups| !groups.is_empty());
            spec.extra = Some(user.extra.clone()).filter(|extra| !extra.is_empty());
        }
        Some(old) if !context.subresource.is_empty() => {
            if context.subresource != APPROVAL {
                keep_conditions(request, &old, APPROVED);
                keep_conditions(request, &old, DENIED);
            }
            set_times(request, &old, Time(context.now));
        }
        Some(_) => {}
    }
}

/// Replaces the conditions of a type by those of the old object, if their number is the same.
fn keep_conditions(
    request: &mut CertificateSigningRequest,
    old: &CertificateSigningRequest,
    of: &str,
) {
    let is_of = |condition: &&CertificateSigningRequestCondition| condition.type_ == of;
    let kept: Vec<_> = conditions(old).iter().filter(is_of).cloned().collect();
    if conditions(request).iter().filter(is_of).count() != kept.len() {
        return;
    }
    let given = request.status.as_mut().and_then(|status| status.conditions.as_mut());
    let given = given.into_iter().flatten().filter(|condition| condition.type_ == of);
    for (condition, kept) in given.zip(kept) {
        *condition = kept;
    }
}

/// Sets the missing times of conditions.
fn set_times(request: &mut CertificateSigningRequest, old: &CertificateSigningRequest, now: Time) {
    let is_missing = |time: &Option<Time>| time.as_ref().is_none_or(|time| time.0 == ZERO_TIME);
    let given = request.status.as_mut().and_then(|status| status.conditions.as_mut());
    for condition in given.into_iter().flatten() {
        if is_missing(&condition.last_update_time) {
            condition.last_update_time = Some(now.clone());
        }
        if is_missing(&condition.last_transition_time) {
            let same = conditions(old).iter().find(|old| {
                (&old.type_, &old.status) == (&condition.type_, &condition.status)
                    && !is_missing(&old.last_transition_time)
            });
            let since = same.and_then(|same| same.last_transition_time.clone());
            condition.last_transition_time = Some(since.unwrap_or_else(|| now.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::{cells, now, object};
    use serde_json::{Value, json};

    fn request(status: Value) -> Value {
        json!({
            "metadata": {"name": "a"}, "status": status,
            "spec": {"request": "", "signerName": "a.b/c", "username": "jane", "expirationSeconds": 3600},
        })
    }

    #[test]
    fn a_request_is_printed_as_a_table_row() {
        for (types, certificate, expected) in [
            (&[][..], "", "Pending"),
            (&["Approved"], "", "Approved"),
            (&["Approved", "Failed"], "", "Approved,Failed"),
            (&["Approved"], "YQ==", "Approved,Issued"),
            (&["Denied", "Approved"], "", "Denied"),
        ] {
            let conditions: Value =
                types.iter().map(|of| json!({"type": of, "status": "True"})).collect();
            let status = json!({"conditions": conditions, "certificate": certificate});
            assert_eq!(
                cells(columns(), request(status)),
                json!({
                    "Age": "<unknown>", "SignerName": "a.b/c", "Requestor": "jane",
                    "RequestedDuration": "60m", "Condition": expected,
                })
            );
        }
    }

    #[test]
    fn a_status_keeps_approvals_and_gets_times() {
        let at = "2024-01-01T00:00:00Z";
        let approved = json!({
            "type": "Approved", "status": "True", "reason": "R", "lastUpdateTime": at,
            "lastTransitionTime": at,
        });
        let old: CertificateSigningRequest = object(request(json!({"conditions": [approved]})));
        let changed = json!({"conditions": [
            {"type": "Approved", "status": "True", "reason": "S"},
            {"type": "Failed", "status": "True"},
        ]});
        let mut new: CertificateSigningRequest = object(request(changed));
        keep_conditions(&mut new, &old, APPROVED);
        set_times(&mut new, &old, Time(now()));
        assert_eq!(conditions(&new)[0], conditions(&old)[0]);
        assert_eq!(conditions(&new)[1].last_transition_time, Some(Time(now())));
    }
}
