//! The approval of definitions in the groups of the Kubernetes community: an annotation states where they were
//! approved, or that they are not.

use aggregated_apiserver::FieldError;
use http::Uri;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::built_in::checks::quote;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const GROUPS: [&str; 2] = ["k8s.io", "kubernetes.io"];
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The state of the annotation of a definition in such a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    Bypassed,
    Approved,
}

/// A condition: its status, its reason and its message.
pub(crate) type Condition = (&'static str, &'static str, String);

/// The condition `KubernetesAPIApprovalPolicyConformant` of a definition; `None` if its
/// group needs no approval.
pub(crate) fn condition(definition: &CustomResourceDefinition) -> Option<Condition> {
    let (approval, message) = approval(definition)?;
    let (status, reason) = match approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
    };
    Some((status, reason, message))
}

/// Validates the annotation. An error that the old definition has, too, is ignored.
pub(crate) fn check(
    definition: &CustomResourceDefinition,
    old: Option<&CustomResourceDefinition>,
) -> Option<FieldError> {
    let (approval, message) = approval(definition)?;
    let before = old.and_then(self::approval).map(|(approval, _)| approval);
    if before == Some(approval) {
        return None;
    }
    let at = format!("metadata.annotations[{ANNOTATION}]");
    match approval {
        Approval::Missing => Some(FieldError::required(at, &message)),
        Approval::Invalid => Some(FieldError::invalid(at, quote(annotation(definition)), &message)),
        Approval::Bypassed | Approval::Approved => None,
    }
}

fn annotation(definition: &CustomResourceDefinition) -> &str {
    let annotations = definition.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOTATION)).map_or("", String::as_str)
}

fn approval(definition: &CustomResourceDefinition) -> Option<(Approval, String)> {
    let group = definition.spec.group.as_str();
    let is_of = |root: &str| {
        group.strip_suffix(root).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if !GROUPS.into_iter().any(is_of) {
        return None;
    }
    let given = annotation(definition);
    let is_address = given
        .parse::<Uri>()
        .is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty()));
    Some(if given.is_empty() {
        let why = format!("protected groups must have approval annotation {ANNOTATION:?}, {SEE}");
        (Approval::Missing, why)
    } else if given.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {given:?}"))
    } else if is_address {
        (Approval::Approved, format!("approved in {given}"))
    } else {
        let why = format!(
            "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting with \"unapproved\", {SEE}"
        );
        (Approval::Invalid, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::json;

    fn definition(group: &str, annotation: Option<&str>) -> CustomResourceDefinition {
        let annotations = annotation.map(|text| json!({ANNOTATION: text}));
        object(json!({"metadata": {"annotations": annotations}, "spec": {"group": group}}))
    }

    #[test]
    fn approval_condition_depends_on_the_api_approved_annotation() {
        for (group, annotation, expected) in [
            ("example.com", None, None),
            ("myk8s.io", None, None),
            ("k8s.io", None, Some(("False", "MissingAnnotation"))),
            ("a.k8s.io", Some("nonsense"), Some(("False", "InvalidAnnotation"))),
            (
                "a.kubernetes.io",
                Some("unapproved, a test"),
                Some(("False", "UnapprovedAnnotation")),
            ),
            ("a.k8s.io", Some("https://example.com/1"), Some(("True", "ApprovedAnnotation"))),
        ] {
            let found = condition(&definition(group, annotation));
            assert_eq!(found.map(|(status, reason, _)| (status, reason)), expected, "{group}");
        }
    }

    #[test]
    fn an_existing_approval_error_is_allowed_in_updates() {
        let missing = definition("a.k8s.io", None);
        let invalid = definition("a.k8s.io", Some("nonsense"));
        let start = |new: &_, old| check(new, old).map(|fault| fault.to_string()[..60].to_owned());
        let at = "metadata.annotations[api-approved.kubernetes.io]: ";
        assert_eq!(start(&missing, None), Some(format!("{at}Required v")));
        assert_eq!(start(&invalid, None), Some(format!("{at}Invalid va")));
        assert_eq!(start(&missing, Some(&missing)), None);
        assert!(start(&invalid, Some(&missing)).is_some());
    }
}
