//! Reads objects, and removes the fields that another server must not receive.

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, TypeMeta};
use kube::{Client, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::{instrument, warn};

use crate::kinds::Found;
use crate::typed;

/// The maximum number of objects in a list request.
const PAGE: u32 = 500;
/// Replaces a value. It is valid for every type of Secret.
const OMITTED: &str = "{}";
/// The annotation in which kubectl stores the applied object, including all values.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The treatment of the values of Secrets.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize, JsonSchema,
)]
pub enum SecretValues {
    /// Each is replaced by `{}`; the names of the values stay
    #[default]
    Omit,
    /// Write the values unchanged: any user with access to the directory can read them
    Keep,
}

/// An object, and the plural and group of its kind.
pub type Recorded = (ApiResource, DynamicObject);

/// The objects that were read so far.
pub struct Record {
    client: Client,
    namespace: String,
    secret: SecretValues,
    objects: Vec<Recorded>,
}

impl Record {
    pub fn new(client: Client, namespace: &str, secret: SecretValues) -> Self {
        Self { client, namespace: namespace.to_owned(), secret, objects: Vec::new() }
    }

    pub fn into_objects(self) -> Vec<Recorded> {
        self.objects
    }

    /// Reads the namespace object, for its labels.
    #[instrument(skip_all, fields(namespace = self.namespace), err(level = "debug"))]
    pub async fn take_namespace(&mut self) -> Result<()> {
        let name = self.namespace.clone();
        let is_there = self.take_one(ApiResource::erase::<Namespace>(&()), &name).await?;
        ensure!(is_there, "there is no such namespace");
        Ok(())
    }

    /// Reads all objects of a kind, and the definition of the kind if it has one. Returns the number of objects.
    #[instrument(skip_all, fields(kind = kind.name()), err(level = "debug"))]
    pub async fn take(&mut self, kind: &Found) -> Result<usize> {
        if !kind.resource.group.is_empty() {
            let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
            self.take_one(definitions, &kind.name()).await?;
        }
        let client = self.client.clone();
        let api: Api<DynamicObject> = match kind.is_namespaced {
            true => Api::namespaced_with(client, &self.namespace, &kind.resource),
            false => Api::all_with(client, &kind.resource),
        };
        let before = self.objects.len();
        for object in list(&api).await? {
            // Each cluster creates its own ConfigMap of this name.
            if kind.name() != "configmaps" || object.name_any() != typed::ROOT_CERTIFICATES {
                self.keep(&kind.resource, object);
            }
        }
        Ok(self.objects.len() - before)
    }

    /// Reads one object without a type. Returns whether the object exists; an object that is forbidden to read counts
    /// as existing.
    async fn take_one(&mut self, resource: ApiResource, name: &str) -> Result<bool> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        match api.get_opt(name).await {
            Ok(Some(object)) => self.keep(&resource, object),
            Ok(None) => return Ok(false),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                warn!("left out: {}", status.message);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn keep(&mut self, resource: &ApiResource, mut object: DynamicObject) {
        // The items of a list contain neither apiVersion nor kind.
        let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
        object.types = Some(TypeMeta { api_version, kind });
        // These fields are meaningful only on the original server.
        object.metadata.managed_fields = None;
        object.metadata.resource_version = None;
        object.metadata.self_link = None;
        if resource.group.is_empty()
            && resource.kind == "Secret"
            && self.secret == SecretValues::Omit
        {
            omit_values(&mut object);
        }
        self.objects.push((resource.clone(), object));
    }
}

/// Lists all pages, from one consistent snapshot.
async fn list(api: &Api<DynamicObject>) -> kube::Result<Vec<DynamicObject>> {
    let (mut objects, mut parameters) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = match api.list(&parameters).await {
            Ok(page) => page,
            // The continue token has expired.
            Err(kube::Error::Api(status)) if status.code == 410 => {
                return Ok(api.list(&ListParams::default()).await?.items);
            }
            Err(error) => return Err(error),
        };
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

fn omit_values(secret: &mut DynamicObject) {
    if let Some(annotations) = &mut secret.metadata.annotations {
        annotations.remove(APPLIED);
    }
    for field in ["data", "stringData"] {
        let values = secret.data.get_mut(field).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(serde_json::Map::values_mut) {
            *value = match field {
                "data" => STANDARD.encode(OMITTED).into(),
                _ => OMITTED.into(),
            };
        }
    }
}
