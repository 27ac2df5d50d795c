//! A long run of kube's reflector. Connections break, and the server restarts without its objects. In the end the
//! reflector has the existing objects.
//!
//! `EVENTS=1000000 cargo test --release -p aggregated-apiserver --test reflector` makes a longer run.

#![allow(clippy::unwrap_used)] // all of it is a test

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregated_apiserver::InProcess;
use axum::body::Body;
use fastrand::Rng;
use futures::StreamExt;
use http::{Request, StatusCode};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::{reflector, watcher};
use kube::{Api, Client, ResourceExt};
use test_server::DEFINITION;

const EVENTS: usize = 20_000;
/// The maximum number of objects.
const NAMES: u32 = 200;

/// A server that can be replaced while clients use it.
#[derive(Clone)]
struct World(Arc<Mutex<Arc<InProcess>>>);

impl World {
    async fn start() -> Self {
        Self(Arc::new(Mutex::new(Arc::new(test_server::server(DEFINITION).await))))
    }

    fn server(&self) -> Arc<InProcess> {
        Arc::clone(&self.0.lock().unwrap())
    }

    /// Replaces the server. The old one ends its watches and loses its objects.
    async fn restart(&self) {
        let server = Arc::new(test_server::server(DEFINITION).await);
        *self.0.lock().unwrap() = server;
    }

    async fn ask(&self, method: &str, path: &str, body: String) -> StatusCode {
        let uri = format!("/apis/example.com/v1/namespaces/default/foos{path}");
        let request = Request::builder().method(method).uri(uri).body(Body::from(body)).unwrap();
        self.server().respond(test_server::admin(), request).await.status()
    }

    /// Creates an object, or deletes it if it exists. Either causes one event.
    async fn change(&self, name: u32) {
        let object = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Foo","metadata":{{"name":"x-{name}"}}}}"#
        );
        let created = self.ask("POST", "", object).await;
        if created == StatusCode::CONFLICT {
            let deleted = self.ask("DELETE", &format!("/x-{name}"), String::new()).await;
            assert_eq!(deleted, StatusCode::OK);
        } else {
            assert_eq!(created, StatusCode::CREATED);
        }
    }

    /// A client of kube that uses the current server.
    fn client(&self) -> Client {
        let world = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = world.server();
            async move {
                let request = request.map(Body::new);
                Ok::<_, Infallible>(server.respond(test_server::admin(), request).await)
            }
        });
        Client::new(service, "default")
    }

    fn foos(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), "default", &resource())
    }
}

fn resource() -> ApiResource {
    ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Foo".into(),
        plural: "foos".into(),
    }
}

type Shown = BTreeMap<String, Option<String>>;

fn shown(objects: impl IntoIterator<Item = impl ResourceExt>) -> Shown {
    let objects = objects.into_iter();
    objects.map(|object| (object.name_any(), object.resource_version())).collect()
}

async fn follow(config: watcher::Config, seed: u64) {
    let events = std::env::var("EVENTS").map_or(EVENTS, |events| events.parse().unwrap());
    let world = World::start().await;
    let mut random = Rng::with_seed(seed);
    let writer = reflector::store::Writer::new(resource());
    let reader = writer.as_reader();
    let stream = reflector(writer, watcher(world.foos(), config));
    // The watcher reports the end of a watch as an error and retries by itself.
    let following = tokio::spawn(stream.for_each(async |_| {}));
    for event in 0..events {
        world.change(random.u32(..NAMES)).await;
        if event % (events / 10) == events / 20 {
            world.restart().await;
        }
        if random.u32(..4) == 0 {
            tokio::task::yield_now().await;
        }
    }
    let listed = world.foos().list(&ListParams::default()).await.unwrap();
    let expected = shown(listed.items);
    assert!(expected.len() > 10);
    let arrived = async {
        while shown(reader.state().iter().map(|object| (**object).clone())) != expected {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), arrived).await;
    following.abort();
    assert!(in_time.is_ok(), "it does not show what there is");
}

#[tokio::test]
async fn a_list_and_then_a_watch() {
    follow(watcher::Config::default(), 1).await;
}

#[tokio::test]
async fn a_list_in_pages_and_then_a_watch() {
    follow(watcher::Config::default().page_size(7), 2).await;
}

#[tokio::test]
async fn a_reflector_with_streaming_lists_converges_across_restarts() {
    follow(watcher::Config::default().streaming_lists(), 3).await;
}
