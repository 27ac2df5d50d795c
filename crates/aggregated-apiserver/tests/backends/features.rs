//! Features of stored kinds that virtual kinds have, too: subresources, versions, rules and visibility.

use std::sync::Arc;

use aggregated_apiserver::backend::VirtualKind;
use aggregated_apiserver::{FieldError, Kind, Kinds, User, Validation, Visibility};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use test_server::admin;

use crate::common::{INTERVAL, LONG, book, refusal, serving};
use crate::shelf::{Book, Shelf};
use crate::trees;

#[tokio::test]
async fn dynamic_objects_have_subresources_versions_and_their_own_metadata() {
    let trees = Arc::new(trees::Trees::default());
    let server = serving(Kinds::new().kind(trees::kind(&trees, true))).await;
    let resource =
        |version| ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Farm"));
    let farms = |version| -> Api<DynamicObject> {
        Api::all_with(server.client(admin()), &resource(version))
    };
    let api = farms("v1");
    // The name is generated, the schema has a default, and fields that it does not have are removed.
    let mut farm = DynamicObject::new("", &resource("v1")).data(json!({"spec": {}, "x": "y"}));
    farm.metadata.generate_name = Some("farm-".to_owned());
    farm.metadata.name = None;
    let created = api.create(&PostParams::default(), &farm).await.unwrap();
    let name = created.name_any();
    assert!(
        name.starts_with("farm-") && created.data == json!({"spec": {"size": 1}}),
        "{created:?}"
    );
    let stored = trees.get(&name).unwrap();
    assert_eq!((stored.uid(), stored.metadata.managed_fields.is_some()), (created.uid(), true));
    assert_eq!(farms("v2").get(&name).await.unwrap().types.unwrap().api_version, "example.com/v2");
    // Server-side apply, status and scale.
    let applied = json!({
        "apiVersion": "example.com/v1", "kind": "Farm", "spec": {"size": 2, "animals": ["cow"]},
    });
    let apply = PatchParams::apply("one").force();
    let applied = api.patch(&name, &apply, &Patch::Apply(&applied)).await.unwrap();
    assert_eq!(
        (&applied.data["spec"]["animals"], applied.metadata.generation),
        (&json!(["cow"]), Some(2))
    );
    let status = Patch::Merge(json!({"status": {"size": 7}, "spec": {"size": 9}}));
    let status = api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    assert_eq!(
        (&status.data["spec"]["size"], &status.data["status"]["size"]),
        (&json!(2), &json!(7))
    );
    assert_eq!(status.annotations()["written"], "status");
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let scale = api.patch_scale(&name, &PatchParams::default(), &scale).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(5));
    assert_eq!(trees.get(&name).unwrap().data["spec"]["size"], 5);
    // The backend rejects a value.
    let thirteen = Patch::Merge(json!({"spec": {"size": 13}}));
    let status = refusal(api.patch(&name, &PatchParams::default(), &thirteen).await);
    assert_eq!((status.code, status.details.unwrap().causes[0].field.as_str()), (422, "spec.size"));
    // A value of another type never reaches the backend.
    let text = Patch::Merge(json!({"spec": {"size": "many"}}));
    assert_eq!(refusal(api.patch(&name, &PatchParams::default(), &text).await).code, 422);
    let all = api.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    all.unwrap();
    assert!(trees.get(&name).is_none());
    // Objects of other kinds, and with values of other types, are ignored.
    let put = |name: &str, version, data: Value| {
        trees.put(DynamicObject::new(name, &resource(version)).data(data));
    };
    put("text", "v1", json!({"spec": {"size": "many"}}));
    put("other", "v2", json!({}));
    put("whole", "v1", json!({"spec": {"size": 3}}));
    let is_there = kube::runtime::wait::await_condition(
        api.clone(),
        "whole",
        |farm: Option<&DynamicObject>| farm.is_some(),
    );
    tokio::time::timeout(LONG, is_there).await.unwrap().unwrap();
    let names = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(names.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["whole"]);
    api.delete("whole", &DeleteParams::default()).await.unwrap();
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn rules_and_visibility_apply_to_virtual_kinds() {
    let shelf = Shelf::new();
    shelf.put("public-a", Some("Emma"));
    shelf.put("secret-b", Some("Emma"));
    let books_kind = VirtualKind::polled(Book::crd(), Arc::clone(&shelf), INTERVAL).create();
    let rules = Validation::new().prepare(|book: &mut Book, _| book.spec.copies = 7).validate(
        |book: &Book, _, _| match book.spec.title.as_str() {
            "Ulysses" => vec![FieldError::forbidden("spec.title", "it is too long")],
            _ => Vec::new(),
        },
    );
    let visible =
        Visibility::by_object(|_: &User, book: &Book| book.name_any().starts_with("public"));
    let kind = Kind::virtual_kind(books_kind).validation(rules).visibility(visible);
    let server = test_server::server_of_kinds_for_all(Kinds::new().kind(kind)).await;
    server.wait_synced().await;
    let reader = User { name: "reader".to_owned(), ..User::default() };
    let api: Api<Book> = Api::namespaced(server.client(reader), "n");
    let refused = api.create(&PostParams::default(), &book("public-c", "Ulysses")).await;
    assert_eq!(refusal(refused).code, 422);
    let created = api.create(&PostParams::default(), &book("public-c", "Emma")).await.unwrap();
    assert_eq!(created.spec.copies, 7);
    let listed = api.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = listed.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["public-a", "public-c"]);
    assert_eq!(refusal(api.get("secret-b").await).code, 404);
}
