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

use crate::request::{Handler, Peer, StreamReset};
use crate::user::{MASTERS, User};

/// The namespace of requests without a namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// The user of a server's requests to itself, same as kube-apiserver's.
const ITSELF: &str = "system:apiserver";

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
        let groups = vec![MASTERS.to_owned()];
        self.client(User { name: ITSELF.to_owned(), groups, ..User::default() })
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

async fn respond(
    mut way: watch::Receiver<Option<Weak<Handler>>>,
    user: User,
    request: Request<KubeBody>,
) -> Result<Response<Body>, &'static str> {
    const GONE: &str = "the server in this process is gone";
    let handler = way.wait_for(Option::is_some).await.map_err(|_| GONE)?.clone();
    if request.headers().contains_key(UPGRADE)
        && let Some(handler) = handler.clone()
    {
        let broken = |_| "the connection within this process has ended";
        return upgrades::respond(handler, user, request).await.map_err(broken);
    }
    let handler = handler.as_ref().and_then(Weak::upgrade).ok_or(GONE)?;
    // Open watches end with the server, not with the client.
    let answer = handler.answers().begin(StreamReset::default());
    Ok(handler.handle(&Peer::InProcess(user), &answer, request.map(Body::new)).await)
}
