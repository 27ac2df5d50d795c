//! The backend: each object is a ConfigMap of the cluster, which other programs can change, too.
//!
//! The object `orders` of the resource `databases` is the ConfigMap `databases.orders` in the same namespace. The key
//! `metadata` of the ConfigMap has the metadata of the object, and each other field of the object, such as `spec`, has a
//! key of its own. All values are JSON.

use std::sync::Arc;

use aggregated_apiserver::backend::{
    Backend, BackendError, Change, Create, Delete, Item, Update, Watch, WriteContext,
    watcher_changes,
};
use futures::future::OptionFuture;
use futures::{FutureExt, Stream, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};
use tokio::sync::SetOnce;
use uuid::Uuid;

/// The label of a ConfigMap with the resource of its object.
const RESOURCE: &str = "apps.example.com/resource";
/// The annotation of a ConfigMap with the hash of the spec that the generation of the object belongs to.
const SPEC_HASH: &str = "apps.example.com/spec-hash";
/// The finalizer of each ConfigMap whose object has finalizers. Without it, a deletion of the ConfigMap, such as that of
/// its namespace, would not wait for the finalizers of the object.
const FINALIZER: &str = "apps.example.com/finalizers";

/// The cluster with the ConfigMaps: its client, once it is known.
pub type Cluster = Arc<SetOnce<Client>>;

/// The objects of one resource.
pub struct ConfigMaps {
    pub cluster: Cluster,
    /// The resource, such as `databases`.
    pub resource: String,
    /// The namespace of the ConfigMaps of cluster-scoped objects; `None` if the objects are namespaced.
    pub namespace: Option<String>,
}

impl ConfigMaps {
    /// The ConfigMaps of the objects in a namespace, or of all objects.
    async fn api(&self, namespace: Option<&str>) -> Api<ConfigMap> {
        let client = self.cluster.wait().await.clone();
        match namespace.or(self.namespace.as_deref()) {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }

    fn name(&self, object: &str) -> String {
        format!("{}.{object}", self.resource)
    }

    /// Reads the object of a ConfigMap, and whether its spec has changed since its generation was set, or the reason why a
    /// value is not JSON. Such a value is omitted, and the object stays, because the cluster deletes the dependents of a
    /// missing object.
    fn read(&self, map: &ConfigMap) -> (DynamicObject, Result<bool, String>) {
        let (mut metadata, mut fields) = (ObjectMeta::default(), Map::new());
        let mut is_changed = Ok(false);
        for (key, text) in map.data.iter().flatten() {
            let read = match key.as_str() {
                "metadata" => serde_json::from_str(text).map(|read| metadata = read),
                _ => {
                    serde_json::from_str(text).map(|value| drop(fields.insert(key.clone(), value)))
                }
            };
            if let Err(error) = read {
                is_changed = Err(format!("{key}: {error}"));
            }
        }
        metadata.name = map.name_any().strip_prefix(&self.name("")).map(str::to_owned);
        metadata.namespace = map.namespace().filter(|_| self.namespace.is_none());
        // A copy of a ConfigMap is another object, so the uid is not in the data.
        let uid = map.uid().unwrap_or_default();
        metadata.uid = Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, uid.as_bytes()).to_string());
        metadata.creation_timestamp = map.metadata.creation_timestamp.clone();
        let deleted = map.metadata.deletion_timestamp.clone();
        metadata.deletion_timestamp = metadata.deletion_timestamp.or(deleted);
        let is_counted = map.annotations().get(SPEC_HASH) == Some(&hash(&fields));
        let is_changed = is_changed.map(|_| !is_counted);
        let object = DynamicObject { types: None, metadata, data: Value::Object(fields) };
        (object, is_changed)
    }

    /// Writes an object into a ConfigMap. Other labels, annotations and finalizers of the ConfigMap stay.
    fn write(&self, map: &mut ConfigMap, object: &DynamicObject) {
        let fields = object.data.as_object().cloned().unwrap_or_default();
        let name = self.name(&object.name_any());
        map.labels_mut().insert(RESOURCE.to_owned(), self.resource.clone());
        map.annotations_mut().insert(SPEC_HASH.to_owned(), hash(&fields));
        map.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        if !object.finalizers().is_empty() {
            map.finalizers_mut().push(FINALIZER.to_owned());
        }
        map.metadata.name = Some(name);
        let metadata = ObjectMeta {
            name: None,
            namespace: None,
            uid: None,
            creation_timestamp: None,
            resource_version: None,
            ..object.metadata.clone()
        };
        let values = fields.into_iter().chain([("metadata".to_owned(), json!(metadata))]);
        map.data = Some(values.map(|(key, value)| (key, format!("{value:#}"))).collect());
    }

    fn item(&self, map: ConfigMap) -> Item<DynamicObject> {
        Item::new(self.read(&map).0).with_etag(map.resource_version().unwrap_or_default())
    }

    /// Gives the object of a ConfigMap the next generation if another program has changed its spec. Returns the ConfigMap
    /// with the stored generation.
    async fn count(&self, mut map: ConfigMap) -> ConfigMap {
        let api = self.api(map.namespace().as_deref()).await;
        loop {
            let (mut object, is_changed) = self.read(&map);
            match is_changed {
                Ok(true) => {}
                Ok(false) => return map,
                Err(error) => {
                    let (namespace, name) = (map.namespace(), map.name_any());
                    tracing::error!(namespace, name, error, "cannot read a ConfigMap");
                    return map;
                }
            }
            let generation = object.metadata.generation.unwrap_or_default() + 1;
            object.metadata.generation = Some(generation);
            self.write(&mut map, &object);
            let name = map.name_any();
            let newer = match api.replace(&name, &PostParams::default(), &map).await {
                // Another replica or another program was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => api.get(&name).await,
                stored => stored,
            };
            match newer {
                Ok(newer) => map = newer,
                Err(error) => {
                    tracing::warn!(name, %error, "cannot store a generation");
                    return map;
                }
            }
        }
    }

    /// The ConfigMap of an object, if it has the etag of the object.
    async fn current(
        &self,
        old: &Item<DynamicObject>,
    ) -> Result<(Api<ConfigMap>, ConfigMap), BackendError> {
        let api = self.api(old.object.namespace().as_deref()).await;
        let map = api.get(&self.name(&old.object.name_any())).await?;
        match map.resource_version() == old.etag {
            true => Ok((api, map)),
            false => Err(BackendError::Conflict),
        }
    }

    /// Counts the changes of other programs.
    async fn counted(&self, event: Event<ConfigMap>) -> Event<ConfigMap> {
        match event {
            Event::Apply(map) => Event::Apply(self.count(map).await),
            Event::InitApply(map) => Event::InitApply(self.count(map).await),
            event => event,
        }
    }
}

