//! A server that is bound, one that runs, what is left of it, and one in this process.

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
use super::runtime_kinds::RuntimeKinds;
use super::{ApiServer, listener, router, serving_certificate};
use crate::cluster::Cluster;
use crate::error::StartError;
use crate::kind::Kind;
use crate::request::{Impersonation, Peer, StreamReset};
use crate::user::User;

/// How long the end waits until the last audit events are written and the last spans are sent, both at once.
const FLUSH: Duration = Duration::from_secs(5);

/// A server that listens, and answers nobody yet.
pub struct Bound {
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

impl Bound {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// Answers requests. What needs the cluster is tried until it works.
    ///
    /// # Errors
    /// When an initial object of a kind cannot be kept.
    pub async fn start(self) -> Result<Running, StartError> {
        let (running, unready) = self.start_unready().await?;
        unready.mark_ready();
        Ok(running)
    }

    /// The same, but the server is not ready before [`Unready::mark_ready`]: whoever starts it
    /// may restore objects first.
    ///
    /// # Errors
    /// As [`Bound::start`].
    pub async fn start_unready(self) -> Result<(Running, Unready), StartError> {
        let Self {
            server,
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
        let closing = CancellationToken::new();
        let unready = Unready(watch::Sender::new(false));
        let limits = server.limits(bounds);
        let documents = server.documents();
        let assembled = Assembled::new(
            kinds,
            (&server.kinds, &server.copied),
            server.clock.clone(),
            (cluster.clone(), documents),
            limits,
            trusted.authentication(impersonation),
            closing.clone(),
        )
        .await?;
        let health = Health::new(
            (trusted.ready(), certificate.ready()),
            unready.0.subscribe(),
            Arc::clone(&assembled.store),
            closing.clone(),
        );
        loopback.connect(&assembled.handler);
        let address = listening.address();
        let handler = Arc::clone(&assembled.handler);
        handler.set_certificate_ends(certificate.ends());
        bounds.tell(server.memory_limit.or_else(memory::limit));
        let trust = trusted.trust();
        let known = trusted.known();
        let tasks =
            vec![tokio::spawn(trusted.keep()), tokio::spawn(certificate.clone().keep(cluster))];
        let plain = plain_ports.serve(&handler, &health);
        let router = router::router(handler, health.clone());
        let connections = Connections::new(
            certificate.tls(),
            trust,
            router,
            server.clock.clone(),
            bounds.connections,
        );
        let connections = Arc::new(connections);
        let serving = listening
            .serve(known, move |stream, draining| Arc::clone(&connections).serve(stream, draining));
        let memory_limits_mib = bounds.mebibytes();
        tracing::info!(server = server.name, %address, memory_limits_mib, "listening");
        let running =
            Running { assembled, serving, plain, health, closing, tasks, address, loopback };
        Ok((running, unready))
    }
}

/// A server that answers and is not ready yet.
pub struct Unready(watch::Sender<bool>);

impl Unready {
    /// Makes the server ready.
    pub fn mark_ready(self) {
        self.0.send_replace(true);
    }
}

/// A server that answers. Dropping it ends everything at once;
/// [`Running::drain`] is kinder.
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
    /// A client in this process, whose requests are this user's.
    pub fn client(&self, user: User) -> Client {
        self.loopback.client(user)
    }

    /// Takes kinds into service, and out of it.
    pub fn runtime_kinds(&self) -> RuntimeKinds {
        self.assembled.runtime.clone()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where probes are answered over plain HTTP, if they are.
    pub fn health_probe_address(&self) -> Option<SocketAddr> {
        self.plain.probes
    }

    /// Where metrics are shown over plain HTTP, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.plain.metrics
    }

    /// Serves until SIGTERM or SIGINT, then drains.
    ///
    /// # Errors
    /// When it cannot go on.
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

    /// Turns `/readyz` red, serves on for `delay`, then ends watches, lets
    /// requests in flight finish, for a minute at most, and closes. The last audit events and spans
    /// get five seconds then.
    pub async fn drain(mut self, delay: Duration) -> Drained {
        tracing::info!("shutting down");
        self.health.shut_down();
        tokio::time::sleep(delay).await;
        // Whoever is told that a watch has ended begins another one at once, and not on this connection.
        self.serving.begin_draining();
        self.closing.cancel();
        self.serving.drain().await;
        self.assembled.handler.flush(FLUSH).await;
        let store = Arc::clone(&self.assembled.store);
        drop(self);
        // The last reference ends the thread of a store and waits for it.
        let _ = tokio::task::spawn_blocking(move || drop(store)).await;
        tracing::info!("drained");
        Drained(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.closing.cancel();
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// A server that has answered everybody and is gone.
#[derive(Debug)]
pub struct Drained(());

/// A server in this process. Dropping it ends everything.
pub struct InProcess {
    pub(super) assembled: Assembled,
    pub(super) loopback: Loopback,
    pub(super) _closing: DropGuard,
}

impl InProcess {
    /// A client whose requests are this user's, who needs no credentials. It
    /// answers errors once the server is gone.
    pub fn client(&self, user: User) -> Client {
        self.loopback.client(user)
    }

    /// Takes kinds into service, and out of it.
    pub fn runtime_kinds(&self) -> RuntimeKinds {
        self.assembled.runtime.clone()
    }

    /// Answers a request of this user, who needs no credentials.
    pub async fn respond(&self, user: User, request: Request<Body>) -> Response<Body> {
        let handler = &self.assembled.handler;
        let answer = handler.answers().begin(StreamReset::default());
        handler.handle(&Peer::InProcess(user), &answer, request).await
    }

    /// Returns when every kind knows all its objects.
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
            tracing::error!("signals cannot be received: only SIGKILL ends this process");
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
    fn a_pod_is_given_the_time_that_the_end_may_take() {
        let delay = Duration::from_secs(SHUTDOWN_DELAY_SECONDS);
        let grace = Duration::from_secs(GRACE_SECONDS);
        let end = delay + DRAIN + FLUSH;
        assert!(end < grace && grace < end + Duration::from_secs(10), "{end:?} of {grace:?}");
    }
}
