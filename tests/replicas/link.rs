//! A network link between a replica and a member of etcd, which can be disturbed.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All data passes.
    Open,
    /// Data from the replica is delayed until the link is open again.
    HoldsRequests,
    /// Data from the member is delayed.
    HoldsAnswers,
    /// Data in both directions is delayed.
    HoldsAll,
    /// Existing and new connections are closed.
    Cut,
}

/// A port that forwards to a member.
pub struct Link {
    state: watch::Sender<State>,
    /// The URL of the member for the replica.
    pub url: String,
    task: JoinHandle<()>,
}

impl Link {
    /// Opens a link to the member with this URL, for example `http://127.0.0.1:2379`.
    pub async fn to(member: &str) -> Result<Self> {
        let member: SocketAddr = member.strip_prefix("http://").context("a URL")?.parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = watch::Sender::new(State::Open);
        let task = tokio::spawn(accept(listener, member, state.clone()));
        Ok(Self { state, url, task })
    }

    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.set(State::Cut);
    }
}

async fn accept(listener: TcpListener, member: SocketAddr, state: watch::Sender<State>) {
    while let Ok((client, _)) = listener.accept().await {
        if *state.borrow() != State::Cut {
            tokio::spawn(connect(client, member, state.subscribe()));
        }
    }
}

async fn connect(mut client: TcpStream, member: SocketAddr, state: watch::Receiver<State>) {
    let Ok(mut member) = TcpStream::connect(member).await else { return };
    let (from_client, to_client) = client.split();
    let (from_member, to_member) = member.split();
    let mut cut = state.clone();
    tokio::select! {
        () = copy(from_client, to_member, state.clone(), State::HoldsRequests) => {}
        () = copy(from_member, to_client, state, State::HoldsAnswers) => {}
        _ = cut.wait_for(|state| *state == State::Cut) => {}
    }
}

/// Copies data, unless the link delays it.
async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut state: watch::Receiver<State>,
    held_by: State,
) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        let passes = |state: &State| *state != held_by && *state != State::HoldsAll;
        if state.wait_for(passes).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
