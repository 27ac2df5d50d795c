//! Definitions that are created, changed and deleted while a server runs.

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

/// Longer than any test takes.
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
async fn a_created_definition_is_served_and_discoverable() -> Result<()> {
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
async fn a_changed_definition_takes_effect_and_closes_watches() -> Result<()> {
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
    // Watches end, so that their clients do not continue with the old schema.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_after_a_definition_change_use_the_new_schema() -> Result<()> {
    let server = TestServer::builder().crd(definition(&sizes())?).start().await?;
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let (foos, resource) = foos(client);
    let params = PatchParams::default();
    let created = PostParams { dry_run: true, ..PostParams::default() };
    for least in 2..10 {
        // Compiling a definition with many rules takes a while.
        let mut fields = json!({"size": {"type": "integer", "minimum": least}});
        for field in 0..100 {
            let rules = json!([{"rule": "self.matches('^[a-z]+$') || self.size() > 3"}]);
            fields[format!("field-{field}")] =
                json!({"type": "string", "maxLength": 10, "x-kubernetes-validations": rules});
        }
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "properties": fields,
        }}});
        let path = "/spec/versions/0/schema/openAPIV3Schema";
        let replaced = json!([{"op": "replace", "path": path, "value": schema}]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(replaced)?);
        definitions.patch(NAME, &params, &patch).await?;
        let foo = DynamicObject::new("a", &resource).data(json!({"spec": {"size": least - 1}}));
        let refused = foos.create(&created, &foo).await;
        ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422), "{refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_new_definition_with_an_invalid_ca_bundle_is_not_established() -> Result<()> {
    let server = TestServer::builder().start().await?;
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let with_bundle = |bundle: &str| {
        let config = json!({"url": "https://localhost:1/convert", "caBundle": bundle});
        json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": config,
        }}}})
    };
    let mut made = serde_json::to_value(definition(&sizes())?)?;
    made["spec"]["conversion"] = with_bundle("Cg==")["spec"]["conversion"].take();
    let made: CustomResourceDefinition = serde_json::from_value(made)?;
    // A server with this definition does not start: a client could not correct the definition before objects are
    // created.
    let begun = TestServer::builder().crd(made.clone()).start().await;
    let why = begun.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(why.contains("caBundle: unable to load root certificates"), "{why}");
    definitions.create(&PostParams::default(), &made).await?;
    let held = ("Established", "False", "InvalidCABundle");
    condition(&definitions, NAME, held).await?;
    let (foos, _) = foos(client.clone());
    let listed = foos.list(&ListParams::default()).await;
    ensure!(matches!(&listed, Err(kube::Error::Api(s)) if s.is_not_found()), "{listed:?}");
    // The bundle may change until the definition is established, also to another invalid one.
    let params = PatchParams::default();
    definitions.patch(NAME, &params, &Patch::Merge(with_bundle("AAAA"))).await?;
    definitions.patch(NAME, &params, &Patch::Merge(with_bundle(""))).await?;
    established(client).await?;
    foos.list(&ListParams::default()).await?;
    let refused = definitions.patch(NAME, &params, &Patch::Merge(with_bundle("Cg=="))).await;
    let why = "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"Cg==\": unable to \
               load root certificates: unable to parse bytes as PEM block";
    ensure!(
        matches!(&refused, Err(kube::Error::Api(s)) if s.code == 422 && s.message.contains(why)),
        "{refused:?}"
    );
    Ok(())
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() -> Result<()> {
    let server = TestServer::builder().crd(definition(&sizes())?).start().await?;
    let client = server.client();
    let (foos, resource) = foos(client.clone());
    let mut foo = DynamicObject::new("a", &resource).data(json!({"spec": {"size": 1}}));
    foo.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    foos.create(&PostParams::default(), &foo).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let uid = definitions.get(NAME).await?.uid().context("uid")?;
    definitions.delete(NAME, &DeleteParams::default()).await?;
    let going = ("Terminating", "True", "InstanceDeletionInProgress");
    condition(&definitions, NAME, going).await?;
    // The definition exists as long as one of its objects has a finalizer.
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
    ensure!(matches!(&late, Err(kube::Error::Api(s)) if s.code == 403), "{late:?}");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    foos.patch("a", &PatchParams::default(), &release).await?;
    timeout(PATIENCE, await_condition(definitions.clone(), NAME, is_deleted(&uid))).await??;
    let late = foos.list(&ListParams::default()).await;
    ensure!(matches!(&late, Err(kube::Error::Api(s)) if s.is_not_found()), "{late:?}");

    // The definition can be created again, without objects.
    definitions.create(&PostParams::default(), &definition(&sizes())?).await?;
    established(client).await?;
    ensure!(foos.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn invalid_definitions_are_rejected_and_name_conflicts_are_reported() -> Result<()> {
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

    // A name of another kind is a conflict, which the status reports.
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
    ensure!(names.status == "False" && names.reason.as_deref() == Some("ListKindConflict"));
    ensure!(names.message.as_deref() == Some("\"FooList\" is already in use"), "{names:?}");
    Ok(())
}

/// Waits until a condition of a definition has this status and this reason.
async fn condition(
    definitions: &Api<CustomResourceDefinition>,
    name: &str,
    (condition, status, reason): (&str, &str, &str),
) -> Result<()> {
    let met = await_condition(
        definitions.clone(),
        name,
        |definition: Option<&CustomResourceDefinition>| {
            let conditions = definition.and_then(|one| one.status.as_ref()?.conditions.as_ref());
            conditions.into_iter().flatten().any(|one| {
                one.type_ == condition
                    && one.status == status
                    && one.reason.as_deref() == Some(reason)
            })
        },
    );
    timeout(PATIENCE, met).await.with_context(|| format!("{name}: {condition}"))??;
    Ok(())
}

fn renamed(plural: &str, kind: &str, short_names: &[&str]) -> Result<CustomResourceDefinition> {
    let mut renamed = definition(&sizes())?;
    renamed.metadata.name = Some(format!("{plural}.example.com"));
    let names = json!({"plural": plural, "kind": kind, "shortNames": short_names});
    renamed.spec.names = serde_json::from_value(names)?;
    Ok(renamed)
}

#[tokio::test]
async fn released_short_names_are_accepted_for_other_definitions() -> Result<()> {
    let server = TestServer::builder()
        .crd(definition(&sizes())?)
        .crd(renamed("bars", "Bar", &["ba"])?)
        .start()
        .await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    // A definition that requests the short name of another one continues with its previous names.
    let asks = Patch::Merge(json!({"spec": {"names": {"shortNames": ["ba", "fo"]}}}));
    definitions.patch("bars.example.com", &PatchParams::default(), &asks).await?;
    let conflict = ("NamesAccepted", "False", "ShortNamesConflict");
    condition(&definitions, "bars.example.com", conflict).await?;
    condition(&definitions, "bars.example.com", ("Established", "True", "InitialNamesAccepted"))
        .await?;
    let bars = definitions.get("bars.example.com").await?.status.context("status")?;
    ensure!(bars.accepted_names.context("names")?.short_names == Some(vec!["ba".to_owned()]));
    let gives = Patch::Merge(json!({"spec": {"names": {"shortNames": null}}}));
    definitions.patch(NAME, &PatchParams::default(), &gives).await?;
    condition(&definitions, "bars.example.com", ("NamesAccepted", "True", "NoConflicts")).await?;
    let foos = definitions.get(NAME).await?.status.context("status")?;
    ensure!(foos.accepted_names.context("names")?.short_names.is_none());
    Ok(())
}

#[tokio::test]
async fn status_stored_versions_keeps_earlier_storage_versions() -> Result<()> {
    let mut two = definition(&sizes())?;
    let mut second = two.spec.versions[0].clone();
    (second.name, second.storage) = ("v2".to_owned(), false);
    two.spec.versions.push(second);
    let server = TestServer::builder().crd(two.clone()).start().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    two.spec.versions[0].storage = false;
    two.spec.versions[1].storage = true;
    let patch = Patch::Merge(json!({"spec": two.spec}));
    let changed = definitions.patch(NAME, &PatchParams::default(), &patch).await?;
    let stored = changed.status.context("status")?.stored_versions;
    ensure!(stored == Some(vec!["v1".to_owned(), "v2".to_owned()]), "{stored:?}");
    Ok(())
}

#[tokio::test]
async fn definitions_of_k8s_io_groups_report_api_approval_in_a_condition() -> Result<()> {
    let mut larks = renamed("larks", "Lark", &[])?;
    larks.metadata.name = Some("larks.birds.k8s.io".to_owned());
    larks.spec.group = "birds.k8s.io".to_owned();
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    larks.annotations_mut().insert(ANNOTATION.to_owned(), "unapproved, for now".to_owned());
    let server = TestServer::builder().crd(larks).start().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    const CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";
    let unapproved = (CONFORMANT, "False", "UnapprovedAnnotation");
    condition(&definitions, "larks.birds.k8s.io", unapproved).await?;
    // A change of an annotation does not change the generation, but is evaluated too.
    let approve = json!({"metadata": {"annotations": {ANNOTATION: "https://example.com/1"}}});
    let approve = Patch::Merge(approve);
    definitions.patch("larks.birds.k8s.io", &PatchParams::default(), &approve).await?;
    condition(&definitions, "larks.birds.k8s.io", (CONFORMANT, "True", "ApprovedAnnotation"))
        .await?;
    Ok(())
}

#[tokio::test]
async fn objects_are_selected_by_the_fields_of_now() -> Result<()> {
    let fields = json!({"type": "object", "properties": {
        "colour": {"type": "string"}, "size": {"type": "string"},
    }});
    let mut selectable = definition(&fields)?;
    let by = |path: &str| serde_json::from_value(json!([{"jsonPath": path}]));
    selectable.spec.versions[0].selectable_fields = by(".spec.colour")?;
    let server = TestServer::builder().crd(selectable.clone()).start().await?;
    let (foos, resource) = foos(server.client());
    let foo = json!({"spec": {"colour": "red", "size": "large"}});
    foos.create(&PostParams::default(), &DynamicObject::new("a", &resource).data(foo)).await?;
    let count = async |selector: &str| {
        let found = foos.list(&ListParams::default().fields(selector)).await;
        found.map(|found| found.items.len())
    };
    ensure!(count("spec.colour=red").await? == 1);
    selectable.spec.versions[0].selectable_fields = by(".spec.size")?;
    let patch = Patch::Merge(json!({"spec": selectable.spec}));
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    definitions.patch(NAME, &PatchParams::default(), &patch).await?;
    let changed = async {
        while count("spec.size=large").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, changed).await?;
    ensure!(count("spec.size=large").await? == 1 && count("spec.size=red").await? == 0);
    ensure!(count("spec.colour=red").await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_definition_with_a_name_conflict_can_be_deleted_with_its_objects() -> Result<()> {
    let server = TestServer::builder()
        .crd(definition(&sizes())?)
        .crd(renamed("bars", "Bar", &["ba"])?)
        .crd(renamed("cars", "Car", &[])?)
        .start()
        .await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let kind = GroupVersionKind::gvk("example.com", "v1", "Bar");
    let resource = ApiResource::from_gvk(&kind);
    let bars: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &resource);
    let bar = DynamicObject::new("a", &resource).data(json!({"spec": {"size": 1}}));
    bars.create(&PostParams::default(), &bar).await?;
    let asks = Patch::Merge(json!({"spec": {"names": {"shortNames": ["fo"]}}}));
    definitions.patch("bars.example.com", &PatchParams::default(), &asks).await?;
    let conflict = ("NamesAccepted", "False", "ShortNamesConflict");
    condition(&definitions, "bars.example.com", conflict).await?;
    // The deletion of the other definition triggers a new check of this one, which remains served.
    let cars = definitions.delete("cars.example.com", &DeleteParams::default()).await?;
    let uid = cars.left().and_then(|cars| cars.uid()).unwrap_or_default();
    let gone = await_condition(definitions.clone(), "cars.example.com", is_deleted(&uid));
    timeout(PATIENCE, gone).await??;
    condition(&definitions, "bars.example.com", conflict).await?;
    let established = ("Established", "True", "InitialNamesAccepted");
    condition(&definitions, "bars.example.com", established).await?;
    ensure!(bars.get("a").await.is_ok());
    let uid = definitions.get("bars.example.com").await?.uid().context("uid")?;
    definitions.delete("bars.example.com", &DeleteParams::default()).await?;
    let gone = await_condition(definitions, "bars.example.com", is_deleted(&uid));
    timeout(PATIENCE, gone).await??;
    let late = bars.list(&ListParams::default()).await;
    ensure!(matches!(&late, Err(kube::Error::Api(s)) if s.is_not_found()), "{late:?}");
    Ok(())
}

/// Fields that were applied in a version have an owner after the version is no longer served. After the version is
/// removed, every apply fails, same as in kube-apiserver.
#[tokio::test]
async fn fields_applied_in_an_unserved_version_still_cause_conflicts() -> Result<()> {
    let version = |name: &str, is_served: bool| {
        let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
        json!({
            "name": name, "served": is_served, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        })
    };
    let of = |versions: Value| -> Result<CustomResourceDefinition> {
        let mut of = definition(&sizes())?;
        of.spec.versions = serde_json::from_value(versions)?;
        Ok(of)
    };
    let old = of(json!([version("v1", true), version("v1beta1", true)]))?;
    let server = TestServer::builder().crd(old).start().await?;
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let api = |name: &str| -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("example.com", name, "Foo");
        Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind))
    };
    let size = |version: &str, size: i64| {
        let (version, metadata) = (format!("example.com/{version}"), json!({"name": "a"}));
        Patch::Apply(json!({
            "apiVersion": version, "kind": "Foo", "metadata": metadata, "spec": {"size": size},
        }))
    };
    let (one, other) = (PatchParams::apply("one"), PatchParams::apply("other"));
    api("v1beta1").patch("a", &one, &size("v1beta1", 1)).await?;
    // The version is served until the definition takes effect.
    let until = async |is_served: bool, versions: Value| {
        let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
        definitions.patch(NAME, &PatchParams::default(), &patch).await?;
        let is_over = async {
            while api("v1beta1").get_opt("a").await.is_ok_and(|found| found.is_some()) != is_served
            {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, is_over).await?;
        anyhow::Ok(())
    };
    until(false, json!([version("v1", true), version("v1beta1", false)])).await?;
    let refused = api("v1").patch("a", &other, &size("v1", 2)).await;
    let why = "Apply failed with 1 conflict: conflict with \"one\": .spec.size";
    ensure!(matches!(&refused, Err(kube::Error::Api(s)) if s.message == why), "{refused:?}");
    // The version can be removed because no object is stored in it, although a manager still refers to it.
    until(false, json!([version("v1", true)])).await?;
    let gone = async {
        loop {
            match api("v1").patch("a", &other, &size("v1", 2)).await {
                Err(kube::Error::Api(status)) if status.message != why => return Ok(status),
                Err(kube::Error::Api(_)) => tokio::task::yield_now().await,
                outcome => anyhow::bail!("{outcome:?}"),
            }
        }
    };
    let status = timeout(PATIENCE, gone).await??;
    let why = "request to convert CR to an invalid group/version: example.com/v1beta1";
    ensure!((status.code, status.message.as_str()) == (500, why), "{status:?}");
    // Another type of change discards the managers.
    let patch = Patch::Merge(json!({"spec": {"size": 3}}));
    let changed = api("v1").patch("a", &PatchParams::default(), &patch).await?;
    ensure!(changed.managed_fields().is_empty(), "{changed:?}");
    Ok(())
}
