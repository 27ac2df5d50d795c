//! DefaultStorageClass and DefaultIngressClass: set the newest default class in claims and Ingresses that name no
//! class.

use aggregated_apiserver::admission::{
    AdmissionError, AdmissionObject, AdmissionPlugin, AdmissionRequest,
};
use futures::future::{BoxFuture, ready};
use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::creates;
use crate::built_in::networking::ingress_class;
use crate::built_in::storage::storage_class;

/// The admission plugin DefaultStorageClass of Kubernetes.
pub(super) struct DefaultStorageClass;

/// The admission plugin DefaultIngressClass of Kubernetes.
pub(super) struct DefaultIngressClass;

impl AdmissionPlugin for DefaultStorageClass {
    fn name(&self) -> &str {
        "DefaultStorageClass"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates(request, "", "persistentvolumeclaims")
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let annotation = "volume.beta.kubernetes.io/storage-class";
        let set = set_class(request, object, ("storageClassName", annotation), |class| {
            storage_class::is_default(class)
        });
        Box::pin(ready(set))
    }
}

impl AdmissionPlugin for DefaultIngressClass {
    fn name(&self) -> &str {
        "DefaultIngressClass"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        creates(request, "networking.k8s.io", "ingresses")
    }

    fn mutate<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        object: &'a mut AdmissionObject<'_>,
    ) -> BoxFuture<'a, Result<(), AdmissionError>> {
        let annotation = "kubernetes.io/ingress.class";
        let set = set_class(request, object, ("ingressClassName", annotation), |class| {
            ingress_class::is_default(class)
        });
        Box::pin(ready(set))
    }
}

trait Class: Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned {}

impl Class for StorageClass {}
impl Class for IngressClass {}

/// Sets a field of the spec to the default class, unless the field or the annotation names a class.
fn set_class<K: Class>(
    request: &AdmissionRequest<'_>,
    object: &mut AdmissionObject<'_>,
    (field, annotation): (&str, &str),
    is_default: fn(&K) -> bool,
) -> Result<(), AdmissionError> {
    let spec = object.get("spec");
    let is_named = spec.and_then(|spec| spec.get(field)).is_some_and(|class| !class.is_null());
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    if is_named || annotations.is_some_and(|all| all.get(annotation).is_some()) {
        return Ok(());
    }
    let classes = request.find_all::<K>(K::API_VERSION, K::URL_PATH_SEGMENT, None)?;
    let Some(class) = newest(classes.iter().filter(|class| is_default(class))) else {
        return Ok(());
    };
    let spec = object.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(spec) = spec {
        spec.insert(field.to_owned(), class.into());
    }
    Ok(())
}

/// The name of the newest class; the first one if several are equally new.
fn newest<'a, K: Class + 'a>(classes: impl Iterator<Item = &'a K>) -> Option<String> {
    let classes = classes.filter_map(|class| {
        let metadata = class.metadata();
        Some((metadata.creation_timestamp.as_ref().map(|made| made.0), metadata.name.clone()?))
    });
    let newest = classes.min_by(|(one, name), (other, other_name)| {
        other.cmp(one).then_with(|| name.cmp(other_name))
    });
    newest.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::testing::object;
    use serde_json::json;

    #[test]
    fn the_newest_is_the_default() {
        let class = |name: &str, made: &str| -> StorageClass {
            object(json!({"metadata": {"name": name, "creationTimestamp": made}}))
        };
        let (early, late) = ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z");
        let classes = [class("c", early), class("b", late), class("a", late), class("d", late)];
        assert_eq!(newest(classes.iter()).as_deref(), Some("a"));
        assert_eq!(newest(classes[..1].iter()).as_deref(), Some("c"));
        assert_eq!(newest(std::iter::empty::<&StorageClass>()), None);
    }
}
