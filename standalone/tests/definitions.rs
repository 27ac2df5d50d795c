//! Definitions that come, change and go while a server runs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    WatchParams,
};
use kube::core::GroupVersionKind;
use kube::discovery::Discovery;
use kube::runtime::conditions::{is_crd_established, is_deleted};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;
use tokio::time::timeout;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
const NAME: &str = "foos.example.com";

fn definition(spec: &Value) -> Result<CustomResourceDefinition> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    }))?)
}

fn sizes() -> Value {
    json!({"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}})
}

fn foos(client: Client) -> (Api<DynamicObject>, ApiResource) {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Foo");
    let resource = ApiResource::from_gvk(&kind);
    (Api::default_namespaced_with(client, &resource), resource)
}

async fn established(client: Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    timeout(PATIENCE, await_condition(definitions, NAME, is_crd_established())).await??;
    Ok(())
}

#[tokio::test]
async fn a_definition_that_is_made_is_served() -> Result<()> {
    let server = TestServer::builder().start().await?;
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let (foos, resource) = foos(client.clone());
    let early = foos.list(&ListParams::default()).await;
    ensure!(matches!(&early, Err(kube::Error::Api(s)) if s.is_not_found()), "{early:?}");

    let made = definitions.create(&PostParams::default(), &definition(&sizes())?).await?;
    ensure!(made.spec.names.list_kind.as_deref() == Some("FooList"));
    established(client.clone()).await?;
    let foo = |size: i64| DynamicObject::new("a", &resource).data(json!({"spec": {"size": size}}));
    let refused = foos.create(&PostParams::default(), &foo(0)).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422), "{refused:?}");
    foos.create(&PostParams::default(), &foo(1)).await?;
    let discovered = Discovery::new(client.clone()).run_aggregated().await?;
    let found = discovered.resolve_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
    ensure!(found.is_some_and(|(resource, _)| resource.plural == "foos"));
    let status = definitions.get(NAME).await?.status.context("status")?;
    ensure!(status.stored_versions == Some(vec!["v1".to_owned()]));
    ensure!(status.accepted_names.context("names")?.kind == "Foo");
    Ok(())
}

#[tokio::test]
async fn a_definition_that_changes_takes_effect() -> Result<()> {
    let server = TestServer::builder().crd(definition(&sizes())?).start().await?;
    let client = server.client();
    let (foos, resource) = foos(client.clone());
    let foo = DynamicObject::new("a", &resource).data(json!({"spec": {"size": 1}}));
    foos.create(&PostParams::default(), &foo).await?;
    let mut watching = foos.watch(&WatchParams::default(), "0").await?.boxed();
    let more = json!({"type": "object", "properties": {
        "size": {"type": "integer", "maximum": 9}, "colour": {"type": "string", "default": "red"},
    }});
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": definition(&more)?.spec}));
    definitions.patch(NAME, &PatchParams::default(), &patch).await?;
    // Watches end, so that nobody goes on with what is no longer true.
    timeout(PATIENCE, async { while watching.next().await.is_some() {} }).await?;
    let changed = async {
        loop {
            let foo = foos.get("a").await?;
            if foo.data["spec"]["colour"] == "red" {
                return anyhow::Ok(());
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, changed).await??;
    let patch = Patch::Merge(json!({"spec": {"size": 10}}));
    let refused = foos.patch("a", &PatchParams::default(), &patch).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_definition_that_goes_takes_its_objects_along() -> Result<()> {
    let server = TestServer::builder().crd(definition(&sizes())?).start().await?;
    let client = server.client();
    let (foos, resource) = foos(client.clone());
    let mut foo = DynamicObject::new("a", &resource).data(json!({"spec": {"size": 1}}));
    foo.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    foos.create(&PostParams::default(), &foo).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let uid = definitions.get(NAME).await?.uid().context("uid")?;
    definitions.delete(NAME, &DeleteParams::default()).await?;
    // It stays as long as something holds one of its objects.
    let mut changes = foos.watch(&WatchParams::default(), "0").await?.boxed();
    while let Some(event) = timeout(PATIENCE, changes.try_next()).await?? {
        if let kube::api::WatchEvent::Added(foo) | kube::api::WatchEvent::Modified(foo) = event
            && foo.metadata.deletion_timestamp.is_some()
        {
            break;
        }
    }
    ensure!(definitions.get_opt(NAME).await?.is_some());
    let late = DynamicObject::new("b", &resource).data(json!({"spec": {"size": 1}}));
    let late = foos.create(&PostParams::default(), &late).await;
    ensure!(matches!(&late, Err(kube::Error::Api(s)) if s.code == 405), "{late:?}");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    foos.patch("a", &PatchParams::default(), &release).await?;
    timeout(PATIENCE, await_condition(definitions.clone(), NAME, is_deleted(&uid))).await??;
    let late = foos.list(&ListParams::default()).await;
    ensure!(matches!(&late, Err(kube::Error::Api(s)) if s.is_not_found()), "{late:?}");

    // And it may come again, empty.
    definitions.create(&PostParams::default(), &definition(&sizes())?).await?;
    established(client).await?;
    ensure!(foos.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_or_said() -> Result<()> {
    let server = TestServer::builder().crd(definition(&sizes())?).start().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let refuse = async |change: fn(&mut Value)| -> Result<String> {
        let mut tree = serde_json::to_value(definition(&sizes())?)?;
        tree["metadata"]["name"] = json!("bars.example.com");
        tree["spec"]["names"] = json!({"plural": "bars", "kind": "Bar"});
        change(&mut tree);
        match definitions.create(&PostParams::default(), &serde_json::from_value(tree)?).await {
            Err(kube::Error::Api(status)) if status.code == 422 => Ok(status.message.clone()),
            other => anyhow::bail!("{other:?}"),
        }
    };
    let said = refuse(|tree| {
        tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("string");
    })
    .await?;
    ensure!(
        said.contains(
            "openAPIV3Schema.type: Invalid value: \"string\": must be object at the root"
        ),
        "{said}"
    );
    let said = refuse(|tree| tree["metadata"]["name"] = json!("bar")).await?;
    ensure!(said.contains("metadata.name"), "{said}");
    let scope = Patch::Merge(json!({"spec": {"scope": "Cluster"}}));
    let refused = definitions.patch(NAME, &PatchParams::default(), &scope).await;
    ensure!(
        matches!(&refused, Err(kube::Error::Api(s)) if s.message.contains("spec.scope")),
        "{refused:?}"
    );

    // A name that another kind has is taken, and the status says so.
    let mut tree = serde_json::to_value(definition(&sizes())?)?;
    tree["metadata"]["name"] = json!("fooz.example.com");
    tree["spec"]["names"] = json!({"plural": "fooz", "kind": "Foo"});
    definitions.create(&PostParams::default(), &serde_json::from_value(tree)?).await?;
    let accepted = async {
        loop {
            let status = definitions.get("fooz.example.com").await?.status;
            if let Some(conditions) = status.and_then(|status| status.conditions) {
                return anyhow::Ok(conditions);
            }
            tokio::task::yield_now().await;
        }
    };
    let conditions = timeout(PATIENCE, accepted).await??;
    let names = conditions.iter().find(|one| one.type_ == "NamesAccepted").context("condition")?;
    ensure!(
        names.status == "False"
            && names.message.as_deref().unwrap_or_default().contains("foos.example.com")
    );
    Ok(())
}
