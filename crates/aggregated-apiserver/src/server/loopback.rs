//! The connection of a server to itself: clients that send requests to the handler within the process, without a
//! socket.

mod upgrades;

use std::sync::{Arc, Weak};

use axum::body::Body;
use http::header::UPGRADE;
use http::{Request, Response};
use kube::Client;
use kube::client::Body as KubeBody;
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::request::{Handler, Peer, StreamReset};
use crate::user::{MASTERS, User};

/// The namespace of requests without a namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// The user of a server's requests to itself, same as kube-apiserver's.
const ITSELF: &str = "system:apiserver";
/// The extra key of the user that reviews the token of a request. The chain of the request calls its other
/// authenticators itself, so such a review must not call them.
const OWN_REVIEW: &str = "internal/own-review";

/// The connection to a server that may not exist yet, or no longer.
#[derive(Clone)]
pub(super) struct Loopback(watch::Sender<Option<Weak<Handler>>>);

impl Default for Loopback {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Loopback {
    /// Connects the handler. Requests wait until then.
    pub(super) fn connect(&self, handler: &Arc<Handler>) {
        self.0.send_replace(Some(Arc::downgrade(handler)));
    }

    /// A client of the server itself with all permissions. Requests of a network connection cannot act as this user.
    pub(super) fn client_of_itself(&self) -> Client {
        self.client(itself())
    }

    /// The server as its own cluster. A TokenReview of a request has the extra key [`OWN_REVIEW`].
    pub(super) fn cluster(&self) -> Cluster {
        let mut reviewer = itself();
        reviewer.extra.insert(OWN_REVIEW.to_owned(), Vec::new());
        Cluster::new(self.client_of_itself()).with_reviewer(self.client(reviewer))
    }

    /// A client that sends requests as this user.
    pub(super) fn client(&self, user: User) -> Client {
        let (way, user) = (self.0.subscribe(), user.authenticated());
        let service = tower::service_fn(move |request: Request<KubeBody>| {
            let (way, user) = (way.clone(), user.clone());
            async move { respond(way, user, request).await }
        });
        Client::new(service, DEFAULT_NAMESPACE)
    }
}

fn itself() -> User {
    User { name: ITSELF.to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() }
}

async fn respond(
    mut way: watch::Receiver<Option<Weak<Handler>>>,
    user: User,
    request: Request<KubeBody>,
) -> Result<Response<Body>, &'static str> {
    const ENDED: &str = "the server in this process has ended";
    let handler = way.wait_for(Option::is_some).await.map_err(|_| ENDED)?.clone();
    if request.headers().contains_key(UPGRADE)
        && let Some(handler) = handler.clone()
    {
        let broken = |_| "the connection within this process has ended";
        return upgrades::respond(handler, user, request).await.map_err(broken);
    }
    let handler = handler.as_ref().and_then(Weak::upgrade).ok_or(ENDED)?;
    // Open watches end with the server, not with the client.
    let answer = handler.answers().begin(StreamReset::default());
    Ok(handler.handle(&Peer::InProcess(user), &answer, request.map(Body::new)).await)
}
