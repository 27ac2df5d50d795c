//! The states of a server: bound, running, drained; and a server within this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::assemble::Assembled;
use super::authentication::Trusted;
use super::connection::Connections;
use super::health::Health;
use super::listener::Listening;
use super::loopback::Loopback;
use super::memory::{self, Bounds};
use super::plain::{Plain, PlainPorts};
use super::router::Routes;
use super::runtime_kinds::RuntimeKinds;
use super::{ApiServer, listener, serving_certificate};
use crate::cluster::Cluster;
use crate::error::StartError;
use crate::kind::Kind;
use crate::request::{Impersonation, Peer, StreamReset};
use crate::user::User;

/// The longest time for writing the last audit events and sending the last spans at the end, both concurrently.
const FLUSH: Duration = Duration::from_secs(5);

/// A server that listens and does not respond yet.
pub struct BoundServer {
    pub(super) server: ApiServer,
    pub(super) bounds: Bounds,
    pub(super) kinds: Vec<Arc<Kind>>,
    pub(super) cluster: Cluster,
    pub(super) impersonation: Impersonation,
    pub(super) trusted: Trusted,
    pub(super) certificate: serving_certificate::Opened,
    pub(super) listening: Listening,
    pub(super) plain_ports: PlainPorts,
    pub(super) loopback: Loopback,
}

impl BoundServer {
    /// The address and port on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// Starts to respond to requests. Operations that need the cluster are repeated until they succeed.
    ///
    /// # Errors
    /// If an initial object of a kind cannot be stored.
    pub async fn start(self) -> Result<Running, StartError> {
        let (running, unready) = self.start_unready().await?;
        unready.mark_ready();
        Ok(running)
    }

    /// Starts a server that is not ready before [`PendingReadiness::mark_ready`] is called, so that the caller can
    /// restore objects first.
    ///
    /// # Errors
    /// Same as [`BoundServer::start`].
    pub async fn start_unready(self) -> Result<(Running, PendingReadiness), StartError> {
        let Self {
            mut server,
            bounds,
            kinds,
            cluster,
            impersonation,
            trusted,
            certificate,
            listening,
            plain_ports,
            loopback,
        } = self;
        let mut hooks = std::mem::take(&mut server.hooks);
        let closing = CancellationToken::new();
        let unready = PendingReadiness::new();
        let limits = server.limits(bounds);
        let documents = server.documents();
        let assembled = Assembled::new(
            kinds,
            (&server.kinds, &server.copied),
            server.clock.clone(),
            (cluster.clone(), documents),
            (limits, hooks.additions()),
            trusted.authentication(impersonation),
            closing.clone(),
        );
        // The largest part of the future of a start.
        let mut assembled = Box::pin(assembled).await?;
        let health = Health::new(
            (trusted.ready(), certificate.ready()),
            unready.0.subscribe(),
            Arc::clone(&assembled.store),
            closing.clone(),
        );
        let health = health.with_checks(std::mem::take(&mut hooks.checks));
        loopback.connect(&assembled.handler);
        let address = listening.address();
        let handler = Arc::clone(&assembled.handler);
        handler.set_certificate_ends(certificate.ends());
        bounds.tell(server.memory_limit.or_else(memory::limit));
        let trust = trusted.trust();
        let known = trusted.known();
        let tasks = vec![
            tokio::spawn(trusted.keep()),
            tokio::spawn(certificate.clone().keep(cluster.clone())),
        ];
        let plain = plain_ports.serve(&handler, &health);
        let routes = Routes::new(handler, health.clone(), std::mem::take(&mut hooks.layers));
        let connections = Connections::new(
            certificate.tls(),
            trust,
            routes,
            server.clock.clone(),
            bounds.connections,
        );
        let connections = Arc::new(connections);
        let serving = listening
            .serve(known, move |stream, draining| Arc::clone(&connections).serve(stream, draining));
        let memory_limits_mib = bounds.mebibytes();
        tracing::info!(server = server.name, %address, memory_limits_mib, "listening");
        assembled.run(*hooks, &loopback, &cluster, (&closing, &unready.0.subscribe()));
        let running =
            Running { assembled, serving, plain, health, closing, tasks, address, loopback };
        Ok((running, unready))
    }
}

/// A server that responds and is not ready yet. Its post-start hooks have not started.
pub struct PendingReadiness(pub(super) watch::Sender<bool>);

impl PendingReadiness {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Makes the server ready, and starts its post-start hooks.
    pub fn mark_ready(self) {
        self.0.send_replace(true);
    }
}

/// A server that responds. Dropping it ends every request at once; [`Running::drain`] lets requests finish.
pub struct Running {
    assembled: Assembled,
    serving: listener::Serving,
    plain: Plain,
    health: Health,
    closing: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    address: SocketAddr,
    loopback: Loopback,
}

