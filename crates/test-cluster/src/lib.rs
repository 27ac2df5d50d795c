//! A real Kubernetes control plane for tests and experiments, without containers: etcd, kube-apiserver and
//! kube-controller-manager. They listen on free ports of 127.0.0.1, and write all their files to a temporary directory.
//!
//! There are no nodes: Pods stay Pending until a client writes their status.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! let programs = test_cluster::Programs::find()?;
//! let cluster = test_cluster::ControlPlane::start(&programs, &[])?;
//! cluster.kubectl(["get", "namespaces"]).run()?;
//! # Ok(())
//! # }
//! ```

mod certificates;
mod control_plane;
mod etcd;
mod kubeconfig;
mod kubectl;
mod ports;
mod preload;
mod process;
mod programs;
mod requirement;
mod server_files;
mod standalone;
mod streams;

pub use certificates::{Authority, Certificate};
pub use control_plane::{ControlPlane, Token, start_controller_manager};
pub use etcd::{Etcd, Past};
pub use kubeconfig::kubeconfig;
pub use kubectl::{Kubectl, Printed};
pub use ports::free_port;
pub use preload::preloaded_library;
pub use process::{Process, example, lines};
pub use programs::{Missing, Programs};
pub use requirement::{is_required, unless_missing};
pub use server_files::ServerFiles;
pub use standalone::Standalone;
pub use streams::{PipedProcess, Ran, StreamClient, echo};
