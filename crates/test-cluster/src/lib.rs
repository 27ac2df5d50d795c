//! A real Kubernetes control plane for tests and for trying out, without
//! containers: etcd, kube-apiserver and kube-controller-manager, on free
//! ports of 127.0.0.1, with everything they write in a temporary folder.
//!
//! Nodes there are none: Pods stay Pending until somebody writes their status.
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
mod kubectl;
mod process;
mod programs;

pub use certificates::{Authority, Certificate};
pub use control_plane::{ControlPlane, Token, start_controller_manager};
pub use etcd::{Etcd, Past};
pub use kubectl::{Kubectl, Printed};
pub use process::{Process, lines};
pub use programs::{Missing, Programs};
