//! The devices behind the machines, which are simulated: their state is in the memory of this process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aggregated_apiserver::Stored;
use aggregated_apiserver::subresource::{Error, Parent};
use axum::extract::FromRequestParts;
use http::request::Parts;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::DuplexStream;
use tokio::sync::broadcast::{self, Receiver, Sender};

/// A machine.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "machines.example.com", version = "v1", kind = "Machine", namespaced)]
pub struct MachineSpec {
    /// The memory in megabytes.
    pub megabytes: u32,
}

impl Stored for Machine {}

/// The number of lines of a log that are stored, and that a slow reader may be behind.
const LINES: usize = 1000;

/// The devices by the UIDs of their machines. The device of a deleted machine exists until the program ends.
static DEVICES: Mutex<BTreeMap<String, Arc<Device>>> = Mutex::new(BTreeMap::new());

pub struct Device {
    state: Mutex<State>,
    lines: Mutex<VecDeque<String>>,
    appended: Sender<String>,
}

#[derive(Default, Serialize, JsonSchema)]
pub struct State {
    /// Whether the device is running.
    pub running: bool,
    /// The length of the uploaded image in bytes. A real device would also store its bytes.
    pub length: u64,
    /// The SHA-256 checksum of the image in hexadecimal.
    pub sha256: String,
}

/// The device of the machine in the path of a request.
pub struct Found(pub Arc<Device>);

impl<S: Sync> FromRequestParts<S> for Found {
    type Rejection = Error;

    async fn from_request_parts(head: &mut Parts, state: &S) -> Result<Self, Error> {
        let Parent(machine) = Parent::<Machine>::from_request_parts(head, state).await?;
        let uid = machine.metadata.uid.unwrap_or_default();
        let new = || {
            let (appended, _) = broadcast::channel(LINES);
            Arc::new(Device { state: Mutex::default(), lines: Mutex::default(), appended })
        };
        Ok(Self(Arc::clone(lock(&DEVICES).entry(uid).or_insert_with(new))))
    }
}

impl Device {
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Appends a line to the log. All readers receive it.
    pub fn append(&self, line: &str) {
        let mut lines = lock(&self.lines);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(format!("{line}\n"));
        let _ = self.appended.send(format!("{line}\n"));
    }

    /// The last lines of the log, and a receiver of all further lines.
    pub fn log(&self, count: usize) -> (Vec<String>, Receiver<String>) {
        let lines = lock(&self.lines);
        let skipped = lines.len().saturating_sub(count);
        (lines.iter().skip(skipped).cloned().collect(), self.appended.subscribe())
    }
}

/// Connects to a port of a device. Only the port of the echo protocol is open.
pub fn connect(port: u16) -> Result<DuplexStream, String> {
    if port != 7 {
        return Err(format!("cannot connect to port {port}: connection refused"));
    }
    let (near, far) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move {
        let (mut input, mut output) = tokio::io::split(far);
        tokio::io::copy(&mut input, &mut output).await
    });
    Ok(near)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
