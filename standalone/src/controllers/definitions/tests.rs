//! Servers of one store, which are told of definitions at different times.

use futures::stream;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use tokio::time::timeout;

use super::*;
use crate::testing::{Member, shared_store};

const NAME: &str = "foos.example.com";
/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn definition() -> CustomResourceDefinition {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

fn foos(server: &Member) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Foo");
    let resource = ApiResource::from_gvk_with_plural(&kind, "foos");
    Api::all_with(server.client.clone(), &resource)
}

fn foo(metadata: Value) -> DynamicObject {
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata});
    serde_json::from_value(foo).unwrap()
}

/// A list of these definitions, as a watch begins with it.
fn listed(definitions: &[&DefinitionMeta]) -> Vec<watcher::Result<Change>> {
    let mut list = vec![Ok(watcher::Event::Init)];
    list.extend(definitions.iter().map(|one| Ok(watcher::Event::InitApply((*one).clone()))));
    list.push(Ok(watcher::Event::InitDone));
    list
}

impl Member {
    async fn made(&self) -> DefinitionMeta {
        self.definitions.create("a definition", &definition()).await.unwrap();
        self.live().await.unwrap()
    }

    async fn live(&self) -> Option<DefinitionMeta> {
        self.definitions.api().get_metadata_opt(NAME).await.unwrap()
    }

    /// Marks the definition as going; answers with what it is then.
    async fn mark(&self) -> DefinitionMeta {
        self.definitions.api().delete(NAME, &DeleteParams::default()).await.unwrap();
        self.live().await.unwrap()
    }

    async fn removes(&self, definition: &DefinitionMeta) {
        timeout(PATIENCE, self.definitions.remove(definition)).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_has_not_served_a_kind_waits_for_its_finalizers() {
    let store = shared_store();
    let (maker, late) = (Member::start(&store).await, Member::start(&store).await);
    maker.made().await;
    let held = foo(json!({"name": "a", "finalizers": ["example.com/held"]}));
    foos(&maker).create(&PostParams::default(), &held).await.unwrap();
    let going = maker.mark().await;
    let freed = async {
        // It is marked by the server that comes late.
        while foos(&maker).get("a").await.unwrap().metadata.deletion_timestamp.is_none() {
            tokio::task::yield_now().await;
        }
        assert!(maker.live().await.is_some());
        let freed = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        foos(&maker).patch("a", &PatchParams::default(), &freed).await.unwrap();
    };
    timeout(PATIENCE, async { tokio::join!(late.definitions.remove(&going), freed) })
        .await
        .unwrap();
    assert!(maker.live().await.is_none());
}

#[tokio::test]
async fn a_definition_that_was_never_served_goes() {
    let store = shared_store();
    let server = Member::start(&store).await;
    let api = server.definitions.api();
    api.create(&PostParams::default(), &definition()).await.unwrap();
    let going = server.mark().await;
    server.removes(&going).await;
    assert!(server.live().await.is_none());
}

#[tokio::test]
async fn what_went_while_nobody_watched_is_withdrawn() {
    let store = shared_store();
    let (maker, late) = (Member::start(&store).await, Member::start(&store).await);
    let made = maker.made().await;
    late.definitions.follow(stream::iter(listed(&[&made]))).await;
    assert!(late.kinds.is_served(NAME));
    let going = maker.mark().await;
    maker.removes(&going).await;
    late.definitions.follow(stream::iter(listed(&[]))).await;
    assert!(!late.kinds.is_served(NAME));
}

#[tokio::test]
async fn a_successor_that_came_while_nobody_watched_takes_objects_and_keeps_them() {
    let store = shared_store();
    let (maker, late) = (Member::start(&store).await, Member::start(&store).await);
    let made = maker.made().await;
    late.definitions.follow(stream::iter(listed(&[&made]))).await;
    let going = maker.mark().await;
    // It knows that the first one goes, and takes no objects, but not that it is gone.
    late.kinds.close(NAME).await;
    maker.removes(&going).await;
    let again = maker.made().await;
    let post = PostParams::default();
    foos(&maker).create(&post, &foo(json!({"name": "a"}))).await.unwrap();
    late.definitions.follow(stream::iter(listed(&[&again]))).await;
    foos(&late).create(&post, &foo(json!({"name": "b"}))).await.unwrap();
    // What is told late of the first one changes nothing.
    let told = [Ok(watcher::Event::Apply(going.clone())), Ok(watcher::Event::Delete(going))];
    late.definitions.follow(stream::iter(told)).await;
    assert!(late.kinds.is_served(NAME));
    let left = foos(&late).list(&ListParams::default()).await.unwrap();
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["a", "b"]);
}
