//! A backend of objects of any type, which stores whole objects and all versions of their definition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::backend::{
    Backend, BackendError, Create, Delete, DirectKind, Item, Listing, Poll, Read, ReadContext,
    Update, VirtualKind, WriteContext,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::json;

/// The objects, and the number of their writes.
#[derive(Default)]
pub struct Trees(Mutex<BTreeMap<String, (u64, DynamicObject)>>);

/// A cluster-scoped kind with `status` and `scale`.
pub fn definition() -> CustomResourceDefinition {
    let definition = json!({
        "metadata": {"name": "farms.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"kind": "Farm", "plural": "farms"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {
                            "size": {"type": "integer", "default": 1},
                            "animals": {"type": "array", "items": {"type": "string"}},
                        }},
                        "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
                    },
                }},
            }, {
                "name": "v2", "served": true, "storage": false,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// The kind with this backend.
pub fn kind(trees: &Arc<Trees>, keeps_metadata: bool) -> VirtualKind<Trees> {
    let kind = VirtualKind::polled(definition(), Arc::clone(trees), Duration::from_millis(100));
    let kind = if keeps_metadata { kind.keeps_metadata() } else { kind };
    kind.create().update().delete()
}

/// The direct kind with this backend, which stores the whole metadata.
pub fn direct(trees: &Arc<Trees>) -> DirectKind<Trees> {
    let kind = DirectKind::new(definition(), Arc::clone(trees));
    kind.keeps_metadata().create().update().delete()
}

impl Trees {
    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<DynamicObject> {
        self.0.lock().unwrap().get(name).map(|(_, object)| object.clone())
    }

    /// The number of writes of this object.
    pub fn writes(&self, name: &str) -> u64 {
        self.0.lock().unwrap().get(name).map_or(0, |(version, _)| *version)
    }

    /// Stores an object behind the back of the server.
    pub fn put(&self, object: DynamicObject) {
        let mut trees = self.0.lock().unwrap();
        let version = trees.get(&object.name_any()).map_or(0, |(version, _)| *version) + 1;
        trees.insert(object.name_any(), (version, object));
    }

    fn replace(
        &self,
        object: DynamicObject,
        is_expected: impl FnOnce(Option<u64>) -> Result<u64, BackendError>,
    ) -> Result<Item<DynamicObject>, BackendError> {
        let mut trees = self.0.lock().unwrap();
        let name = object.name_any();
        let version = is_expected(trees.get(&name).map(|(version, _)| *version))?;
        trees.insert(name, (version, object.clone()));
        Ok(Item::new(object).with_etag(version.to_string()))
    }
}

impl Backend for Trees {
    type Object = DynamicObject;
}

impl Poll for Trees {
    async fn list(&self) -> Result<Listing<DynamicObject>, BackendError> {
        let trees = self.0.lock().unwrap();
        let items = trees
            .values()
            .map(|(version, object)| Item::new(object.clone()).with_etag(version.to_string()));
        Ok(Listing::complete(items))
    }
}

impl Read for Trees {
    async fn get(
        &self,
        _: &ReadContext,
        _: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, BackendError> {
        Ok(self.0.lock().unwrap().get(name).map(shown))
    }

    async fn list(
        &self,
        _: &ReadContext,
        _: Option<&str>,
    ) -> Result<Vec<DynamicObject>, BackendError> {
        Ok(self.0.lock().unwrap().values().map(shown).collect())
    }
}

/// An object with its etag.
fn shown((version, object): &(u64, DynamicObject)) -> DynamicObject {
    let mut object = object.clone();
    object.metadata.resource_version = Some(version.to_string());
    object
}

impl Create for Trees {
    async fn create(
        &self,
        _: &WriteContext,
        object: DynamicObject,
    ) -> Result<Item<DynamicObject>, BackendError> {
        self.replace(object, |version| match version {
            Some(_) => Err(BackendError::AlreadyExists),
            None => Ok(1),
        })
    }
}

impl Update for Trees {
    async fn update(
        &self,
        context: &WriteContext,
        old: Item<DynamicObject>,
        object: DynamicObject,
    ) -> Result<Item<DynamicObject>, BackendError> {
        if object.data["spec"]["size"] == 13 {
            return Err(BackendError::invalid("spec.size", "thirteen animals bring bad luck"));
        }
        let mut object = object;
        if context.subresource == "status" {
            object.annotations_mut().insert("written".to_owned(), "status".to_owned());
        }
        self.replace(object, |version| match version {
            Some(version) if old.etag == Some(version.to_string()) => Ok(version + 1),
            Some(_) => Err(BackendError::Conflict),
            None => Err(BackendError::NotFound),
        })
    }
}

impl Delete for Trees {
    async fn delete(&self, _: &WriteContext, old: Item<DynamicObject>) -> Result<(), BackendError> {
        let removed = self.0.lock().unwrap().remove(&old.object.name_any());
        removed.map(drop).ok_or(BackendError::NotFound)
    }
}
