//! Priority: sets the priority of a Pod from its PriorityClass.

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionOperation, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use k8s_openapi::Resource;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Map, Value};

use super::{creates, is_of};
use crate::built_in::priority_class::is_of_system;

type Tree = Map<String, Value>;

const GROUP: &str = PriorityClass::GROUP;
const CLASSES: &str = PriorityClass::URL_PATH_SEGMENT;

/// The admission plugin Priority of Kubernetes. It also protects the system classes, which kube-apiserver does in the
/// storage of PriorityClasses.
pub(super) struct Priority;

impl AdmissionPlugin for Priority {
    fn name(&self) -> &str {
        "Priority"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates(request, "", "pods") || is_of(request, GROUP, CLASSES)
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let set = match request.resource {
            "pods" => set_priority(request, object),
            _ => Ok(()),
        };
        Box::pin(ready(set))
    }

    fn validate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: Option<&'a Tree>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let judged = match request.resource {
            CLASSES => judge_class(request, object),
            _ => Ok(()),
        };
        Box::pin(ready(judged))
    }
}

fn set_priority(
    request: &AdmissionRequest<'_>,
    pod: &mut AdmissionObject<'_>,
) -> Result<(), AdmissionError> {
    let spec = pod.get("spec");
    let text = |field: &str| spec.and_then(|spec| spec.get(field)?.as_str()).unwrap_or_default();
    let class = match text("priorityClassName") {
        "" => default_class(request)?,
        name => {
            let found = request.find(PriorityClass::API_VERSION, CLASSES, None, name)?;
            let missing = || format!("no PriorityClass with name {name} was found");
            Some(found.ok_or_else(|| AdmissionError::forbidden(missing()))?)
        }
    };
    let value = class.as_ref().and_then(|class| class.value).unwrap_or_default();
    let given = spec.and_then(|spec| spec.get("priority")?.as_i64());
    if let Some(given) = given.filter(|given| *given != i64::from(value)) {
        return Err(AdmissionError::forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        )));
    }
    let given = spec.and_then(|spec| spec.get("preemptionPolicy")?.as_str());
    let policy = preemption_policy(class.as_ref());
    if let Some(given) = given.filter(|given| *given != policy) {
        return Err(AdmissionError::forbidden(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    let spec = pod.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(spec) = spec {
        complete(spec, class.as_ref());
    }
    Ok(())
}

/// Completes a Pod that is stored without admission. `classes` are the PriorityClasses that are stored with it. A Pod
/// with another class does not change.
pub(crate) fn complete_loaded(pod: &mut Value, classes: &[PriorityClass]) {
    let Some(spec) = pod["spec"].as_object_mut() else { return };
    let class = match spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default() {
        "" if spec.get("priority").is_some_and(Value::is_number) => None,
        "" => default_of(classes.iter()),
        name => {
            let is_it = |class: &&PriorityClass| class.metadata.name.as_deref() == Some(name);
            let Some(class) = classes.iter().find(is_it) else { return };
            Some(class)
        }
    };
    complete(spec, class);
}

/// Sets the missing fields of a Pod with this class.
fn complete(spec: &mut Tree, class: Option<&PriorityClass>) {
    if let Some(name) = class.and_then(|class| class.metadata.name.as_deref()) {
        spec.insert("priorityClassName".to_owned(), name.into());
    }
    let mut set_missing = |field: &str, value: Value| {
        if spec.get(field).is_none_or(Value::is_null) {
            spec.insert(field.to_owned(), value);
        }
    };
    let value = class.and_then(|class| class.value).unwrap_or_default();
    set_missing("priority", value.into());
    set_missing("preemptionPolicy", preemption_policy(class).into());
}

/// The preemption policy of Pods with this class.
fn preemption_policy(class: Option<&PriorityClass>) -> &str {
    let policy = class.and_then(|class| class.preemption_policy.as_deref());
    policy.unwrap_or("PreemptLowerPriority")
}

/// The class of Pods without `priorityClassName`.
fn default_class(request: &AdmissionRequest<'_>) -> Result<Option<PriorityClass>, AdmissionError> {
    let classes: Vec<PriorityClass> =
        request.find_all(PriorityClass::API_VERSION, CLASSES, None)?;
    Ok(default_of(classes.iter()).cloned())
}

/// The default class; if there are several, the one with the lowest value.
fn default_of<'a>(classes: impl Iterator<Item = &'a PriorityClass>) -> Option<&'a PriorityClass> {
    let classes = classes.filter(|class| class.global_default.unwrap_or_default());
    classes.min_by_key(|class| class.value.unwrap_or_default())
}

fn judge_class(request: &AdmissionRequest<'_>, class: Option<&Tree>) -> Result<(), AdmissionError> {
    let Some(class) = class else {
        let why = "this is a system priority class and cannot be deleted";
        // The deletion of a collection deletes system classes, too, same as in kube-apiserver.
        let is_kept = request.operation == AdmissionOperation::Delete
            && !request.is_of_collection()
            && is_of_system(request.name);
        return if is_kept { Err(AdmissionError::forbidden(why)) } else { Ok(()) };
    };
    if class.get("globalDefault") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    let Some(name) = default_class(request)?.and_then(|class| class.metadata.name) else {
        return Ok(());
    };
    match request.operation == AdmissionOperation::Create || name != request.name {
        true => Err(AdmissionError::forbidden(format!(
            "PriorityClass {name} is already marked as default. Only one default can exist"
        ))),
        false => Ok(()),
    }
}