impl Running {
    /// A client within this process that sends requests as this user.
    pub fn client(&self, user: User) -> Client {
        self.loopback.client(user)
    }

    /// The interface that adds and removes kinds.
    pub fn runtime_kinds(&self) -> RuntimeKinds {
        self.assembled.runtime.clone()
    }

    /// The address and port on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of probes over plain HTTP, if it is enabled.
    pub fn health_probe_address(&self) -> Option<SocketAddr> {
        self.plain.probes
    }

    /// The address of metrics over plain HTTP, if it is enabled.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.plain.metrics
    }

    /// Serves until SIGTERM or SIGINT, then drains.
    ///
    /// # Errors
    /// If the server cannot continue.
    pub async fn run(mut self, delay: Duration) -> Result<(), StartError> {
        tokio::select! {
            why = self.serving.ended() => return Err(StartError::Serving(why)),
            why = self.assembled.store.failed() => return Err(StartError::Store(why)),
            why = self.assembled.refused.wait() => return Err(StartError::Serving(why)),
            () = shutdown_signal() => {}
        }
        self.drain(delay).await;
        Ok(())
    }

    /// Drains the server. `/readyz` fails, and the server continues to serve for `delay`. Then it ends watches, gives
    /// requests in flight at most a minute to finish, and closes. The last audit events and spans, and hooks that have
    /// not finished, get five more seconds.
    pub async fn drain(mut self, delay: Duration) -> Stopped {
        tracing::info!("shutting down");
        self.health.shut_down();
        tokio::time::sleep(delay).await;
        // Clients reopen an ended watch at once. They must use another connection for it, so this server stops
        // accepting requests first.
        self.serving.begin_draining();
        self.closing.cancel();
        // The farewells of connections are a part of the time for requests in flight.
        let connections = self.assembled.handler.close_connections();
        tokio::join!(self.serving.drain(), connections);
        let hooks = async { while self.assembled.hooks.join_next().await.is_some() {} };
        let hooks = tokio::time::timeout(FLUSH, hooks);
        let _ = tokio::join!(self.assembled.handler.flush(FLUSH), hooks);
        let store = Arc::clone(&self.assembled.store);
        drop(self);
        // Dropping the last reference to a store ends its thread and waits for it, which blocks.
        let _ = tokio::task::spawn_blocking(move || drop(store)).await;
        tracing::info!("drained");
        Stopped(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.closing.cancel();
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A server that has answered its requests and has ended.
#[derive(Debug)]
pub struct Stopped(());

/// A server within this process. Dropping it ends everything.
pub struct InProcess {
    pub(super) assembled: Assembled,
    pub(super) loopback: Loopback,
    pub(super) _closing: DropGuard,
}

impl InProcess {
    /// A client that sends requests as this user and needs no credentials. Requests fail once the server has ended.
    pub fn client(&self, user: User) -> Client {
        self.loopback.client(user)
    }

    /// The interface that adds and removes kinds.
    pub fn runtime_kinds(&self) -> RuntimeKinds {
        self.assembled.runtime.clone()
    }

    /// Responds to a request of this user, which needs no credentials.
    pub async fn respond(&self, user: User, request: Request<Body>) -> Response<Body> {
        let handler = &self.assembled.handler;
        let answer = handler.answers().begin(StreamReset::default());
        handler.handle(&Peer::InProcess(user), &answer, request).await
    }

    /// Returns when the caches of all kinds are synced.
    pub async fn wait_synced(&self) {
        for served in self.assembled.kinds.iter() {
            served.cache.wait_synced().await;
        }
    }
}

/// Returns at the first SIGTERM or SIGINT; the second one ends the process.
async fn shutdown_signal() {
    let next = async || {
        let (Ok(mut terminate), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            tracing::error!("cannot receive signals: only SIGKILL ends this process");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    next().await;
    tokio::spawn(async move {
        next().await;
        tracing::warn!("second signal received, exiting immediately");
        std::process::exit(1);
    });
}

#[cfg(test)]
mod tests {
    use super::super::listener::DRAIN;
    use super::*;
    use crate::manifests::{GRACE_SECONDS, SHUTDOWN_DELAY_SECONDS};

    #[test]
    fn the_termination_grace_period_covers_the_shutdown() {
        let delay = Duration::from_secs(SHUTDOWN_DELAY_SECONDS);
        let grace = Duration::from_secs(GRACE_SECONDS);
        let end = delay + DRAIN + FLUSH;
        assert!(end < grace && grace < end + Duration::from_secs(10), "{end:?} of {grace:?}");
    }
}
