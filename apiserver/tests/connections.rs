//! Many connections: whoever fills the places must not keep others out.

#![allow(clippy::unwrap_used)] // all of it is a test

mod fixture;

use std::time::Duration;

use axum::body::Body;
use fixture::Fixture;
use http::Request;
use hyper::client::conn::http2;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// More connections than there are places.
const MANY: usize = 1_000;
/// How soon an honest client must be answered.
const SOON: Duration = Duration::from_secs(10);

fn get(path: &str) -> Request<Body> {
    Request::get(format!("https://localhost{path}")).body(Body::empty()).unwrap()
}

async fn status(client: &mut http2::SendRequest<Body>, path: &str) -> u16 {
    client.ready().await.unwrap();
    client.send_request(get(path)).await.unwrap().status().as_u16()
}

/// A probe, on a connection of its own.
async fn probe(fixture: &Fixture) -> u16 {
    let asked = async { status(&mut fixture.h2(None).await, "/readyz").await };
    timeout(SOON, asked).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_give_way() {
    let fixture = Fixture::start().await;
    let mut silent = Vec::new();
    for _ in 0..MANY + 500 {
        silent.push(TcpStream::connect(fixture.running.address()).await.unwrap());
    }
    assert_eq!(probe(&fixture).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_give_way_and_whoever_was_authenticated_stays() {
    let fixture = Fixture::start().await;
    let path = fixture.folder.path();
    let jane = fixture.authority.client(path, "jane", "jane", None).unwrap();
    let mut jane = fixture.h2(Some(&jane)).await;
    let mut proxy = fixture.proxy().await;
    // The cluster is away, so she may do nothing; but she is known.
    assert_eq!(status(&mut jane, "/apis/example.com/v1/foos").await, 500);
    let mut strangers = Vec::new();
    for _ in 0..MANY {
        strangers.push(fixture.connect("h2", None).await);
    }
    assert_eq!(probe(&fixture).await, 200);
    assert_eq!(status(&mut jane, "/apis/example.com/v1/foos").await, 500);
    assert_eq!(status(&mut proxy, "/livez").await, 200);
    assert_eq!(status(&mut fixture.proxy().await, "/livez").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_have_all_places() {
    let fixture = Fixture::start().await;
    let path = fixture.folder.path();
    let jane = fixture.authority.client(path, "jane", "jane", None).unwrap();
    let mut connections = Vec::new();
    for _ in 0..MANY {
        // All of them are hers, and she is known.
        connections.push(fixture.connect_from([127, 0, 0, 2].into(), Some(&jane)).await);
    }
    assert_eq!(probe(&fixture).await, 200);
    assert_eq!(status(&mut fixture.proxy().await, "/livez").await, 200);
}
