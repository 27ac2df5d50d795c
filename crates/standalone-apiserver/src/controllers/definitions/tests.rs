//! Tests of servers with a shared store, which receive changes of definitions at different times.

use aggregated_apiserver::store::{Collection, Commit, Object, Precondition, Store};
use futures::stream;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use tokio::time::timeout;

use super::*;
use crate::testing::{Member, shared_store};

const NAME: &str = "foos.example.com";
/// The largest duration of an operation.
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

/// The events of a list of these definitions, same as at the start of a watch.
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

    /// Deletes the definition, which its finalizer holds, and returns its state.
    async fn mark(&self) -> DefinitionMeta {
        self.definitions.api().delete(NAME, &DeleteParams::default()).await.unwrap();
        self.live().await.unwrap()
    }

    async fn removes(&self, definition: &DefinitionMeta) {
        timeout(PATIENCE, self.definitions.remove(definition)).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_without_the_kind_waits_for_finalizers_before_deleting_a_definition() {
    let store = shared_store();
    let (maker, late) = (Member::start(&store).await, Member::start(&store).await);
    maker.made().await;
    let held = foo(json!({"name": "a", "finalizers": ["example.com/held"]}));
    foos(&maker).create(&PostParams::default(), &held).await.unwrap();
    let going = maker.mark().await;
    let freed = async {
        // The late server marks the object.
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
async fn a_definition_that_was_never_served_can_be_deleted() {
    let store = shared_store();
    let server = Member::start(&store).await;
    let api = server.definitions.api();
    api.create(&PostParams::default(), &definition()).await.unwrap();
    let going = server.mark().await;
    server.removes(&going).await;
    assert!(server.live().await.is_none());
}

#[tokio::test]
async fn objects_of_a_definition_without_a_served_version_are_deleted_with_it() {
    let store = shared_store();
    let server = Member::start(&store).await;
    server.made().await;
    let held = foo(json!({"name": "a", "finalizers": ["example.com/held"]}));
    foos(&server).create(&PostParams::default(), &held).await.unwrap();
    let unserved = Patch::Json::<()>(
        serde_json::from_value(json!([
            {"op": "replace", "path": "/spec/versions/0/served", "value": false},
        ]))
        .unwrap(),
    );
    let definitions = server.definitions.api();
    definitions.patch(NAME, &PatchParams::default(), &unserved).await.unwrap();
    server.definitions.reconcile(NAME).await;
    assert!(foos(&server).get("a").await.is_err());
    assert!(server.kinds.is_served(NAME));
    let going = server.mark().await;
    let freed = async {
        let marked = async {
            while !matches!(foos(&server).get("a").await, Ok(a) if a.metadata.deletion_timestamp.is_some())
            {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, marked).await.unwrap();
        assert!(server.live().await.is_some());
        let freed = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        foos(&server).patch("a", &PatchParams::default(), &freed).await.unwrap();
    };
    tokio::join!(server.removes(&going), freed);
    assert!(server.live().await.is_none());
    server.made().await;
    assert!(foos(&server).list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_definition_missing_from_a_relist_is_no_longer_served() {
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
async fn a_recreated_definition_is_served_after_a_relist_and_keeps_objects() {
    let store = shared_store();
    let (maker, late) = (Member::start(&store).await, Member::start(&store).await);
    let made = maker.made().await;
    late.definitions.follow(stream::iter(listed(&[&made]))).await;
    let going = maker.mark().await;
    // The late server knows that the first definition is being deleted, and rejects objects, but does not know that it
    // was removed.
    late.kinds.close(NAME).await;
    maker.removes(&going).await;
    let again = maker.made().await;
    let post = PostParams::default();
    foos(&maker).create(&post, &foo(json!({"name": "a"}))).await.unwrap();
    late.definitions.follow(stream::iter(listed(&[&again]))).await;
    foos(&late).create(&post, &foo(json!({"name": "b"}))).await.unwrap();
    // Late events of the first definition change nothing.
    let told = [Ok(watcher::Event::Apply(going.clone())), Ok(watcher::Event::Delete(going))];
    late.definitions.follow(stream::iter(told)).await;
    assert!(late.kinds.is_served(NAME));
    let left = foos(&late).list(&ListParams::default()).await.unwrap();
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["a", "b"]);
}

/// Stores an object without validation, same as a server of another release may have done.
async fn keep(store: &Arc<dyn Store>, object: &Value) {
    let object = Object::from_tree(object.as_object().unwrap()).unwrap();
    let commit = Commit {
        collection: Collection::new(DEFINITIONS),
        key: object.key().clone(),
        expected: Precondition::Absent,
        object: Some(Arc::new(object)),
        marks: false,
    };
    store.commit(commit).await.unwrap();
}

#[tokio::test]
async fn stored_definitions_with_schemas_now_invalid_are_still_served() {
    let of_properties = |properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        let versions = [json!({
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        })];
        json!({"spec": {"versions": versions}})
    };
    let embedded = json!({
        "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
        "default": {"apiVersion": "v1", "kind": "Bar", "metadata": {"name": "Not a name"}},
    });
    let kept = json!({
        "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": ""},
        "embedded": embedded,
        "gone": {"type": "string", "x-kubernetes-validations": [{"rule": "self.gone == 1"}]},
    });
    let mut definition = serde_json::to_value(definition()).unwrap();
    definition["metadata"]["uid"] = "u".into();
    definition["metadata"]["generation"] = 1.into();
    definition["spec"]["conversion"] = json!({"strategy": "None"});
    definition["spec"]["versions"] = of_properties(kept.clone())["spec"]["versions"].clone();
    definition["spec"]["names"]["singular"] = "foo".into();
    definition["spec"]["names"]["listKind"] = "FooList".into();
    definition["status"] = json!({
        "acceptedNames": definition["spec"]["names"], "storedVersions": ["v1"],
        "conditions": [
            {"type": "Established", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": null},
        ],
    });
    let store = shared_store();
    keep(&store, &definition).await;

    let server = Member::start(&store).await;
    server.definitions.serve_kept().await.unwrap();
    assert!(server.kinds.is_served(NAME));
    let mut a = foo(json!({"name": "a"}));
    a.data["list"] = json!(["x", "x"]);
    a.data["embedded"] = json!({"apiVersion": "v1", "kind": "Bar", "metadata": {"name": "bar"}});
    foos(&server).create(&PostParams::default(), &a).await.unwrap();
    // An invalid rule is reported when an object uses it.
    let mut b = a.clone();
    b.metadata.name = Some("b".to_owned());
    b.data["gone"] = "x".into();
    let refused = foos(&server).create(&PostParams::default(), &b).await.unwrap_err();
    assert!(refused.to_string().contains("rule compile error: compilation failed"), "{refused}");

    let definitions = server.definitions.api();
    let change = async |change: &Value| {
        let (how, patch) = (PatchParams::default(), Patch::Merge(change.clone()));
        definitions.patch(NAME, &how, &patch).await.map(drop)
    };
    change(&json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    let mut more = kept.clone();
    more["new"] = json!({"type": "string"});
    change(&of_properties(more.clone())).await.unwrap();
    server.definitions.reconcile(NAME).await;
    a.metadata.name = Some("c".to_owned());
    a.data["new"] = "y".into();
    let made = foos(&server).create(&PostParams::default(), &a).await.unwrap();
    assert_eq!(made.data["new"], "y");
    // Another invalid change is rejected.
    more["new"] = json!({"type": "string", "x-kubernetes-list-type": ""});
    assert!(change(&of_properties(more)).await.is_err());
}
