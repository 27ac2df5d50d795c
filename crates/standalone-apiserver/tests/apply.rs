//! Server-side apply by operators written with kube-rs.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standalone_apiserver::TestServer;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Foo", namespaced, status = "FooStatus")]
struct FooSpec {
    size: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    colour: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct FooStatus {
    phase: String,
}

/// Returns an apply patch with this spec.
fn foo(spec: Value) -> Patch<Value> {
    let metadata = json!({"name": "a"});
    Patch::Apply(
        json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": metadata, "spec": spec}),
    )
}

/// Returns the managers of an object, each with its operation.
fn managers(object: &impl ResourceExt) -> Vec<String> {
    let entries = object.managed_fields().iter().map(|entry| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}{}", text(&entry.operation), text(&entry.manager), text(&entry.subresource))
    });
    entries.collect()
}

#[tokio::test]
async fn server_side_apply_removes_omitted_fields_and_detects_conflicts() -> Result<()> {
    let server = TestServer::builder().crd(Foo::crd()).start().await?;
    let foos: Api<Foo> = Api::default_namespaced(server.client());
    let operator = PatchParams::apply("operator");
    let made = foos.patch("a", &operator, &foo(json!({"size": 1, "colour": "red"}))).await?;
    ensure!(managers(&made) == ["Apply operator"], "{made:?}");
    // Applying the same configuration again changes nothing.
    let same = foos.patch("a", &operator, &foo(json!({"size": 1, "colour": "red"}))).await?;
    ensure!(same.resource_version() == made.resource_version());
    // A field that is no longer applied is removed.
    let less = foos.patch("a", &operator, &foo(json!({"size": 1}))).await?;
    ensure!(less.spec.colour.is_none());

    // Another manager conflicts with fields of the operator, unless it forces the change.
    let other = PatchParams::apply("other");
    let refused = foos.patch("a", &other, &foo(json!({"size": 2}))).await;
    let Err(kube::Error::Api(status)) = refused else { anyhow::bail!("{refused:?}") };
    ensure!(status.code == 409, "{status:?}");
    let expected = "Apply failed with 1 conflict: conflict with \"operator\": .spec.size";
    ensure!(status.message == expected, "{status:?}");
    let causes = status.details.context("no details")?.causes;
    ensure!(causes[0].reason == "FieldManagerConflict" && causes[0].field == ".spec.size");
    let taken = foos.patch("a", &other.clone().force(), &foo(json!({"size": 2}))).await?;
    ensure!(managers(&taken) == ["Apply other"], "{taken:?}");

    // The status has managers of its own.
    let status = json!({"apiVersion": "example.com/v1", "kind": "Foo", "status": {"phase": "Up"}});
    let told = foos.patch_status("a", &operator, &Patch::Apply(status)).await?;
    ensure!(told.status.as_ref().is_some_and(|status| status.phase == "Up"));
    ensure!(managers(&told) == ["Apply operatorstatus", "Apply other"], "{told:?}");
    Ok(())
}

#[tokio::test]
async fn two_managers_apply_different_containers_of_a_deployment() -> Result<()> {
    let server = TestServer::builder().start().await?;
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let applied = |spec: Value| {
        let metadata = json!({"name": "web", "labels": {"app": "web"}});
        Patch::Apply(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}),
        )
    };
    let template = |containers: Value| json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let web = json!({
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template(json!([{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}])),
    });
    let operator = PatchParams::apply("operator");
    let made = deployments.patch("web", &operator, &applied(web.clone())).await?;
    ensure!(made.spec.as_ref().and_then(|spec| spec.replicas) == Some(2));
    // A mesh adds a container, which the next apply of the operator does not change.
    let mesh = PatchParams::apply("mesh");
    let proxy =
        json!({"template": {"spec": {"containers": [{"name": "proxy", "image": "proxy:1"}]}}});
    deployments.patch("web", &mesh, &applied(proxy)).await?;
    let mut changed = web;
    changed["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    let changed = deployments.patch("web", &operator, &applied(changed)).await?;
    let spec = changed.spec.and_then(|spec| spec.template.spec).context("no template")?;
    let images: Vec<_> = spec.containers.iter().filter_map(|one| one.image.as_deref()).collect();
    ensure!(images == ["web:2", "proxy:1"], "{images:?}");
    // The mesh releases the fields that it has applied.
    let nothing =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let left = deployments.patch("web", &mesh, &Patch::Apply(nothing)).await?;
    let spec = left.spec.and_then(|spec| spec.template.spec).context("no template")?;
    ensure!(spec.containers.len() == 1);
    Ok(())
}

#[tokio::test]
async fn server_side_apply_by_kubectl_adopts_client_side_applied_fields() -> Result<()> {
    let server = TestServer::builder().start().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let last = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1"}}"#;
    let map = |annotations: Value, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": annotations}, "data": data});
    let made = serde_json::from_value(map(json!({LAST: last}), json!({"x": "1"})))?;
    let client_side = kube::api::PostParams {
        field_manager: Some("kubectl-client-side-apply".to_owned()),
        ..kube::api::PostParams::default()
    };
    maps.create(&client_side, &made).await?;
    let wanted = Patch::Apply(map(json!({}), json!({"x": "2"})));
    ensure!(maps.patch("a", &PatchParams::apply("other"), &wanted).await.is_err());
    let applied = maps.patch("a", &PatchParams::apply("kubectl"), &wanted).await?;
    ensure!(applied.data.context("no data")?["x"] == "2");
    let annotations = applied.metadata.annotations.context("no annotations")?;
    ensure!(annotations[LAST].contains(r#""data":{"x":"2"}"#), "{annotations:?}");
    Ok(())
}
