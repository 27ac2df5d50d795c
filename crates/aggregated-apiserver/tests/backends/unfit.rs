//! Objects that another program changes to values of wrong types.

use std::sync::Arc;

use aggregated_apiserver::Kinds;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use test_server::admin;

use crate::common::{INTERVAL, LONG, serving};
use crate::trees::{self, Trees};

/// Repeats a request until it succeeds: the change may not have been read.
async fn eventually<T>(request: impl AsyncFn() -> kube::Result<T>) -> T {
    let succeeded = async {
        loop {
            match request().await {
                Ok(done) => return done,
                Err(_) => tokio::time::sleep(INTERVAL).await,
            }
        }
    };
    tokio::time::timeout(LONG, succeeded).await.unwrap()
}

#[tokio::test]
async fn an_object_with_values_of_wrong_types_can_be_replaced_and_deleted() {
    let trees = Arc::new(Trees::default());
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Farm"));
    let put = |name: &str, size: Value| {
        trees.put(DynamicObject::new(name, &resource).data(json!({"spec": {"size": size}})));
    };
    for name in ["a", "b"] {
        put(name, json!(1));
    }
    let server = serving(Kinds::new().kind(trees::kind(&trees, false))).await;
    let api: Api<DynamicObject> = Api::all_with(server.client(admin()), &resource);
    for name in ["a", "b"] {
        put(name, json!("many"));
    }
    tokio::time::sleep(INTERVAL * 3).await;
    let known = api.get("a").await.unwrap();
    assert_eq!(known.data["spec"]["size"], 1, "the last object that belongs to the kind stays");
    eventually(async || api.delete("a", &DeleteParams::default()).await.map(drop)).await;
    assert!(trees.get("a").is_none());
    let patch = Patch::Merge(json!({"spec": {"size": 2}}));
    let patched = eventually(async || api.patch("b", &PatchParams::default(), &patch).await).await;
    assert_eq!(patched.data["spec"]["size"], 2);
    assert_eq!(trees.get("b").unwrap().data["spec"]["size"], 2);
    // The former content is a change again.
    put("b", json!(1));
    let is_seen =
        |farm: Option<&DynamicObject>| farm.is_some_and(|farm| farm.data["spec"]["size"] == 1);
    let seen = kube::runtime::wait::await_condition(api, "b", is_seen);
    tokio::time::timeout(LONG, seen).await.unwrap().unwrap();
}
