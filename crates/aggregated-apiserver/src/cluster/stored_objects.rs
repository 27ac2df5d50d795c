//! Objects that another process of this server stores, read through kube-apiserver.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::{Cluster, ClusterError};
use crate::object::Tree;

/// The largest number of objects in a page, which limits the size of a response.
const PAGE: u32 = 10;
/// The longest time for the whole list.
const TIMEOUT: Duration = Duration::from_secs(30);
const ASKED: &str = "list of stored objects";

impl Cluster {
    /// Returns all objects of a kind in one of its versions, as another process stores them.
    ///
    /// # Errors
    /// If the objects cannot be listed in time.
    pub async fn stored_objects(
        &self,
        kind: &GroupVersionKind,
        plural: &str,
    ) -> Result<Vec<Tree>, ClusterError> {
        let resource = ApiResource::from_gvk_with_plural(kind, plural);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let listed = tokio::time::timeout(TIMEOUT, list(&api, &resource)).await;
        let listed = listed.map_err(|_| ClusterError::new(ASKED, "it took longer than 30 s"))?;
        listed.map_err(|error| ClusterError::new(ASKED, error))
    }
}

async fn list(api: &Api<DynamicObject>, resource: &ApiResource) -> Result<Vec<Tree>, kube::Error> {
    let mut objects = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = api.list(&page).await?;
        for object in found.items {
            let object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
            let Value::Object(mut tree) = object else { continue };
            tree.insert("apiVersion".to_owned(), resource.api_version.clone().into());
            tree.insert("kind".to_owned(), resource.kind.clone().into());
            objects.push(tree);
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(objects),
        }
    }
}
