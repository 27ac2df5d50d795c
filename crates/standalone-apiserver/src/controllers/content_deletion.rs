//! Deletes the objects of a deleted owner: a namespace or a definition.
//!
//! Another server may have removed the owner already, and a client may have created it again, with objects of the same
//! names. So the objects are listed first, then the owner is checked, and then each object is deleted by its uid.
//! Objects that were listed while the owner existed belong to it.

use aggregated_apiserver::runtime_kinds::StoredKind;
use futures::future::BoxFuture;
use futures::{Stream, TryStreamExt, stream};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Preconditions,
};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};

/// The number of objects in a page of a list.
const PAGE: u32 = 500;

pub(super) type ObjectMeta = PartialObjectMeta<DynamicObject>;

/// The objects of one kind that belong to an owner.
pub(super) struct ContentDeletion<'a> {
    pub client: &'a Client,
    pub resource: &'a ApiResource,
    /// The namespace of the objects; `None` for all namespaces and for cluster-scoped objects.
    pub namespace: Option<&'a str>,
}

impl ContentDeletion<'_> {
    /// The API for the objects in a namespace, or for all objects.
    pub(super) fn api(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, self.resource),
            None => Api::all_with(self.client.clone(), self.resource),
        }
    }

    /// The objects, one page at a time. Only their metadata is read, which is possible for objects that cannot be
    /// converted, too.
    pub(super) fn pages(&self) -> impl Stream<Item = kube::Result<Vec<ObjectMeta>>> {
        let all = self.api(self.namespace);
        let first = Some(ListParams::default().limit(PAGE));
        stream::try_unfold(first, move |page| {
            let all = all.clone();
            async move {
                let Some(page) = page else { return Ok(None) };
                let found = all.list_metadata(&page).await?;
                let more = found.metadata.continue_.filter(|token| !token.is_empty());
                let next = more.map(|token| page.continue_token(&token));
                Ok(Some((found.items, next)))
            }
        })
    }

    /// Deletes the objects while the owner exists. Returns whether the owner still existed at the end.
    ///
    /// # Errors
    /// The reason, if the objects cannot be listed; or the first error of a deletion, after all others were attempted.
    pub(super) async fn delete<'f>(
        &self,
        how: &DeleteParams,
        owner_is_there: impl Fn() -> BoxFuture<'f, kube::Result<bool>>,
    ) -> kube::Result<bool> {
        let mut pages = std::pin::pin!(self.pages());
        let mut refused = None;
        while let Some(page) = pages.try_next().await? {
            if !page.is_empty() && !owner_is_there().await? {
                return Ok(false);
            }
            for object in page {
                let api = self.api(object.namespace().as_deref());
                let own = Preconditions { uid: object.uid(), ..Preconditions::default() };
                match api.delete(&object.name_any(), &how.clone().preconditions(own)).await {
                    Ok(_) => {}
                    // The object was deleted, or another object has its name.
                    Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                    Err(error) => refused = refused.or(Some(error)),
                }
            }
        }
        refused.map_or(Ok(true), Err)
    }
}

/// The API resource of a kind.
pub(super) fn resource(stored: &StoredKind) -> ApiResource {
    let kind = GroupVersionKind::gvk(&stored.group, &stored.version, &stored.kind);
    ApiResource::from_gvk_with_plural(&kind, &stored.plural)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::ready;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
    use kube::api::PostParams;
    use serde_json::json;

    use super::*;
    use crate::testing::{Member, shared_store};

    fn config_map(name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    async fn names(maps: &Api<ConfigMap>) -> Vec<String> {
        maps.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
    }

    #[tokio::test]
    async fn objects_of_a_successor_stay() {
        let store = shared_store();
        let server = Member::start(&store).await;
        let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), "default");
        let namespaces: Api<Namespace> = Api::all(server.client.clone());
        let default = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        let _ = namespaces.create(&PostParams::default(), &default).await;
        let resource = ApiResource::erase::<ConfigMap>(&());
        let left = ContentDeletion {
            client: &server.client,
            resource: &resource,
            namespace: Some("default"),
        };
        for name in ["a", "b"] {
            maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
        }
        let how = DeleteParams::default();
        // The owner is removed before it is checked.
        assert!(!left.delete(&how, || ready(Ok(false)).boxed()).await.unwrap());
        assert_eq!(names(&maps).await, ["a", "b"]);
        // The owner is replaced after the check, with objects of the same names.
        let replaced = || {
            let replaced = async {
                maps.delete("a", &DeleteParams::default()).await?;
                maps.create(&PostParams::default(), &config_map("a")).await?;
                Ok(true)
            };
            replaced.boxed()
        };
        assert!(left.delete(&how, replaced).await.unwrap());
        assert_eq!(names(&maps).await, ["a"]);
    }

    #[tokio::test]
    async fn every_page_is_deleted() {
        let store = shared_store();
        let server = Member::start(&store).await;
        let nodes: Api<Node> = Api::all(server.client.clone());
        let count = PAGE as usize * 2 + 1;
        for index in 0..count {
            let node = json!({"metadata": {"name": format!("node-{index}")}});
            let node = serde_json::from_value(node).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let resource = ApiResource::erase::<Node>(&());
        let left = ContentDeletion { client: &server.client, resource: &resource, namespace: None };
        assert!(left.delete(&DeleteParams::default(), || ready(Ok(true)).boxed()).await.unwrap());
        assert!(nodes.list(&ListParams::default()).await.unwrap().items.is_empty());
    }
}
