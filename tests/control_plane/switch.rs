//! A port that forwards connections to an exchangeable process.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;

/// A port that forwards connections to one process or another.
pub struct Switch {
    pub port: u16,
    target: Arc<AtomicU16>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Switch {
    pub fn to(target: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let target = Arc::new(AtomicU16::new(target));
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        // This thread ends with the process of the tests.
        thread::spawn({
            let (target, open) = (Arc::clone(&target), Arc::clone(&open));
            move || {
                for client in listener.incoming().map_while(Result::ok) {
                    // If no process listens on the target, the connection is closed, as for a Pod.
                    let _ = forward(client, &target, &open);
                }
            }
        });
        Ok(Self { port, target, open })
    }

    /// Forwards new connections to another target. Open connections remain.
    pub fn lead_new_connections_to(&self, target: u16) {
        self.target.store(target, Ordering::SeqCst);
    }

    /// Forwards new connections to another target, and closes open connections.
    pub fn lead_to(&self, target: u16) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.lead_new_connections_to(target);
        for stream in open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn forward(client: TcpStream, target: &AtomicU16, open: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    // The lock is held from the choice of the target until the connection is listed. A switch to another target then
    // finds, and closes, every older connection.
    let mut streams = open.lock().unwrap_or_else(PoisonError::into_inner);
    let server = TcpStream::connect(("127.0.0.1", target.load(Ordering::SeqCst)))?;
    streams.extend([client.try_clone()?, server.try_clone()?]);
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
