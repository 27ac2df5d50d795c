//! Deployments and ReplicaSets.

use aggregated_apiserver::{FieldError, Rules};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Faults, check_kept, check_not_negative, quote, selectors, shown};
use crate::built_in::pod_template;

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

pub(in super::super) fn deployments(rules: Rules<Deployment>) -> Rules<Deployment> {
    rules.validate(|deployment: &Deployment, old, _| {
        let mut faults = Vec::new();
        let Some(spec) = &deployment.spec else { return faults };
        check_not_negative("spec.replicas", spec.replicas, &mut faults);
        check_selector(&spec.selector, "deployment", &mut faults);
        check_template(Some(&spec.template), &spec.selector, &mut faults);
        check_strategy(spec, &mut faults);
        check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
        check_not_negative("spec.revisionHistoryLimit", spec.revision_history_limit, &mut faults);
        let (deadline, ready) =
            (spec.progress_deadline_seconds.unwrap_or(600), spec.min_ready_seconds.unwrap_or(0));
        check_not_negative("spec.progressDeadlineSeconds", Some(deadline), &mut faults);
        if deadline <= ready {
            let why = "must be greater than minReadySeconds";
            faults.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, why));
        }
        let old = old.and_then(|old| old.spec.as_ref()).map(|old| &old.selector);
        check_change(&spec.selector, old, &mut faults);
        faults
    })
}

pub(in super::super) fn replica_sets(rules: Rules<ReplicaSet>) -> Rules<ReplicaSet> {
    rules.validate(|set: &ReplicaSet, old, _| {
        let mut faults = Vec::new();
        let Some(spec) = &set.spec else { return faults };
        check_not_negative("spec.replicas", spec.replicas, &mut faults);
        check_not_negative("spec.minReadySeconds", spec.min_ready_seconds, &mut faults);
        check_selector(&spec.selector, "replicaset", &mut faults);
        check_template(spec.template.as_ref(), &spec.selector, &mut faults);
        let old = old.and_then(|old| old.spec.as_ref()).map(|old| &old.selector);
        check_change(&spec.selector, old, &mut faults);
        faults
    })
}

/// A selector is none in Rust where it is not there in JSON.
fn check_selector(selector: &LabelSelector, of: &str, faults: &mut Faults) {
    selectors::check(selector, "spec.selector", faults);
    if *selector == LabelSelector::default() {
        faults.push(FieldError::required("spec.selector", ""));
    } else if selectors::is_empty(selector) {
        let why = format!("empty selector is invalid for {of}");
        faults.push(FieldError::invalid("spec.selector", shown(selector), &why));
    }
}

fn check_template(
    template: Option<&PodTemplateSpec>,
    selector: &LabelSelector,
    faults: &mut Faults,
) {
    let nothing = PodTemplateSpec::default();
    let template = template.unwrap_or(&nothing);
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let mut of_selector = Vec::new();
    selectors::check(selector, "spec.selector", &mut of_selector);
    let is_missing = *selector == LabelSelector::default();
    if !of_selector.is_empty() {
        let why = "invalid label selector";
        faults.push(FieldError::invalid("spec.selector", shown(selector), why));
    } else if is_missing
        || (!selectors::is_empty(selector) && !selectors::matches(selector, labels))
    {
        let why = "`selector` does not match template `labels`";
        faults.push(FieldError::invalid("spec.template.metadata.labels", shown(&labels), why));
    }
    pod_template::check_template(template, "spec.template", faults);
    let policy = template.spec.as_ref().and_then(|spec| spec.restart_policy.as_ref());
    super::check_one_of("spec.template.spec.restartPolicy", policy, &["Always"], faults);
    let deadline = template.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    if deadline.is_some() {
        let why = "activeDeadlineSeconds in ReplicaSet is not Supported";
        faults.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", why));
    }
}

fn check_change(selector: &LabelSelector, old: Option<&LabelSelector>, faults: &mut Faults) {
    if let Some(old) = old {
        check_kept("spec.selector", selector, old, faults);
    }
}

fn check_strategy(spec: &DeploymentSpec, faults: &mut Faults) {
    const AT: &str = "spec.strategy.rollingUpdate";
    let Some(strategy) = &spec.strategy else { return };
    let rolling = strategy.rolling_update.as_ref();
    match strategy.type_.as_deref() {
        Some("Recreate") => {
            if rolling.is_some() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                faults.push(FieldError::forbidden(AT, why));
            }
        }
        Some("RollingUpdate") => {
            let Some(rolling) = rolling else {
                let why = "this should be defaulted and never be nil";
                return faults.push(FieldError::required("spec.strategy.rollingUpdate", why));
            };
            let surge = rolling.max_surge.as_ref();
            let unavailable = rolling.max_unavailable.as_ref();
            check_share(&format!("{AT}.maxUnavailable"), unavailable, true, faults);
            check_share(&format!("{AT}.maxSurge"), surge, false, faults);
            let is_nothing = |share: Option<&IntOrString>| match share {
                Some(IntOrString::Int(number)) => *number == 0,
                Some(IntOrString::String(text)) => text.trim_end_matches('%').parse() == Ok(0),
                None => false,
            };
            if is_nothing(surge) && is_nothing(unavailable) {
                let at = format!("{AT}.maxUnavailable");
                let why = "may not be 0 when `maxSurge` is 0";
                faults.push(FieldError::invalid(at, shown(&unavailable), why));
            }
        }
        other => {
            let supported = ["Recreate", "RollingUpdate"];
            let value = quote(other.unwrap_or_default());
            faults.push(FieldError::not_supported("spec.strategy", value, &supported));
        }
    }
}

/// A number, or a share in percent.
fn check_share(at: &str, share: Option<&IntOrString>, is_bounded: bool, faults: &mut Faults) {
    match share {
        Some(IntOrString::Int(number)) => check_not_negative(at, Some(*number), faults),
        Some(IntOrString::String(text)) => {
            let digits = text.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                faults.push(FieldError::invalid(at, quote(text), PERCENT));
            } else if is_bounded && digits.parse::<u32>().is_ok_and(|share| share > 100) {
                let why = "must not be greater than 100%";
                faults.push(FieldError::invalid(at, quote(text), why));
            }
        }
        None => {}
    }
}
