//! The program without flags, as in a Pod or with mirrord: it reads the files of the service account from their usual
//! paths.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use test_cluster::Process;

use crate::world::{NAMESPACE, World};

/// The path of the files in a Pod. A mount namespace provides it temporarily.
const ENTER: &str = r#"
set -e
mount -t tmpfs tmpfs /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
cp "$FILES"/* /var/run/secrets/kubernetes.io/serviceaccount/
if command -v setpriv >/dev/null; then exec setpriv --pdeathsig KILL -- "$@"; fi
exec "$@"
"#;

/// The reason why this machine does not allow mount namespaces.
pub fn is_impossible() -> Option<&'static str> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "x", "/var/run"]);
    let is_possible = unshare.output().is_ok_and(|output| output.status.success());
    (!is_possible).then_some("no mount namespaces")
}

pub fn finds_its_service_account(world: &mut World) -> Result<()> {
    let folder = world.control_plane.folder().join("pod");
    let (files, home) = (folder.join("files"), folder.join("home"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&home)?;
    let create = ["create", "token", farm_operator::NAME, "-n", NAMESPACE];
    fs::write(files.join("token"), world.kubectl(create).run()?.trim())?;
    fs::copy(&world.control_plane.authority().file, files.join("ca.crt"))?;
    fs::write(files.join("namespace"), NAMESPACE)?;
    let url = world.control_plane.url();
    let port = url.rsplit(':').next().unwrap_or_default();
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", ENTER, "sh"])
        .arg(env!("CARGO_BIN_EXE_farm-operator"))
        .args(["--bind-address=127.0.0.1", &format!("--secure-port={}", world.port)])
        .env("FILES", &files)
        .env("HOME", &home)
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", port)
        .env_remove("KUBECONFIG")
        .env_remove("RUST_LOG");
    world.server.kill();
    world.server = Process::spawn(&command, &folder.join("farm-operator.log"))?;
    world.eventually(|| world.kubectl(["get", "llama", "dolly", "-o", "name"]).run())?;
    // The program knows its namespace; otherwise it would not have found its Secret and would not be ready.
    let direct = world.directly("token", &serde_json::json!({"token": "jane-token"}))?;
    let ready = world.control_plane.kubectl_as(&direct, ["get", "--raw", "/readyz?verbose"]);
    let ready = ready.run()?;
    ensure!(ready.contains("[+]serving-certificate ok"), "{ready}");
    world.restart_server()?;
    world.eventually(|| world.kubectl(["get", "llama", "dolly", "-o", "name"]).run())?;
    Ok(())
}
