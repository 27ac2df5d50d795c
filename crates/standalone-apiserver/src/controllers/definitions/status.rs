//! The status of definitions.

use aggregated_apiserver::encoding::truncate_to_seconds;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition, CustomResourceDefinitionNames,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::built_in::approval;

/// A conflict of names: the reason of the condition, and its message.
pub(crate) type Conflict = (&'static str, String);

/// The reason and message of the condition of a kind that is not served.
pub(crate) type Unserved = (&'static str, &'static str);

/// Some names of the definition are not accepted.
pub(crate) const NOT_ACCEPTED: Unserved = ("NotAccepted", "not all names are accepted");
/// The CA bundle of the conversion webhook is invalid.
pub(crate) const INVALID_CA_BUNDLE: Unserved =
    ("InvalidCABundle", "The conversion webhook CABundle is invalid");

/// The status of a definition with these accepted names; `None` if the status does not change.
pub(crate) fn status(
    definition: &CustomResourceDefinition,
    names: &CustomResourceDefinitionNames,
    conflict: Option<Conflict>,
    unserved: Option<Unserved>,
    now: Timestamp,
) -> Option<Value> {
    let before = definition.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone().unwrap_or_default();
    let mut set = |name: &str, (status, reason, message): (&str, &str, String)| {
        set_condition(&mut conditions, name, (status, reason, &message), now);
    };
    set(
        "NamesAccepted",
        match conflict {
            None => ("True", "NoConflicts", "no conflicts found".to_owned()),
            Some((reason, message)) => ("False", reason, message),
        },
    );
    set(
        "Established",
        match unserved {
            None => {
                let why = "the initial names have been accepted";
                ("True", "InitialNamesAccepted", why.to_owned())
            }
            Some((reason, why)) => ("False", reason, why.to_owned()),
        },
    );
    if let Some(approval) = approval::condition(definition) {
        set("KubernetesAPIApprovalPolicyConformant", approval);
    }
    if before.conditions.as_ref() == Some(&conditions)
        && before.accepted_names.as_ref() == Some(names)
    {
        return None;
    }
    // Null removes a field in a merge patch.
    let names = json!({
        "plural": names.plural, "singular": names.singular, "shortNames": names.short_names,
        "kind": names.kind, "listKind": names.list_kind, "categories": names.categories,
    });
    Some(json!({"acceptedNames": names, "conditions": conditions}))
}

/// Sets a condition. Its lastTransitionTime changes only with its status.
pub(crate) fn set_condition(
    conditions: &mut Vec<CustomResourceDefinitionCondition>,
    name: &str,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let known = conditions.iter_mut().find(|one| one.type_ == name);
    let since = known.as_ref().filter(|known| known.status == status);
    let since = since.and_then(|known| known.last_transition_time.clone());
    let condition = CustomResourceDefinitionCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(since.unwrap_or_else(|| Time(truncate_to_seconds(now)))),
        ..CustomResourceDefinitionCondition::default()
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}
