use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use standalone_apiserver::TestServer;

use super::alpaca::{Alpaca, AlpacaSpec};
use super::kinds;
use super::stable::Stable;

#[tokio::test]
async fn an_alpaca_that_is_all_fleece_is_rejected() {
    let server = TestServer::builder().kinds(kinds(None)).start().await.unwrap();
    let alpacas: Api<Alpaca> = Api::default_namespaced(server.client());
    let fluffy = Alpaca::new("fluffy", AlpacaSpec { weight: 3.0, fleece: 3.0 });
    let error = alpacas.create(&PostParams::default(), &fluffy).await.unwrap_err();
    assert!(error.to_string().contains("an alpaca is heavier than its fleece"), "{error}");
}

#[tokio::test]
async fn a_node_has_a_stable() {
    let server = TestServer::builder().kinds(kinds(None)).start().await.unwrap();
    let stables: Api<Stable> = Api::all(server.client());
    let events = watcher(stables, watcher::Config::default()).applied_objects();
    let mut events = std::pin::pin!(events);

    let name = Some("meadow".to_owned());
    let node = Node { metadata: ObjectMeta { name, ..Default::default() }, ..Default::default() };
    let nodes: Api<Node> = Api::all(server.client());
    nodes.create(&PostParams::default(), &node).await.unwrap();

    let stable = futures::TryStreamExt::try_next(&mut events).await.unwrap().unwrap();
    assert_eq!(stable.name_any(), "meadow");
}
