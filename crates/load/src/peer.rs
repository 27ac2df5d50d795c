//! The peer: an unmodified sample-apiserver, the usual template of such a server in Go. It needs etcd, and a cluster
//! for its admission.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use serde_json::{Value, json};
use test_cluster::{ControlPlane, Missing, Programs, free_port};

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peer");
const PACKAGE: &str = "k8s.io/sample-apiserver";
/// The path of the collection of its objects.
pub const COLLECTION: &str = "/apis/wardle.example.com/v1alpha1/namespaces/load/flunders";

/// The programs that sample-apiserver needs.
pub struct Surroundings {
    program: PathBuf,
    cluster: ControlPlane,
    /// The number of servers so far. Each server uses its own prefix in etcd.
    servers: AtomicUsize,
}

impl Surroundings {
    /// Builds sample-apiserver and starts a control plane. Returns `None` if this machine lacks the programs for that.
    pub fn start() -> Result<Option<Self>> {
        let programs = Programs::find().and_then(|programs| {
            Ok((Programs::built(Path::new(MODULE), PACKAGE, &["go.mod", "go.sum"])?, programs))
        });
        let (program, programs) = match programs {
            Ok(programs) => programs,
            Err(error) if error.is::<Missing>() => {
                eprintln!("without sample-apiserver: {error}");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let cluster = ControlPlane::start(&programs, &[])?;
        cluster.kubectl(["create", "namespace", "load"]).run()?;
        Ok(Some(Self { program, cluster, servers: AtomicUsize::new(0) }))
    }

    /// Returns the URL of the etcd of the control plane.
    pub fn etcd_url(&self) -> String {
        self.cluster.etcd_url()
    }

    /// Returns the command of a server with empty storage and the certificates of a directory, and the port of the
    /// server.
    pub fn command(&self, folder: &Path) -> Result<(Command, u16)> {
        let port = free_port()?;
        let number = self.servers.fetch_add(1, Ordering::Relaxed);
        let file = |name: &str| folder.join(name).display().to_string();
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let flags = [
            ("etcd-servers", self.cluster.etcd_url()),
            ("etcd-prefix", format!("/load/{number}")),
            ("secure-port", port.to_string()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("tls-cert-file", file("serving.crt")),
            ("tls-private-key-file", file("serving.key")),
            ("client-ca-file", file("ca.crt")),
            ("requestheader-client-ca-file", file("ca.crt")),
            ("requestheader-username-headers", "X-Remote-User".to_owned()),
            ("requestheader-group-headers", "X-Remote-Group".to_owned()),
            ("authentication-skip-lookup", "true".to_owned()),
            ("authentication-kubeconfig", kubeconfig.clone()),
            ("authorization-kubeconfig", kubeconfig.clone()),
            ("kubeconfig", kubeconfig),
        ];
        let mut command = Command::new(&self.program);
        command.args(flags.map(|(name, value)| format!("--{name}={value}")));
        Ok((command, port))
    }
}

/// Returns a Flunder as large as the objects of the other servers. Its kind can only store a string of this size in an
/// annotation.
pub fn flunder(sample: &Value) -> Value {
    let mut flunder = json!({
        "apiVersion": "wardle.example.com/v1alpha1",
        "kind": "Flunder",
        "metadata": sample["metadata"],
    });
    flunder["metadata"]["annotations"] = json!({"text": sample["spec"].to_string()});
    flunder
}
