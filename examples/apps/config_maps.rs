//! The backend: each object is a ConfigMap of the cluster, which other programs can change, too.
//!
//! The object `orders` of the resource `databases` is the ConfigMap `databases.orders` in the same namespace. The key
//! `metadata` of the ConfigMap has the metadata of the object, and each other field of the object, such as `spec`, has a
//! key of its own. All values are JSON.

use std::sync::Arc;

use aggregated_apiserver::backend::{Backend, BackendError, Change, Create, Delete, Item, Update};
use aggregated_apiserver::backend::{Watch, WriteContext, watcher_changes};
use futures::{FutureExt, Stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};
use tokio::sync::SetOnce;
use uuid::Uuid;

/// The label of a ConfigMap with the resource of its object.
const RESOURCE: &str = "apps.example.com/resource";
/// The finalizer of each ConfigMap whose object has finalizers. Without it, a deletion of the ConfigMap, such as that of
/// its namespace, would not wait for the finalizers of the object.
const FINALIZER: &str = "apps.example.com/finalizers";

/// An object, with the resourceVersion of its ConfigMap as its etag.
type Object = Item<DynamicObject>;
type Result<T> = std::result::Result<T, BackendError>;

/// The client of the cluster, once it is known.
pub type Cluster = Arc<SetOnce<Client>>;

/// The objects of one resource.
pub struct ConfigMaps {
    pub cluster: Cluster,
    /// The resource, such as `databases`.
    pub resource: String,
    /// Whether the objects are namespaced. The ConfigMaps of other objects are in the namespace of the server.
    pub is_namespaced: bool,
}

impl ConfigMaps {
    /// The ConfigMaps of the objects in a namespace, or of all objects.
    async fn api(&self, namespace: Option<&str>) -> Api<ConfigMap> {
        let client = self.cluster.wait().await.clone();
        match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None if self.is_namespaced => Api::all(client),
            None => Api::default_namespaced(client),
        }
    }

    fn name(&self, object: &str) -> String {
        format!("{}.{object}", self.resource)
    }

    /// Reads the object of a ConfigMap. A value that is not JSON becomes a string, so the object does not fit its schema. The
    /// library logs that, and serves the object as it was before.
    fn read(&self, map: ConfigMap) -> Object {
        let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| text.into());
        let fields = map.data.iter().flatten().map(|(key, text)| (key.clone(), read(text)));
        let mut fields: Map<String, Value> = fields.collect();
        let stored = fields.remove("metadata").unwrap_or_default();
        let stored: ObjectMeta = serde_json::from_value(stored).unwrap_or_default();
        // The ConfigMap has another uid, because the garbage collector does not expect two objects with one uid.
        let uid = Uuid::new_v5(&Uuid::NAMESPACE_OID, map.uid().unwrap_or_default().as_bytes());
        let metadata = ObjectMeta {
            name: map.name_any().strip_prefix(&self.name("")).map(str::to_owned),
            namespace: map.namespace().filter(|_| self.is_namespaced),
            uid: Some(uid.to_string()),
            creation_timestamp: map.metadata.creation_timestamp,
            deletion_timestamp: stored.deletion_timestamp.or(map.metadata.deletion_timestamp),
            ..stored
        };
        let object = DynamicObject { types: None, metadata, data: Value::Object(fields) };
        Item::new(object).with_etag(map.metadata.resource_version.unwrap_or_default())
    }

    /// Writes an object into a ConfigMap. Other labels, annotations and finalizers of the ConfigMap stay.
    fn write(&self, map: &mut ConfigMap, object: &DynamicObject) {
        let mut fields = object.data.as_object().cloned().unwrap_or_default();
        fields.insert("metadata".to_owned(), json!(object.metadata));
        let fields = fields.into_iter().map(|(key, value)| (key, format!("{value:#}")));
        map.data = Some(fields.collect());
        map.metadata.name = Some(self.name(&object.name_any()));
        map.labels_mut().insert(RESOURCE.to_owned(), self.resource.clone());
        map.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        if !object.finalizers().is_empty() {
            map.finalizers_mut().push(FINALIZER.to_owned());
        }
    }

    /// The ConfigMap of an object. It can be replaced only if it still has the etag of the object.
    async fn current(&self, old: &Object) -> Result<(Api<ConfigMap>, ConfigMap)> {
        let api = self.api(old.object.namespace().as_deref()).await;
        let mut map = api.get(&self.name(&old.object.name_any())).await?;
        map.metadata.resource_version.clone_from(&old.etag);
        Ok((api, map))
    }
}

impl Backend for ConfigMaps {
    type Object = DynamicObject;
}

impl Watch for ConfigMaps {
    fn watch(&self) -> impl Stream<Item = Result<Change<DynamicObject>>> + Send {
        let config = watcher::Config::default().labels(&format!("{RESOURCE}={}", self.resource));
        let events = self.api(None).map(|maps| watcher(maps, config)).flatten_stream();
        watcher_changes(events, |map| self.read(map))
    }

    async fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Object>> {
        let map = self.api(namespace).await.get_opt(&self.name(name)).await?;
        Ok(map.map(|map| self.read(map)))
    }
}

impl Create for ConfigMaps {
    async fn create(&self, _: &WriteContext, object: DynamicObject) -> Result<Object> {
        let mut map = ConfigMap::default();
        self.write(&mut map, &object);
        let api = self.api(object.namespace().as_deref()).await;
        Ok(self.read(api.create(&PostParams::default(), &map).await?))
    }
}

impl Update for ConfigMaps {
    async fn update(&self, _: &WriteContext, old: Object, new: DynamicObject) -> Result<Object> {
        let (api, mut map) = self.current(&old).await?;
        self.write(&mut map, &new);
        Ok(self.read(api.replace(&map.name_any(), &PostParams::default(), &map).await?))
    }
}

impl Delete for ConfigMaps {
    async fn delete(&self, _: &WriteContext, old: Object) -> Result<()> {
        let (api, mut map) = self.current(&old).await?;
        map.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        let map = api.replace(&map.name_any(), &PostParams::default(), &map).await?;
        let unchanged = Preconditions { uid: map.uid(), resource_version: map.resource_version() };
        let parameters = DeleteParams::default().preconditions(unchanged);
        api.delete(&map.name_any(), &parameters).await?;
        Ok(())
    }
}