/// A hash of the spec.
fn hash(fields: &Map<String, Value>) -> String {
    let spec = fields.get("spec").map(Value::to_string).unwrap_or_default();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, spec.as_bytes()).to_string()
}

impl Backend for ConfigMaps {
    type Object = DynamicObject;
}

impl Watch for ConfigMaps {
    fn watch(&self) -> impl Stream<Item = Result<Change<DynamicObject>, BackendError>> + Send {
        let selector = format!("{RESOURCE}={}", self.resource);
        let config = watcher::Config::default().labels(&selector);
        let events = self.api(None).map(|maps| watcher::watcher(maps, config)).flatten_stream();
        let counted = events.and_then(async |event| Ok(self.counted(event).await));
        watcher_changes(counted, |map| self.item(map))
    }

    async fn get(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Item<DynamicObject>>, BackendError> {
        let map = self.api(namespace).await.get_opt(&self.name(name)).await?;
        Ok(OptionFuture::from(map.map(|map| self.count(map))).await.map(|map| self.item(map)))
    }
}

impl Create for ConfigMaps {
    async fn create(
        &self,
        _: &WriteContext,
        object: DynamicObject,
    ) -> Result<Item<DynamicObject>, BackendError> {
        let mut map = ConfigMap::default();
        self.write(&mut map, &object);
        let api = self.api(object.namespace().as_deref()).await;
        let map = api.create(&PostParams::default(), &map).await?;
        Ok(self.item(map))
    }
}

impl Update for ConfigMaps {
    async fn update(
        &self,
        _: &WriteContext,
        old: Item<DynamicObject>,
        object: DynamicObject,
    ) -> Result<Item<DynamicObject>, BackendError> {
        let (api, mut map) = self.current(&old).await?;
        self.write(&mut map, &object);
        let name = map.name_any();
        let map = api.replace(&name, &PostParams::default(), &map).await?;
        Ok(self.item(map))
    }
}

impl Delete for ConfigMaps {
    async fn delete(&self, _: &WriteContext, old: Item<DynamicObject>) -> Result<(), BackendError> {
        let (api, mut map) = self.current(&old).await?;
        let name = map.name_any();
        if map.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            map.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
            map = api.replace(&name, &PostParams::default(), &map).await?;
        }
        let (uid, resource_version) = (map.uid(), map.resource_version());
        let preconditions = Some(Preconditions { uid, resource_version });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        api.delete(&name, &parameters).await?;
        Ok(())
    }
}
