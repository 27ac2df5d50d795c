//! Free ports of this machine.

use std::net::TcpListener;

use anyhow::Result;

/// Returns a port of 127.0.0.1 that no process uses at the moment.
///
/// # Errors
/// When no port is free.
pub fn free_port() -> Result<u16> {
    Ok(free_ports::<1>()?[0])
}

/// Returns different ports that no process uses at the moment.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
